# SPDX-License-Identifier: MIT
# Sources that show that each header compiles alone, and that a second inclusion does no harm: fewer than headers.
# Where one header includes another, both stand in one source, the included one first. It hides nothing that the other
# lacks, because the other includes it anyway. Most of a compiler's time goes into what headers include.

set(adacc_header_root "${PROJECT_SOURCE_DIR}/include")

# adacc_included(header variable): all headers of ours that `header` includes before any other line of code, by itself
# or by what it includes.
function(adacc_included header variable)
  get_property(known GLOBAL PROPERTY "adacc_included_${header}" SET)
  if(NOT known)
    set(all)
    file(STRINGS "${adacc_header_root}/${header}" lines REGEX "^(#include \"|#if|namespace )")
    cmake_path(GET header PARENT_PATH parent)
    foreach(line IN LISTS lines)
      if(NOT line MATCHES "\"([^\"]+)\"")
        break()
      endif()
      set(included "${parent}/${CMAKE_MATCH_1}")
      cmake_path(NORMAL_PATH included)
      adacc_included("${included}" more)
      list(APPEND all "${included}" ${more})
    endforeach()
    list(REMOVE_DUPLICATES all)
    set_property(GLOBAL PROPERTY "adacc_included_${header}" "${all}")
  endif()
  get_property(all GLOBAL PROPERTY "adacc_included_${header}")
  set(${variable} "${all}" PARENT_SCOPE)
endfunction()

# adacc_header_units(variable extension header...): writes the sources for these headers into the current binary folder,
# each named after its last header.
function(adacc_header_units variable extension)
  set(by_size)
  foreach(header IN LISTS ARGN)
    adacc_included("${header}" included)
    list(LENGTH included size)
    list(APPEND by_size "${size} ${header}")
  endforeach()
  list(SORT by_size COMPARE NATURAL)
  list(TRANSFORM by_size REPLACE "^[0-9]+ " "")

  set(lasts)  # of the units so far, those that include the most first
  foreach(header IN LISTS by_size)
    adacc_included("${header}" included)
    set(unit_${header} "#include \"${header}\"\n")
    foreach(last IN LISTS lasts)
      if(last IN_LIST included)
        string(PREPEND unit_${header} "${unit_${last}}")
        list(REMOVE_ITEM lasts "${last}")
        break()
      endif()
    endforeach()
    list(PREPEND lasts "${header}")
  endforeach()

  set(sources)
  foreach(header IN LISTS lasts)
    string(REPLACE "/" "_" name "${header}")
    set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}.${extension}")
    file(CONFIGURE OUTPUT "${source}" CONTENT "${unit_${header}}// and again\n${unit_${header}}" @ONLY)
    list(APPEND sources "${source}")
  endforeach()
  set(${variable} "${sources}" PARENT_SCOPE)
endfunction()
