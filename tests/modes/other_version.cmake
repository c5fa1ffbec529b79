# SPDX-License-Identifier: MIT
# Makes HEADER, the umbrella in one file, that of another version: its namespace says so, and its
# errors hold less.
cmake_minimum_required(VERSION 3.25)

file(READ "${HEADER}" text)
foreach(change IN ITEMS "inline namespace v([0-9_]+) {|inline namespace v99_9 {"
                        "std::size_t capacity = 320|std::size_t capacity = 64")
  string(REPLACE "|" ";" change "${change}")
  list(GET change 0 from)
  list(GET change 1 to)
  string(REGEX REPLACE "${from}" "${to}" text "${text}")
endforeach()
file(WRITE "${HEADER}" "${text}")
