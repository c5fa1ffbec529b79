# SPDX-License-Identifier: MIT
# States what a program costs a device: bytes of text and data, and a bound of its stack. Fails where
# either is above what is promised.
#
# The bound is the sum of the frames of all functions that the compiler left standing. No function
# here is recursive, so no chain of calls holds one twice. What libc and libm need comes on top.
#
#     cmake -D SIZE=size -D PROGRAM=… -D OBJECT=….o -D MOST_BYTES=… -D MOST_STACK=… -P footprint.cmake

execute_process(COMMAND "${SIZE}" "${PROGRAM}" OUTPUT_VARIABLE sizes COMMAND_ERROR_IS_FATAL ANY)
if(NOT sizes MATCHES "\n *([0-9]+)[ \t]+([0-9]+)[ \t]+([0-9]+)")
  message(FATAL_ERROR "cannot read what ${SIZE} says:\n${sizes}")
endif()
set(text "${CMAKE_MATCH_1}")
set(data "${CMAKE_MATCH_2}")
set(bss "${CMAKE_MATCH_3}")
math(EXPR bytes "${text} + ${data}")

string(REGEX REPLACE "\\.o$" ".su" usage "${OBJECT}")
file(READ "${usage}" frames)
string(REGEX MATCHALL "\t[0-9]+\t[a-z,]+\n" frames "${frames}")  # what comes before holds any sign
set(sum 0)
set(largest 0)
foreach(frame IN LISTS frames)
  if(frame MATCHES "dynamic" AND NOT frame MATCHES "bounded")
    message(FATAL_ERROR "${usage} has a frame without bound")
  endif()
  string(REGEX MATCH "[0-9]+" own "${frame}")
  math(EXPR sum "${sum} + ${own}")
  if(own GREATER largest)
    set(largest "${own}")
  endif()
endforeach()
list(LENGTH frames count)
if(sum EQUAL 0)
  message(FATAL_ERROR "${usage} names no frame")
endif()

get_filename_component(name "${PROGRAM}" NAME)
message("${name}: ${text} bytes of text and ${data} of data (${bytes} of ${MOST_BYTES}), "
        "${bss} of static memory; stack at most ${sum} bytes (all ${count} frames; the largest "
        "${largest})")
if(bytes GREATER MOST_BYTES)
  message(FATAL_ERROR "${name}: text and data are ${bytes} bytes, more than ${MOST_BYTES}")
endif()
if(sum GREATER MOST_STACK)
  message(FATAL_ERROR "${name}: the frames add up to ${sum} bytes, more than ${MOST_STACK}")
endif()
