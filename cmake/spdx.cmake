# SPDX-License-Identifier: MIT
# The licence as the first line of every source and script of ours, or the second behind a "#!", for tools
# that look for it there:
#
#   cmake [-DCHECK=ON] -P cmake/spdx.cmake
#
# With CHECK nothing is written: a file without the line is an error.
cmake_minimum_required(VERSION 3.25)

set(root "${CMAKE_CURRENT_LIST_DIR}/..")
cmake_path(NORMAL_PATH root)
set(licence "SPDX-License-Identifier: MIT")

set(sources "${root}CMakeLists.txt" "${root}.ci/run")
foreach(folder IN ITEMS include tests bench examples support cmake tools)
  foreach(name IN ITEMS *.hpp *.cpp *.cuh *.cu *.h *.c *.sh *.py *.pyi *.cmake *.cmake.in CMakeLists.txt)
    file(GLOB_RECURSE found "${root}${folder}/${name}")
    list(APPEND sources ${found})
  endforeach()
endforeach()
list(FILTER sources EXCLUDE REGEX "^${root}python/build/")  # made by setup.py

foreach(source IN LISTS sources)
  if(source MATCHES "\\.(hpp|cpp|cuh|cu)$")
    set(line "// ${licence}\n")
  elseif(source MATCHES "\\.(h|c)$")
    set(line "/* ${licence} */\n")
  else()
    set(line "# ${licence}\n")
  endif()
  file(READ "${source}" text)
  set(first "")
  if(text MATCHES "^#!")
    string(FIND "${text}" "\n" end)
    math(EXPR end "${end} + 1")
    string(SUBSTRING "${text}" 0 ${end} first)
    string(SUBSTRING "${text}" ${end} -1 text)
  endif()
  string(FIND "${text}" "${line}" at)
  if(at EQUAL 0)
    continue()
  elseif(CHECK)
    message(SEND_ERROR "${source} does not begin with its licence; run cmake -P cmake/spdx.cmake")
  else()
    message(STATUS "${source}")
    file(WRITE "${source}" "${first}${line}${text}")
  endif()
endforeach()
