# SPDX-License-Identifier: MIT
# The targets that need another library, found and made by the same lines in a source tree and from
# an installed package. What was found is named by target, never by path, so a package can be moved
# and the library be somewhere else on the machine that uses it.

set(adacc_components c planner eigen lp_solve cuda torch mpi)

# lp_solve has no CMake package. Debian's is a static library, which wants colamd, dl and m.
function(adacc_find_lpsolve scope)
  if(TARGET adacc::lpsolve55)
    return()
  endif()
  find_library(ADACC_LPSOLVE_LIBRARY NAMES lpsolve55_pic lpsolve55)
  find_library(ADACC_COLAMD_LIBRARY NAMES colamd)
  mark_as_advanced(ADACC_LPSOLVE_LIBRARY ADACC_COLAMD_LIBRARY)
  if(NOT ADACC_LPSOLVE_LIBRARY)
    return()
  endif()
  set(libraries)
  if(ADACC_LPSOLVE_LIBRARY MATCHES "\\.a$")
    if(ADACC_COLAMD_LIBRARY)
      list(APPEND libraries "${ADACC_COLAMD_LIBRARY}")
    endif()
    list(APPEND libraries ${CMAKE_DL_LIBS} m)
  endif()
  add_library(adacc::lpsolve55 UNKNOWN IMPORTED ${scope})
  set_target_properties(adacc::lpsolve55 PROPERTIES
    IMPORTED_LOCATION "${ADACC_LPSOLVE_LIBRARY}" INTERFACE_LINK_LIBRARIES "${libraries}")
endfunction()

# adacc::libtorch: what adapter/torch.hpp links. Whoever has called find_package(Torch) before links
# that. Otherwise libtorch is looked for here: its own package wants a CUDA toolkit if it was built
# with CUDA, and links what nobody needs on a CPU. `why` is set if there is one that cannot be used.
function(adacc_find_libtorch scope why)
  set(${why} "" PARENT_SCOPE)
  if(TARGET adacc::libtorch)
    return()
  endif()
  if(TARGET torch)
    add_library(adacc::libtorch INTERFACE IMPORTED ${scope})
    set_property(TARGET adacc::libtorch PROPERTY INTERFACE_LINK_LIBRARIES torch)
    return()
  endif()
  set(ADACC_TORCH_DIR "" CACHE PATH
      "Folder with include/ and lib/ of libtorch, such as torch/ of Python's packages")
  # What was found when another folder was named is not what this one has.
  if(NOT "${ADACC_TORCH_DIR}" STREQUAL "${ADACC_TORCH_SEARCHED}")
    unset(ADACC_TORCH_INCLUDE_DIR CACHE)
    unset(ADACC_TORCH_CPU_LIBRARY CACHE)
    unset(ADACC_C10_LIBRARY CACHE)
  endif()
  set(ADACC_TORCH_SEARCHED "${ADACC_TORCH_DIR}" CACHE INTERNAL "the folder named when libtorch was looked for")
  set(folders "${ADACC_TORCH_DIR}" "${TORCH_INSTALL_PREFIX}")
  if(Torch_DIR)
    list(APPEND folders "${Torch_DIR}/../../..")
  endif()
  find_path(ADACC_TORCH_INCLUDE_DIR torch/csrc/autograd/engine.h HINTS ${folders}
            PATH_SUFFIXES include)
  find_library(ADACC_TORCH_CPU_LIBRARY NAMES torch_cpu HINTS ${folders} PATH_SUFFIXES lib)
  find_library(ADACC_C10_LIBRARY NAMES c10 HINTS ${folders} PATH_SUFFIXES lib)
  mark_as_advanced(ADACC_TORCH_INCLUDE_DIR ADACC_TORCH_CPU_LIBRARY ADACC_C10_LIBRARY)
  if(NOT (ADACC_TORCH_INCLUDE_DIR AND ADACC_TORCH_CPU_LIBRARY AND ADACC_C10_LIBRARY)
     OR NOT EXISTS "${ADACC_C10_LIBRARY}")  # it was removed since it was found
    return()
  endif()
  # The one function that every error calls takes a std::string: of which ABI, its name says.
  file(STRINGS "${ADACC_C10_LIBRARY}" old_abi LIMIT_COUNT 1 REGEX "torchCheckFailEPKcS[0-9]_jRKSs")
  if(old_abi)
    set(${why} "${ADACC_C10_LIBRARY} was built with the old ABI of std::string \
(_GLIBCXX_USE_CXX11_ABI=0), which no program of C++20's can link" PARENT_SCOPE)
    return()
  endif()
  set(libraries "${ADACC_TORCH_CPU_LIBRARY}" "${ADACC_C10_LIBRARY}")
  # Debian's logs by glog, from inline functions.
  file(STRINGS "${ADACC_TORCH_INCLUDE_DIR}/c10/macros/cmake_macros.h" glog
       REGEX "^#define C10_USE_GLOG")
  if(glog)
    find_library(ADACC_GLOG_LIBRARY NAMES glog)
    mark_as_advanced(ADACC_GLOG_LIBRARY)
    list(APPEND libraries "$<$<BOOL:${ADACC_GLOG_LIBRARY}>:${ADACC_GLOG_LIBRARY}>")
  endif()
  add_library(adacc::libtorch INTERFACE IMPORTED ${scope})
  set_target_properties(adacc::libtorch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
      "${ADACC_TORCH_INCLUDE_DIR};${ADACC_TORCH_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${libraries}"
    # at::parallel_for is inline, and has one thread if its caller is compiled without.
    INTERFACE_COMPILE_OPTIONS "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fopenmp>"
    INTERFACE_LINK_OPTIONS "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fopenmp>")
endfunction()

# adacc_make_library(name source): a source of include/, compiled for whoever links adacc::name: by nobody
# else, and whatever the flags of the program are, with a NaN that is one. `c` is what adacc.h declares,
# `planner` what make_plan.hpp does, for programs whose sources then need not compile it.
function(adacc_make_library name source)
  if(DEFINED adacc_SOURCE_DIR)
    set(folder "${adacc_SOURCE_DIR}/include")
  else()
    get_target_property(folder adacc::adacc INTERFACE_INCLUDE_DIRECTORIES)
  endif()
  add_library(adacc_${name} STATIC EXCLUDE_FROM_ALL "${folder}/adacc/${source}")
  add_library(adacc::${name} ALIAS adacc_${name})
  target_link_libraries(adacc_${name} PUBLIC adacc::adacc)
  target_compile_options(adacc_${name} PRIVATE
    "$<$<CXX_COMPILER_ID:GNU,Clang,AppleClang>:-fno-fast-math>")
endfunction()

# adacc_find_component(name missing [GLOBAL]): makes the target adacc::name and empties the variable
# `missing`, or says in it why it cannot be had.
function(adacc_find_component name missing)
  set(${missing} "" PARENT_SCOPE)
  if(TARGET adacc::${name})
    return()
  endif()

  if(name MATCHES "^(c|planner)$")
    get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
    if(NOT "CXX" IN_LIST languages)
      set(${missing} "adacc's component ${name} needs CXX among the project's languages" PARENT_SCOPE)
    elseif(name STREQUAL "c")
      adacc_make_library(c adacc.cpp)
    else()
      adacc_make_library(planner plan/planner.cpp)
      target_compile_definitions(adacc_planner PUBLIC ADACC_SEPARATE_PLANNER)
    endif()
    return()
  elseif(name STREQUAL "eigen")
    # What the optional parts layer/ and train/ include.
    if(NOT TARGET Eigen3::Eigen)
      find_package(Eigen3 3.4 QUIET NO_MODULE)
    endif()
    set(needed Eigen3::Eigen)
    if(TARGET Eigen3::Eigen)
      find_package(Threads QUIET)
      list(APPEND needed Threads::Threads)
    endif()
    set(words "Eigen 3.4 and threads (Debian: libeigen3-dev; elsewhere set Eigen3_DIR)")
  elseif(name STREQUAL "lp_solve")
    adacc_find_lpsolve("${ARGN}")
    set(needed adacc::lpsolve55)
    set(words
      "the library lpsolve55 (Debian: liblpsolve55-dev; elsewhere set ADACC_LPSOLVE_LIBRARY)")
  elseif(name STREQUAL "cuda")
    # The runtime to link with. Compiling .cuh is the affair of whoever enables CUDA as a language.
    if(NOT TARGET CUDA::cudart)
      find_package(CUDAToolkit 12.8 QUIET)
    endif()
    set(needed CUDA::cudart)
    if(TARGET CUDA::cublasLt)  # of layer/linear.cuh and layer/cross_entropy_head.cuh
      list(APPEND needed CUDA::cublasLt)
    endif()
    set(words "the CUDA toolkit 12.8 or later (set CUDAToolkit_ROOT)")
  elseif(name STREQUAL "torch")
    adacc_find_libtorch("${ARGN}" why)
    if(why)
      set(${missing} "adacc's component torch: ${why}" PARENT_SCOPE)
      return()
    endif()
    set(needed adacc::libtorch)
    set(words "libtorch 1.13 or later (Debian: libtorch-dev; elsewhere set ADACC_TORCH_DIR, or call \
find_package(Torch) before)")
  elseif(name STREQUAL "mpi")
    # What adapter/mpi.hpp includes. Which MPI, its wrapper of the compiler says (mpicxx).
    # CMake makes the target MPI::MPI_CXX also where it finds no MPI.
    get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
    if("CXX" IN_LIST languages)
      set(MPI_CXX_SKIP_MPICXX TRUE)
      find_package(MPI 3.0 QUIET COMPONENTS CXX)
    endif()
    set(needed)
    if(MPI_CXX_FOUND)
      set(needed MPI::MPI_CXX)
    endif()
    set(words "MPI 3.0 or later (Debian: libopenmpi-dev openmpi-bin; elsewhere put its mpicxx into \
the PATH, or set MPI_HOME)")
  else()
    list(JOIN adacc_components ", " all)
    set(${missing} "adacc has no component ${name}; it has ${all}" PARENT_SCOPE)
    return()
  endif()

  set(found TRUE)
  foreach(target IN LISTS needed)
    if(NOT TARGET ${target})
      set(found FALSE)
    endif()
  endforeach()
  if(NOT needed OR NOT found)
    set(${missing} "adacc's component ${name} needs ${words}" PARENT_SCOPE)
    return()
  endif()
  add_library(adacc::${name} INTERFACE IMPORTED ${ARGN})
  set_property(TARGET adacc::${name} PROPERTY INTERFACE_LINK_LIBRARIES adacc::adacc ${needed})
endfunction()
