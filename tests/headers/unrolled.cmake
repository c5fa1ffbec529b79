# SPDX-License-Identifier: MIT
# A pragma that asks for an unrolled loop stands behind no `if constexpr` and no `else` without a brace: where the
# statement is discarded, nvcc 13.0 has in some programs discarded the declaration behind the statement as well.
# Run as a test: cmake -P unrolled.cmake
cmake_minimum_required(VERSION 3.25)

cmake_path(SET project NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../..")
foreach(folder include support examples bench tests)
  file(GLOB_RECURSE sources RELATIVE "${project}" "${project}/${folder}/*.hpp" "${project}/${folder}/*.cuh"
       "${project}/${folder}/*.cu")
  foreach(source IN LISTS sources)
    file(READ "${project}/${source}" text)
    string(REGEX MATCH "(if constexpr [^{};]*|else)\n *(#pragma|_Pragma|ADACC_UNROLL|ADACC_ROLL)[^\n]*" found "${text}")
    if(found)
      message(SEND_ERROR "${source}: the statement needs braces: ${found}")
    endif()
  endforeach()
endforeach()
