# How this tree's tests are built: forebay_test() for a test program, forebay_test_code() for what
# test programs share.
#
# Tests cost as much to compile as all that they test, so they are built for speed of building:
#   - without optimisation in RelWithDebInfo (the code under test keeps -O2), but optimised in
#     Release, where the soak tests run; forebay_optimise() makes exceptions;
#   - from precompiled headers: a test would spend half of its time on GoogleTest and the standard
#     library. With g++ only: the clang presets show that each test includes what it uses;
#   - several files at once where FOREBAY_UNITY_BUILD is on (preset ci), because they include the
#     same headers of the room. The other presets compile each file alone.
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
  set_target_properties(forebay_precompiled_${name} PROPERTIES CXX_CLANG_TIDY "" UNITY_BUILD OFF)
endfunction()

# Precompiled headers fit only code of the same options and definitions: -fPIC because executables
# would get -fPIE and libraries not; GTEST_HAS_PTHREAD as GoogleTest's own targets have it.
set(forebay_test_options -fPIC -pthread -DGTEST_HAS_PTHREAD=1)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # Without it, ccache cannot tell which precompiled headers a source uses.
  list(APPEND forebay_test_options -fpch-preprocess)
endif()
list(APPEND forebay_test_options $<$<CONFIG:RelWithDebInfo>:-O0>)

set(forebay_standard_headers <algorithm> <chrono> <condition_variable> <filesystem> <functional>
  <map> <memory> <optional> <random> <span> <string> <thread> <vector> <tl/expected.hpp>)
set(forebay_test_headers <gmock/gmock.h> <gtest/gtest.h> ${forebay_standard_headers})
if(forebay_precompile_tests)
  forebay_precompiled(tests "GTest::gmock;tl::expected" "${forebay_test_headers}")
endif()

# forebay_test_code(<target>): compiles the target, a test program or a library for tests, as tests
# are. 24 files at once take 2.2 GB at most, and a sixth less time than 12 at once.
function(forebay_test_code target)
  target_compile_options(${target} PRIVATE ${forebay_test_options})
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${FOREBAY_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE 24)
  if(forebay_precompile_tests)
    target_precompile_headers(${target} REUSE_FROM forebay_precompiled_tests)
  endif()
endfunction()

# forebay_optimise(<target> <files>): for files of test code that compute for so long that a little
# optimisation costs less than it saves. Each is compiled alone, and without precompiled headers,
# which are not optimised.
function(forebay_optimise target)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES
    COMPILE_OPTIONS $<$<CONFIG:RelWithDebInfo>:-O1>
    SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# forebay_suites(<program> <properties>...): ctest runs each suite of the program by itself, in one
# process, and the test has the name of the suite. What failed stands in its output. A suite is all
# that ctest sees, so none of its tests may be skipped: the suite fails then.
function(forebay_suites program)
  set(list ${CMAKE_CURRENT_BINARY_DIR}/${program}_suites.cmake)
  set(include ${CMAKE_CURRENT_BINARY_DIR}/${program}_suites_include.cmake)
  set(properties ${ARGN} WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  add_custom_command(TARGET ${program} POST_BUILD BYPRODUCTS ${list}
    COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${program}> -D LIST=${list}
            -D "PROPERTIES=${properties}" -P ${PROJECT_SOURCE_DIR}/tests/list_suites.cmake
    VERBATIM)
  # A program that was not built is a test that fails, as with gtest_discover_tests.
  file(CONFIGURE OUTPUT ${include} @ONLY CONTENT [[
if(EXISTS "@list@")
  include("@list@")
else()
  add_test(@program@_NOT_BUILT @program@_NOT_BUILT)
endif()
]])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()

# forebay_test(NAME <name> SOURCES <files> LIBRARIES <targets> [LABELS <one label>] [TORCH]
#              [OWN_PROGRAM] [TIMEOUT <s>] [SERIAL] [BY_SUITE] [COST <s>] [OPTIMISED])
# Adds test cases, each of which ctest runs by itself. Those of a room with one label make one
# program, such as server_tier_unit_test: linking 230 programs cost more than all of compress/.
# OWN_PROGRAM makes a program called <name>: for tests that change their process (link-time
# wrappers, an operator new or a main of their own), have definitions of their own, or are run by
# name elsewhere. TIMEOUT and SERIAL imply it. SERIAL: they measure time, so that nothing else runs
# beside them. TORCH: they include LibTorch's headers, and are a program apart from the room's
# others. BY_SUITE, which TORCH implies: forebay_suites(); for programs that load LibTorch, which
# takes a second of a core, more than most of their tests. COST: about how long, where that is tens
# of seconds. ctest starts what costs most first, so that no core is idle in the end. A program that
# several calls make gets BY_SUITE and COST from the first. OPTIMISED: forebay_optimise().
function(forebay_test)
  cmake_parse_arguments(arg "OWN_PROGRAM;SERIAL;TORCH;BY_SUITE;OPTIMISED" "NAME;TIMEOUT;LABELS;COST"
                        "SOURCES;LIBRARIES" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  set(program ${arg_NAME})
  if(arg_TIMEOUT OR arg_SERIAL)
    set(arg_OWN_PROGRAM ON)
  endif()
  if(arg_TORCH)
    set(arg_BY_SUITE ON)
  endif()
  # Values are never empty, because the properties after an empty one would get each other's values.
  if(NOT arg_TIMEOUT)
    # Many times what tests need: a hang is found in any case, and a machine may be slow.
    set(arg_TIMEOUT 300)
    if(arg_BY_SUITE)
      set(arg_TIMEOUT 900)
    endif()
  endif()
  if(NOT arg_COST)
    set(arg_COST 0)
  endif()
  if(NOT arg_OWN_PROGRAM)
    file(RELATIVE_PATH room ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
    string(REGEX MATCH "^[^/]+(/[^/]+)?" room ${room})
    string(REPLACE "/" "_" room ${room})
    if(arg_TORCH)
      string(APPEND room _torch)
    endif()
    set(program ${room}_${arg_LABELS}_test)
  endif()
  if(NOT TARGET ${program})
    add_executable(${program})
    target_link_libraries(${program} PRIVATE forebay::build_flags GTest::gmock GTest::gtest_main)
    forebay_test_code(${program})
    if(arg_TORCH)
      forebay_sees_torch(${program})
    endif()
    set(properties TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" RUN_SERIAL ${arg_SERIAL}
      COST ${arg_COST})
    if(arg_BY_SUITE)
      forebay_suites(${program} ${properties})
    else()
      gtest_discover_tests(${program} DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
    endif()
  endif()
  list(TRANSFORM arg_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ REGEX "^[^/]")
  target_sources(${program} PRIVATE ${arg_SOURCES})
  if(arg_OPTIMISED)
    forebay_optimise(${program} ${arg_SOURCES})
  endif()
  target_link_libraries(${program} PRIVATE ${arg_LIBRARIES})
endfunction()
