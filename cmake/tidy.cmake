# SPDX-License-Identifier: MIT
# clang-tidy with the checks of .clang-tidy: the test tidy_headers sees every header once, and the
# target adacc_tidy also the examples, in which templates are instantiated and analysed (minutes).

# Another version has other checks.
find_program(ADACC_CLANG_TIDY NAMES clang-tidy-14)
mark_as_advanced(ADACC_CLANG_TIDY)
if(NOT ADACC_CLANG_TIDY)
  message(STATUS "adacc: no clang-tidy-14 (apt-get install clang-tidy-14), so headers are not tidied")
  return()
endif()

set(root "${PROJECT_SOURCE_DIR}/include")
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${root}" "${root}/adacc/*.hpp")
list(FILTER headers EXCLUDE REGEX "^adacc/adapter/(torch|mpi)")  # they need libtorch, MPI
list(TRANSFORM headers REPLACE "(.+)" "#include <\\1>")
list(JOIN headers "\n" includes)
set(source "${PROJECT_BINARY_DIR}/tidy/all_headers.cpp")
file(CONFIGURE OUTPUT "${source}" CONTENT "${includes}\n" @ONLY)

find_path(ADACC_EIGEN_INCLUDE_DIR Eigen/Core HINTS "${EIGEN3_INCLUDE_DIR}" PATH_SUFFIXES eigen3 REQUIRED)
mark_as_advanced(ADACC_EIGEN_INCLUDE_DIR)
set(command "${ADACC_CLANG_TIDY}" --quiet "--config-file=${PROJECT_SOURCE_DIR}/.clang-tidy")
set(flags -- -std=c++20 "-I${root}" -isystem "${ADACC_EIGEN_INCLUDE_DIR}"
    "-DADACC_EIGEN_INCLUDE_DIR=\"${ADACC_EIGEN_INCLUDE_DIR}\"")

add_test(NAME tidy_headers COMMAND ${command} "${source}" ${flags})
set_tests_properties(tidy_headers PROPERTIES LABELS "compile;tidy" TIMEOUT 600)

file(GLOB examples CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*.cpp")
set(commands)
foreach(example IN LISTS examples)
  list(APPEND commands COMMAND ${command} "${example}" ${flags})
endforeach()
add_custom_target(adacc_tidy COMMAND ${command} "${source}" ${flags} ${commands} VERBATIM)
