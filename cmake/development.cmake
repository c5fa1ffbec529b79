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

add_library(adacc_warnings INTERFACE)
target_compile_options(adacc_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Werror
  # g++ 12 misreports its own vector intrinsics where Eigen's kernels are inlined (GCC bug 105593).
  # What it sees depends on the CPU's vector width, so none of this may break a build.
  "$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-error=array-bounds;-Wno-error=stringop-overflow>")

if(ADACC_SANITIZE)
  # Every report is an error: a test that only prints one would pass.
  add_compile_options(-fsanitize=${ADACC_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ADACC_SANITIZE})
endif()

include("${CMAKE_CURRENT_LIST_DIR}/nvcc.cmake")

# adacc_executable(target source... [LINK library...]): one of our own programs.
function(adacc_executable target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK")
  add_executable(${target} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${target} PRIVATE adacc::eigen adacc_warnings ${arg_LINK})
endfunction()
