# SPDX-License-Identifier: MIT
# What the tests, examples and benchmarks share: dependencies, warnings, sanitizers. None of it
# reaches those who only include adacc.

set(CMAKE_CXX_EXTENSIONS OFF)

# find_package(), but a missing package is named as Debian names it.
macro(adacc_require package apt)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "adacc's tests, examples and benchmarks need ${package}: "
                        "apt-get install ${apt}")
  endif()
endmacro()

adacc_require(Eigen3 libeigen3-dev 3.4 NO_MODULE)
if(ADACC_BUILD_TESTS)
  adacc_require(doctest doctest-dev)
endif()
if(ADACC_BUILD_EXAMPLES OR ADACC_BUILD_BENCH)
  adacc_require(CLI11 libcli11-dev)
  adacc_require(nlohmann_json nlohmann-json3-dev)
endif()
if(ADACC_BUILD_BENCH)
  adacc_require(benchmark libbenchmark-dev)
endif()

# Every preset that tests says ON. A compiler newer than ours may warn of what ours do not: that must
# not keep anybody from building an example.
option(ADACC_WERROR "Warnings are errors" ON)

add_library(adacc_warnings INTERFACE)
target_compile_options(adacc_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow
  "$<$<BOOL:${ADACC_WERROR}>:-Werror>"
  # g++ 12 misreports its own vector intrinsics where Eigen's kernels are inlined (GCC bug 105593).
  # What it sees depends on the CPU's vector width, so none of this may break a build.
  "$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-error=array-bounds;-Wno-error=stringop-overflow>"
  # With little optimization it sees them as plainly uninitialized.
  "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${ADACC_QUICK_BUILD}>>:-Wno-uninitialized>")

foreach(made IN ITEMS adacc_c adacc_planner)  # for everybody, by cmake/package/components.cmake
  if(TARGET ${made})
    target_link_libraries(${made} PRIVATE adacc_warnings)
  endif()
endforeach()

if(ADACC_SANITIZE)
  # Every report is an error: a test that only prints one would pass.
  add_compile_options(-fsanitize=${ADACC_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ADACC_SANITIZE})
  # Both save a seventh of the compiler's time: functions with more than a hundred accesses call the address
  # sanitizer's checks instead of containing them, and of headers that are not ours (Eigen's, the standard
  # library's) accesses are checked, but no undefined behaviour.
  if(ADACC_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_compile_options(-mllvm -asan-instrumentation-with-call-threshold=100)
  endif()
  if(ADACC_SANITIZE MATCHES "undefined" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_compile_options("-fsanitize-ignorelist=${CMAKE_CURRENT_LIST_DIR}/sanitized_elsewhere.txt")
  endif()
endif()

include("${CMAKE_CURRENT_LIST_DIR}/nvcc.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/cudnn.cmake")

find_program(ADACC_CCACHE ccache)
mark_as_advanced(ADACC_CCACHE)
if(ADACC_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${ADACC_CCACHE}")
endif()

# adacc_executable(target [OBJECT] source... [LINK library...] [QUICK flag]): one of our own programs, or
# its objects alone. With ADACC_QUICK_BUILD it is compiled with the flag behind QUICK, adacc_quick_level unless
# another is named; `none` leaves the build's own, and with -fsyntax-only its sources are read for what the compiler
# warns of: a third of the time.
#
# g++ takes 0.6 times as long for -Og as for -O1, and what it makes runs 1.1 to 1.4 times as long; clang's -Og is -O1.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(adacc_quick_level -Og)
else()
  # Fewer functions are inlined: a fifth less to compile, and programs take a tenth longer.
  set(adacc_quick_level -O1 -mllvm -inline-threshold=20)
endif()
if(ADACC_QUICK_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Below a GB g++ collects no garbage: a twentieth to a seventh less time.
  add_compile_options(--param=ggc-min-heapsize=1000000)
endif()
if(ADACC_QUICK_BUILD)  # a source that is only read leaves no object
  list(APPEND CMAKE_CXX_COMPILE_OBJECT "\"${CMAKE_COMMAND}\" -E touch <OBJECT>")
endif()
function(adacc_executable target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "OBJECT" "QUICK" "LINK")
  if(arg_OBJECT OR (ADACC_QUICK_BUILD AND arg_QUICK STREQUAL "-fsyntax-only"))
    add_library(${target} OBJECT ${arg_UNPARSED_ARGUMENTS})
  else()
    add_executable(${target} ${arg_UNPARSED_ARGUMENTS})
  endif()
  target_link_libraries(${target} PRIVATE adacc::eigen adacc_warnings ${arg_LINK})
  if(ADACC_QUICK_BUILD)
    if(NOT arg_QUICK)
      set(arg_QUICK ${adacc_quick_level})
    endif()
    if(NOT arg_QUICK STREQUAL "none")
      target_compile_options(${target} PRIVATE ${arg_QUICK})
    endif()
  endif()
endfunction()

if(ADACC_QUICK_BUILD AND TARGET adacc_c)  # its tests take a second
  target_compile_options(adacc_c PRIVATE -O0)
endif()

# Whether programs can be started on several ranks here: not under sanitizers, because MPI keeps memory
# until the process ends, nor without exceptions, which is about our own code.
set(ADACC_LAUNCHES_MPI FALSE)
if(TARGET adacc::mpi AND MPIEXEC_EXECUTABLE AND NOT ADACC_SANITIZE AND NOT ADACC_NO_EXCEPTIONS)
  set(ADACC_LAUNCHES_MPI TRUE)
endif()

# What Open MPI's launcher wants to be told to start small programs on any machine: as root, more ranks
# than cores, and where one process may not read another's memory.
set(adacc_mpi_environment
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
  OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none)

# adacc_mpi_test(name ranks target)
function(adacc_mpi_test name ranks target)
  add_test(NAME ${name} COMMAND "${MPIEXEC_EXECUTABLE}" "${MPIEXEC_NUMPROC_FLAG}" ${ranks}
                                $<TARGET_FILE:${target}>)
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS mpi PROCESSORS ${ranks}
                       ENVIRONMENT "${adacc_mpi_environment}")
endfunction()
