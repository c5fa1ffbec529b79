# SPDX-License-Identifier: MIT
# Writes headers of adacc, and all of adacc that they include, into one file:
#
#   cmake -DOUTPUT=adacc.hpp ["-DHEADERS=adacc.hpp;codec/bf16.hpp"] -P cmake/single_header.cmake
#
# HEADERS are paths below include/adacc; the default is the umbrella. What stands between < and > is
# left to the compiler. Each header is written where it is first included, without its #pragma once.
cmake_minimum_required(VERSION 3.25)

set(root "${CMAKE_CURRENT_LIST_DIR}/../include/adacc")
cmake_path(NORMAL_PATH root)
if(NOT HEADERS)
  set(HEADERS adacc.hpp)
endif()
if(NOT OUTPUT)
  message(FATAL_ERROR "Say where the header goes: -DOUTPUT=adacc.hpp")
endif()

set(licence "// SPDX-License-Identifier: MIT\n")

# Text is cut with FIND and SUBSTRING: as a CMake list it would be split at its brackets.
function(add_header path)
  get_property(done GLOBAL PROPERTY adacc_written)
  if(path IN_LIST done)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY adacc_written "${path}")
  file(READ "${path}" text)
  string(REPLACE "#pragma once\n" "" text "${text}")
  string(REPLACE "${licence}" "" text "${text}")
  cmake_path(GET path PARENT_PATH folder)
  cmake_path(RELATIVE_PATH path BASE_DIRECTORY "${root}" OUTPUT_VARIABLE name)
  set(text "\n// ---- adacc/${name}\n\n${text}")
  while(TRUE)
    string(FIND "${text}" "\n#include \"" begin)
    if(begin EQUAL -1)
      break()
    endif()
    math(EXPR begin "${begin} + 1")
    string(SUBSTRING "${text}" 0 ${begin} before)
    string(SUBSTRING "${text}" ${begin} -1 text)
    file(APPEND "${OUTPUT}.new" "${before}")
    string(FIND "${text}" "\n" end)
    string(SUBSTRING "${text}" 0 ${end} line)
    string(SUBSTRING "${text}" ${end} -1 text)
    if(NOT line MATCHES "^#include \"([^\"]+)\"")
      message(FATAL_ERROR "${path}: ${line}")
    endif()
    set(included "${folder}/${CMAKE_MATCH_1}")
    cmake_path(NORMAL_PATH included)
    add_header("${included}")
  endwhile()
  file(APPEND "${OUTPUT}.new" "${text}")
endfunction()

file(WRITE "${OUTPUT}.new" "${licence}#pragma once\n")
foreach(header IN LISTS HEADERS)
  add_header("${root}/${header}")
endforeach()
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
