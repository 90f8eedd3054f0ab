# How this tree's tests are built: forebay_test() for a test program, forebay_test_code() for what
# test programs share.
#
# Tests cost as much to compile as all that they test, so they are built for speed of building:
#   - without optimisation in RelWithDebInfo (the code under test keeps -O2), but optimised in
#     Release, where the soak tests run;
#   - from precompiled headers: a test would spend half of its time on GoogleTest and the standard
#     library. With g++ only: the clang presets show that each test includes what it uses.
find_package(GTest REQUIRED)
include(GoogleTest)

set(forebay_precompile_tests OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(forebay_precompile_tests ON)
endif()

# forebay_precompiled(<name> <libraries> <headers>): the target forebay_precompiled_<name>, whose
# precompiled headers test code reuses. Its source is empty: headers are precompiled for a target.
function(forebay_precompiled name libraries headers)
  set(source ${PROJECT_BINARY_DIR}/precompiled/${name}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(forebay_precompiled_${name} OBJECT EXCLUDE_FROM_ALL ${source})
  target_link_libraries(forebay_precompiled_${name} PRIVATE forebay::build_flags ${libraries})
  target_compile_options(forebay_precompiled_${name} PRIVATE ${forebay_test_options})
  target_precompile_headers(forebay_precompiled_${name} PRIVATE ${headers})
  set_target_properties(forebay_precompiled_${name} PROPERTIES CXX_CLANG_TIDY "")
endfunction()

# Precompiled headers fit only code of the same options and definitions: -fPIC because executables
# would get -fPIE and libraries not; GTEST_HAS_PTHREAD as GoogleTest's own targets have it.
set(forebay_test_options -fPIC -pthread -DGTEST_HAS_PTHREAD=1)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # Without it, ccache cannot tell which precompiled headers a source uses.
  list(APPEND forebay_test_options -fpch-preprocess)
endif()
list(APPEND forebay_test_options $<$<CONFIG:RelWithDebInfo>:-O0>)

set(forebay_test_headers <gmock/gmock.h> <gtest/gtest.h> <algorithm> <chrono> <condition_variable>
  <filesystem> <functional> <map> <memory> <optional> <random> <span> <string> <thread> <vector>
  <tl/expected.hpp>)
if(forebay_precompile_tests)
  forebay_precompiled(tests "GTest::gmock;tl::expected" "${forebay_test_headers}")
endif()

# forebay_test_code(<target>): compiles the target, a test program or a library for tests, as tests
# are.
function(forebay_test_code target)
  target_compile_options(${target} PRIVATE ${forebay_test_options})
  if(forebay_precompile_tests)
    target_precompile_headers(${target} REUSE_FROM forebay_precompiled_tests)
  endif()
endfunction()

# forebay_test(NAME <target> SOURCES <files> LIBRARIES <targets> [LABELS <one label>] [TIMEOUT <s>]
#              [SERIAL])
# One GoogleTest executable, each of its cases a ctest test. SERIAL: they measure time, so that
# nothing else runs beside them.
function(forebay_test)
  cmake_parse_arguments(arg "SERIAL" "NAME;TIMEOUT" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  list(LENGTH arg_LABELS label_count)
  if(label_count GREATER 1)
    message(FATAL_ERROR "${arg_NAME}: gtest_discover_tests passes on the first label only")
  endif()
  add_executable(${arg_NAME} ${arg_SOURCES})
  target_link_libraries(${arg_NAME} PRIVATE ${arg_LIBRARIES} forebay::build_flags
                        GTest::gmock GTest::gtest_main)
  forebay_test_code(${arg_NAME})
  gtest_discover_tests(${arg_NAME} DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}"
                       RUN_SERIAL ${arg_SERIAL})
endfunction()
