# The licence as the first line of every C++ and CUDA source of ours, for tools that look for it there:
#
#   cmake [-DCHECK=ON] -P cmake/spdx.cmake
#
# With CHECK nothing is written: a source without the line is an error.
cmake_minimum_required(VERSION 3.25)

set(root "${CMAKE_CURRENT_LIST_DIR}/..")
cmake_path(NORMAL_PATH root)
set(line "// SPDX-License-Identifier: MIT\n")

foreach(folder IN ITEMS include tests bench examples support)
  foreach(extension IN ITEMS hpp cpp cuh cu)
    list(APPEND patterns "${root}${folder}/*.${extension}")
  endforeach()
endforeach()
file(GLOB_RECURSE sources ${patterns})
foreach(source IN LISTS sources)
  file(READ "${source}" text)
  string(FIND "${text}" "${line}" at)
  if(at EQUAL 0)
    continue()
  elseif(CHECK)
    message(SEND_ERROR "${source}: its first line is not the licence; run cmake -P cmake/spdx.cmake")
  else()
    message(STATUS "${source}")
    file(WRITE "${source}" "${line}${text}")
  endif()
endforeach()
