# SPDX-License-Identifier: MIT
# find_package(adacc [COMPONENTS c eigen lp_solve cuda torch mpi]): adacc::adacc, and a target for each
# component that was asked for. A component that nobody asks for is not looked for.

include("${CMAKE_CURRENT_LIST_DIR}/adaccTargets.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/components.cmake")

foreach(adacc_component IN LISTS adacc_FIND_COMPONENTS)
  adacc_find_component(${adacc_component} adacc_missing)
  if(NOT adacc_missing)
    set(adacc_${adacc_component}_FOUND TRUE)
    continue()
  endif()
  set(adacc_${adacc_component}_FOUND FALSE)
  if(adacc_FIND_REQUIRED_${adacc_component})
    set(adacc_FOUND FALSE)
    set(adacc_NOT_FOUND_MESSAGE "${adacc_missing}")
  endif()
endforeach()
unset(adacc_component)
unset(adacc_missing)
