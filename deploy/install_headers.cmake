# Runs while installing: puts the client's public headers into <prefix>/include/forebay, and those
# headers of proto/contract that they show into forebay/contract, with their includes rewritten to
# match. So a program needs one include directory, and no name of ours lies outside forebay/.
# Set by deploy/CMakeLists.txt: source_folder, staging_folder, include_folder.
cmake_policy(VERSION 3.25)
file(REMOVE_RECURSE ${staging_folder})
file(GLOB waiting RELATIVE ${source_folder} ${source_folder}/client/include/forebay/*.h)
set(seen "")
while(waiting)
  list(POP_FRONT waiting header)
  if(header IN_LIST seen)
    continue()
  endif()
  list(APPEND seen ${header})
  file(STRINGS ${source_folder}/${header} lines REGEX "^#include \"proto/contract/")
  list(TRANSFORM lines REPLACE "^#include \"([^\"]+)\".*$" "\\1")
  list(APPEND waiting ${lines})

  string(REGEX REPLACE "^client/include/" "" installed ${header})
  string(REGEX REPLACE "^proto/contract/" "forebay/contract/" installed ${installed})
  file(READ ${source_folder}/${header} text)
  string(REPLACE "#include \"proto/contract/" "#include \"forebay/contract/" text "${text}")
  file(WRITE ${staging_folder}/${installed} "${text}")
endwhile()
file(INSTALL ${staging_folder}/forebay
  DESTINATION ${CMAKE_INSTALL_PREFIX}/${include_folder} FILES_MATCHING PATTERN "*.h")
