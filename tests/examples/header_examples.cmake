# forebay_header_examples(<variable> <name> HEADERS <paths from the root>)
# Sets <variable> to a generated file with the examples of these headers, for the SOURCES of a test,
# which includes it (header_examples.py says what is in it). A header without example fails the
# build.
set(Python3_ROOT_DIR /usr)
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)

function(forebay_header_examples variable name)
  cmake_parse_arguments(arg "" "" "HEADERS" ${ARGN})
  set(script ${PROJECT_SOURCE_DIR}/tests/examples/header_examples.py)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${name})
  list(TRANSFORM arg_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE paths)
  add_custom_command(OUTPUT ${out}
    COMMAND ${Python3_EXECUTABLE} ${script} --root ${PROJECT_SOURCE_DIR} --out ${out} ${arg_HEADERS}
    DEPENDS ${script} ${paths}
    COMMENT "Extracting the examples of headers to ${name}" VERBATIM)
  set(${variable} ${out} PARENT_SCOPE)
endfunction()
