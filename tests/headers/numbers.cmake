# SPDX-License-Identifier: MIT
# Numbers are written and read by core/number_text.hpp and core/read_number.hpp alone: what asks the host's
# locale, and what not all standard libraries have, is called nowhere else. Run as a test:
# cmake -P numbers.cmake
cmake_minimum_required(VERSION 3.25)

set(forbidden "(ato[fil]l?|strto[a-z]+|sto(i|l|ll|ul|ull|f|d|ld)|v?[fsd]?n?printf|v?[fs]?w?scanf|put_money|localeconv|setlocale|from_chars|to_chars)[ \t]*\\(|std::locale|<(iostream|sstream|fstream|locale|clocale|format)>")
cmake_path(SET root NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../include/adacc")
file(GLOB_RECURSE headers RELATIVE "${root}" "${root}/*.hpp" "${root}/*.cuh" "${root}/*.cpp" "${root}/*.h")
foreach(header IN LISTS headers)
  file(STRINGS "${root}/${header}" lines REGEX "${forbidden}")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "//.*" "" code "${line}")
    if(header STREQUAL "core/read_number.hpp")  # whole numbers, which every library has
      string(REGEX REPLACE "from_chars\\(rest\\.data\\(\\)" "" code "${code}")
    endif()
    if(code MATCHES "${forbidden}")
      message(SEND_ERROR "${header} calls ${CMAKE_MATCH_0}: numbers go through core/number_text.hpp and core/read_number.hpp")
    endif()
  endforeach()
endforeach()
