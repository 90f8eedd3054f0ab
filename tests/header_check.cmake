# Every header compiles alone. A header `x.h` with an `x.cc` beside it is the first include of that
# file (tests/tidy, rule own-include-first), so compiling `x.cc` shows it. For each of the others, a
# generated source includes the header and nothing else. Target `header_check`; part of the default
# build with FOREBAY_CHECK_HEADERS. Headers are found by a glob, because a header that was forgotten
# here is just the one to catch.
option(FOREBAY_CHECK_HEADERS "Compile every header alone in the default build" OFF)

file(GLOB_RECURSE all_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/proto/*.h ${PROJECT_SOURCE_DIR}/compress/*.h
  ${PROJECT_SOURCE_DIR}/server/*.h ${PROJECT_SOURCE_DIR}/client/*.h
  ${PROJECT_SOURCE_DIR}/trainer/*.h ${PROJECT_SOURCE_DIR}/tests/*.h
  ${PROJECT_SOURCE_DIR}/bench/*.h)

set(header_sources "")
foreach(header IN LISTS all_headers)
  string(REGEX REPLACE "\\.h$" ".cc" own_source ${PROJECT_SOURCE_DIR}/${header})
  if(EXISTS ${own_source})
    continue()
  endif()
  # LibTorch costs 15 s and 1.4 GB a file, MPI and FUSE may be missing, and vector instructions
  # need a processor's flags: those headers are compiled by the sources that use them.
  set(libraries "torch/|ATen/|c10/|mpi\\.h|immintrin\\.h|fuse|benchmark/|trainer/|bench/")
  file(STRINGS ${PROJECT_SOURCE_DIR}/${header} heavy LIMIT_COUNT 1
       REGEX "^ *# *include *[<\"](${libraries})")
  if(heavy)
    continue()
  endif()
  string(MAKE_C_IDENTIFIER ${header} name)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/header_check/${name}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n")
  list(APPEND header_sources ${source})
endforeach()

if(header_sources)
  add_library(header_check OBJECT EXCLUDE_FROM_ALL ${header_sources})
  # A generated file is no place for a linter, and optimising an empty one is no use.
  set_target_properties(header_check PROPERTIES CXX_CLANG_TIDY "" UNITY_BUILD OFF)
  target_compile_options(header_check PRIVATE -O0 -g0)
  target_link_libraries(header_check PRIVATE
    forebay::build_flags forebay::client forebay::contract forebay::wire tl::expected
    fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json prometheus-cpp::core PkgConfig::xxhash
    PkgConfig::uring GTest::gmock)
  if(FOREBAY_CHECK_HEADERS)
    set_target_properties(header_check PROPERTIES EXCLUDE_FROM_ALL OFF)
  endif()
endif()
