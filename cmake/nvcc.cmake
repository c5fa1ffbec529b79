# SPDX-License-Identifier: MIT
# What the tests and benchmarks build with nvcc. They call it themselves: no CUDA language is
# enabled, so that the project builds alike where there is no CUDA.

find_program(ADACC_NVCC NAMES nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(ADACC_NVCC)
get_target_property(eigen Eigen3::Eigen INTERFACE_INCLUDE_DIRECTORIES)
set(ADACC_NVCC_FLAGS -std=c++20 "-I${PROJECT_SOURCE_DIR}/include" -isystem ${eigen})

# Beside PTX, which every device from sm_80 on makes its own code of when a program starts (minutes, for
# programs of many kernels), code of these: sm_90, say.
set(ADACC_CUDA_CODE "" CACHE STRING "devices whose code is made beside PTX: sm_80,sm_90")
option(ADACC_CUDA_PTX "Without it programs have code for the devices of ADACC_CUDA_CODE alone, compressed" ON)
if(NOT ADACC_CUDA_PTX AND NOT ADACC_CUDA_CODE)
  message(FATAL_ERROR "without ADACC_CUDA_PTX there is no code but that for ADACC_CUDA_CODE, which names no device")
elseif(NOT ADACC_CUDA_PTX)
  set(ADACC_NVCC_CODE -arch=compute_80 "-code=${ADACC_CUDA_CODE}" --compress-mode=size)
elseif(ADACC_CUDA_CODE)
  set(ADACC_NVCC_CODE -arch=compute_80 "-code=compute_80,${ADACC_CUDA_CODE}")
else()
  set(ADACC_NVCC_CODE -arch=compute_80 -code=compute_80)
endif()
set(ADACC_NVCC_LINK "" CACHE STRING "what nvcc is told when it links programs")

# adacc_nvcc_object(object source [HEADERS header...] [OPTIONS option...] [HOST_LEVEL level]): `object` is made of
# `source`, paths in full, with code for any device from sm_80 on, to be linked with a CUDA runtime or an executor.
# What runs on the host is optimized at that level, -O3 if none is given (nvcc puts its own behind any that
# -Xcompiler names); what runs on the device is the same at all of them.
function(adacc_nvcc_object object source)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "HOST_LEVEL" "HEADERS;OPTIONS")
  if(NOT arg_HOST_LEVEL)
    set(arg_HOST_LEVEL -O3)
  endif()
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/adacc/*.hpp"
       "${PROJECT_SOURCE_DIR}/include/adacc/*.cuh")
  cmake_path(GET object PARENT_PATH folder)
  file(MAKE_DIRECTORY "${folder}")
  add_custom_command(OUTPUT "${object}"
    COMMAND "${ADACC_NVCC}" ${ADACC_NVCC_FLAGS} ${arg_HOST_LEVEL} -lineinfo ${ADACC_NVCC_CODE}
            "$<$<BOOL:${ADACC_CUDA_PTX}>:--no-compress>" --cudart=none ${arg_OPTIONS} -c -o "${object}" "${source}"
    DEPENDS "${source}" ${arg_HEADERS} ${headers}
    COMMENT "Compiling ${source} with nvcc" VERBATIM COMMAND_EXPAND_LISTS)
endfunction()

# adacc_nvcc_program(target program [ALL] SOURCES source... [HEADERS header...] [OPTIONS option...] [LINK library...]):
# `target` builds `program` in the current binary folder, with code for any device from sm_80 on. Paths of sources may
# be full.
function(adacc_nvcc_program target program)
  cmake_parse_arguments(PARSE_ARGV 2 arg "ALL" "" "SOURCES;HEADERS;OPTIONS;LINK")
  list(TRANSFORM arg_LINK PREPEND -l)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/adacc/*.hpp"
       "${PROJECT_SOURCE_DIR}/include/adacc/*.cuh")
  list(TRANSFORM arg_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" REGEX "^[^/]")
  add_custom_command(OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${program}"
    COMMAND "${ADACC_NVCC}" ${ADACC_NVCC_FLAGS} "-I${PROJECT_SOURCE_DIR}" -O3 ${ADACC_NVCC_CODE} ${ADACC_NVCC_LINK}
            ${arg_OPTIONS}
            -o "${CMAKE_CURRENT_BINARY_DIR}/${program}" ${arg_SOURCES} ${arg_LINK}
    DEPENDS ${arg_SOURCES} ${arg_HEADERS} ${headers}
    COMMENT "Building ${program} with nvcc" VERBATIM)
  if(arg_ALL)
    add_custom_target(${target} ALL DEPENDS "${CMAKE_CURRENT_BINARY_DIR}/${program}")
  else()
    add_custom_target(${target} DEPENDS "${CMAKE_CURRENT_BINARY_DIR}/${program}")
  endif()
endfunction()

# adacc_nvcc_test(name source architecture...): a test that `source` compiles for these, sm_80 say,
# without warnings. Nothing of ours asks for the architecture, so that its PTX is made once, for sm_80;
# what an optimizer makes of it, bench/cuda_counts looks at: here it would take three times as long.
function(adacc_nvcc_test name source)
  list(JOIN ARGN "," architectures)
  set(architectures "-gencode=arch=compute_80,code=[${architectures}]")
  add_test(NAME cuda_compile_${name}
    COMMAND "${ADACC_NVCC}" ${ADACC_NVCC_FLAGS} -Ofc=mid -Werror all-warnings ${architectures}
            -Xcompiler=-Wall,-Wextra,-Wconversion,-Wsign-conversion,-Werror
            -c -o /dev/null "${source}")
  set_tests_properties(cuda_compile_${name} PROPERTIES LABELS compile)
endfunction()

# adacc_nvcc_reads(name source): a test that nvcc's compiler for devices reads `source`, and has no warning, all that
# the program instantiates included. Little is made of it: seconds instead of minutes.
function(adacc_nvcc_reads name source)
  add_test(NAME cuda_compile_${name}
    COMMAND "${ADACC_NVCC}" ${ADACC_NVCC_FLAGS} "-I${PROJECT_SOURCE_DIR}" -Ofc=max -Werror all-warnings
            -arch=compute_80 -ptx -o /dev/null "${source}")
  set_tests_properties(cuda_compile_${name} PROPERTIES LABELS compile)
endfunction()

# adacc_document_cuda(document file): writes the first ```cuda block of `document` to `file`, which a test includes, so
# that what a reader copies works.
function(adacc_document_cuda document file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${document}")
  file(READ "${document}" text)
  string(FIND "${text}" "```cuda\n" begin)
  if(begin EQUAL -1)
    message(FATAL_ERROR "${document} has no ```cuda block")
  endif()
  math(EXPR begin "${begin} + 8")
  string(SUBSTRING "${text}" ${begin} -1 text)
  string(FIND "${text}" "\n```" end)
  string(SUBSTRING "${text}" 0 ${end} block)
  file(CONFIGURE OUTPUT "${file}" CONTENT "${block}\n" @ONLY)
endfunction()
