# SPDX-License-Identifier: MIT
# A locale whose numbers have a decimal comma, for main.cpp: systems come with few locales, or none, so
# glibc's own compiler makes one here. It wants all categories of a locale, and says so; setlocale() is asked
# for numbers alone.

find_program(ADACC_LOCALEDEF NAMES localedef)
mark_as_advanced(ADACC_LOCALEDEF)
set(locales "${CMAKE_CURRENT_BINARY_DIR}/locales")
if(ADACC_LOCALEDEF)
  file(MAKE_DIRECTORY "${locales}")
  file(WRITE "${locales}/source"
       "comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \"<U002C>\"\nthousands_sep \"<U002E>\"\n"
       "grouping 3;3\nEND LC_NUMERIC\n")
  file(WRITE "${locales}/characters"
       "<code_set_name> TWO\n<comment_char> %\n<escape_char> /\nCHARMAP\n<U002C> /x2c COMMA\n"
       "<U002E> /x2e FULL STOP\nEND CHARMAP\n")
  execute_process(COMMAND "${ADACC_LOCALEDEF}" -c -i "${locales}/source" -f "${locales}/characters"
                          "${locales}/decimal_comma"
                  OUTPUT_QUIET ERROR_QUIET RESULT_VARIABLE ignored)
endif()
if(EXISTS "${locales}/decimal_comma/LC_NUMERIC")
  target_compile_definitions(adacc_test_main PRIVATE "ADACC_TEST_LOCALES=\"${locales}\"")
elseif(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  message(SEND_ERROR "no localedef (Debian: libc-bin) to make a locale with a decimal comma for the tests")
else()
  message(STATUS "no localedef: the tests run without a locale that has a decimal comma")
endif()
