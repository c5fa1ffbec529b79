# SPDX-License-Identifier: MIT
# Puts the version into the namespace of every header, `namespace adacc { inline namespace v0_1 {`, so
# that two shared libraries that were built with different versions can live in one program. Users write
# adacc:: all the same. Run it after changing the version in core/config.hpp, or adding a header:
#
#   cmake [-DCHECK=ON] -P cmake/versioned_namespace.cmake
#
# With CHECK nothing is written: headers that would change are errors.
cmake_minimum_required(VERSION 3.25)

set(root "${CMAKE_CURRENT_LIST_DIR}/../include/adacc")
cmake_path(NORMAL_PATH root)
foreach(part IN ITEMS MAJOR MINOR)
  file(STRINGS "${root}/core/config.hpp" line REGEX "^#define ADACC_VERSION_${part} [0-9]+$")
  string(REGEX MATCH "[0-9]+" ${part} "${line}")
endforeach()
set(version "v${MAJOR}_${MINOR}")

file(GLOB_RECURSE headers "${root}/*.hpp" "${root}/*.cuh" "${root}/adacc.cpp")
foreach(header IN LISTS headers)
  file(READ "${header}" text)
  string(REGEX REPLACE "(\n(}}}?  // )?namespace adacc( { inline namespace |::))v[0-9_]+" "\\1${version}"
         new "${text}")
  string(REGEX REPLACE "\n#define v[0-9_]+ v[0-9_]+_for_c\n"  # adacc.cpp has a namespace of its own
         "\n#define ${version} ${version}_for_c\n" new "${new}")
  if(new STREQUAL text)
    continue()
  elseif(CHECK)
    message(SEND_ERROR "${header}: its namespace is not that of ${version}; "
                       "run cmake -P cmake/versioned_namespace.cmake")
  else()
    message(STATUS "${header}")
    file(WRITE "${header}" "${new}")
  endif()
endforeach()
