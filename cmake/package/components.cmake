# The targets that need another library, found and made by the same lines in a source tree and from
# an installed package. What was found is named by target, never by path, so a package can be moved
# and the library be somewhere else on the machine that uses it.

set(adacc_components eigen lp_solve cuda)

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

# adacc_find_component(name missing [GLOBAL]): makes the target adacc::name and empties the variable
# `missing`, or says in it why it cannot be had.
function(adacc_find_component name missing)
  set(${missing} "" PARENT_SCOPE)
  if(TARGET adacc::${name})
    return()
  endif()

  if(name STREQUAL "eigen")
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
  else()
    list(JOIN adacc_components ", " all)
    set(${missing} "adacc has no component ${name}; it has ${all}" PARENT_SCOPE)
    return()
  endif()

  foreach(target IN LISTS needed)
    if(NOT TARGET ${target})
      set(${missing} "adacc's component ${name} needs ${words}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  add_library(adacc::${name} INTERFACE IMPORTED ${ARGN})
  set_property(TARGET adacc::${name} PROPERTY INTERFACE_LINK_LIBRARIES adacc::adacc ${needed})
endfunction()
