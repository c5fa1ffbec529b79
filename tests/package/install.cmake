# SPDX-License-Identifier: MIT
# Installs the build in BUILD to a folder below WORK, and moves that folder.
file(REMOVE_RECURSE "${WORK}/installed" "${WORK}/moved")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/installed"
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(MAKE_DIRECTORY "${WORK}/moved")
file(RENAME "${WORK}/installed" "${WORK}/moved/prefix")

file(GLOB_RECURSE texts "${WORK}/moved/prefix/share/*")
foreach(text IN LISTS texts)
  file(READ "${text}" content)
  string(FIND "${content}" "${WORK}" place)
  if(NOT place EQUAL -1)
    message(FATAL_ERROR "${text} names the folder that it was installed to")
  endif()
endforeach()
