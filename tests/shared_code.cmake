# SPDX-License-Identifier: MIT
# The sanitizers multiply the time that optimizing takes, and most of it goes into the same inline
# functions of our headers, in every source anew. With ADACC_SHARED_CODE they are compiled once: those
# that the precompiled header shared_code.hpp reaches are left out of all sources that include it, and
# come, optimized, from one object. The sources themselves are not optimized then. clang++ can do this
# (-fpch-codegen), g++ cannot.
#
# adacc_share_code(target): has a test's sources and its program use it.

if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "ADACC_SHARED_CODE needs clang++: g++ cannot compile a precompiled header")
endif()

# What a precompiled header is called follows the last language that was enabled: C may be gcc's.
enable_language(C)
set(CMAKE_PCH_EXTENSION .pch)

add_library(adacc_shared_header OBJECT shared_code.cpp)
target_link_libraries(adacc_shared_header PRIVATE adacc::eigen adacc_test_options doctest::doctest)
# Without this machine's vectors, sanitizers make calls of what products load and store.
set(adacc_shared_flags -march=native -fpch-codegen)
target_compile_options(adacc_shared_header PRIVATE -O0 ${adacc_shared_flags})
target_precompile_headers(adacc_shared_header PRIVATE shared_code.hpp)

set(adacc_shared_object "${CMAKE_CURRENT_BINARY_DIR}/shared_code.o")
string(TOUPPER "${CMAKE_BUILD_TYPE}" config)
separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${config}}")
get_directory_property(options COMPILE_OPTIONS)
get_target_property(test_options adacc_test_options INTERFACE_COMPILE_OPTIONS)
set(header "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/adacc_shared_header.dir/cmake_pch.hxx.pch")
add_custom_command(OUTPUT "${adacc_shared_object}" VERBATIM
  COMMAND "${CMAKE_CXX_COMPILER}" -std=c++20 -Qunused-arguments ${flags} ${options} ${test_options} -O1 -march=native
          -ffunction-sections -c "${header}" -o "${adacc_shared_object}"
  DEPENDS "${header}"
  COMMENT "Compiling the inline functions of shared_code.hpp")
add_custom_target(adacc_shared_code DEPENDS "${adacc_shared_object}")
add_dependencies(adacc_shared_code adacc_shared_header)

function(adacc_share_code target)
  target_compile_options(${target} PRIVATE -O0 ${adacc_shared_flags})
  target_precompile_headers(${target} REUSE_FROM adacc_shared_header)
  target_link_libraries(${target} PRIVATE "${adacc_shared_object}")
  # The object has functions of the standard library, too, that call what only the library may link.
  target_link_options(${target} PRIVATE -Wl,--gc-sections)
  add_dependencies(${target} adacc_shared_code)
endfunction()
