# SPDX-License-Identifier: MIT
# The inner loop of products on AArch64 multiplies and adds in 24 vectors, and at most one of them leaves its register.
#
#     cmake -D "COMMAND=compiler;options;-S;-o;FILE;neon_kernel.cpp" -D FILE=... -P neon_kernel.cmake
execute_process(COMMAND ${COMMAND} COMMAND_ERROR_IS_FATAL ANY)
file(READ "${FILE}" text)
string(FIND "${text}" "fmla" first)
string(FIND "${text}" "fmla" last REVERSE)
if(first LESS 0)
  message(FATAL_ERROR "no fmla in ${FILE}")
endif()
math(EXPR length "${last} - ${first} + 4")
string(SUBSTRING "${text}" ${first} ${length} loop)
string(REGEX MATCHALL "fmla" products "${loop}")
string(REGEX MATCHALL "[^a-z]sp[^a-z]" spills "${loop}")
string(REGEX REPLACE "[][]" "" spills "${spills}")  # brackets join elements of lists
list(LENGTH products products)
list(LENGTH spills spills)
message("${products} multiply-adds of vectors, ${spills} accesses to the stack")
if(NOT products EQUAL 24 OR spills GREATER 2)
  message(FATAL_ERROR "expected 24, and at most 2")
endif()
