# Asks a GoogleTest program for its suites, and writes the file from which ctest adds a test for
# each: see forebay_suites().
#
#   cmake -D PROGRAM=<program> -D LIST=<file> -D PROPERTIES=<properties> -P list_suites.cmake
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND ${PROGRAM} --gtest_list_tests TIMEOUT 60
                OUTPUT_VARIABLE output RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests: ${result}\n${output}")
endif()
# "Suite." or "Prefix/Suite/0.  # TypeParam = ..."; tests stand below theirs, after two spaces.
string(REGEX MATCHALL "\n[A-Za-z0-9_/]+\\.[ \n]" suites "\n${output}")
if(NOT suites)
  message(FATAL_ERROR "${PROGRAM} has no suite:\n${output}")
endif()
list(JOIN PROPERTIES "]] [[" properties)
set(text "")
foreach(suite IN LISTS suites)
  string(REGEX MATCH "[A-Za-z0-9_/]+" suite "${suite}")
  string(APPEND text
    "add_test([[${suite}]] [[${PROGRAM}]] [[--gtest_filter=${suite}.*]])\n"
    "set_tests_properties([[${suite}]] PROPERTIES [[${properties}]]\n"
    "  FAIL_REGULAR_EXPRESSION [[\\[  SKIPPED \\] ]])\n")
endforeach()
file(WRITE ${LIST} "${text}")
