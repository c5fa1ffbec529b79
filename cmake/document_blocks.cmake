# SPDX-License-Identifier: MIT
# Every program in README.md and docs/ is a test: the ```cpp blocks that contain `int main` are
# compiled and run, so that what a reader copies works.

# adacc_document_blocks(document name): the programs name_1, name_2, … of one document.
function(adacc_document_blocks document name)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${document}")
  file(READ "${document}" text)
  set(number 0)
  while(TRUE)
    string(FIND "${text}" "```cpp\n" begin)
    if(begin EQUAL -1)
      break()
    endif()
    math(EXPR begin "${begin} + 7")
    string(SUBSTRING "${text}" ${begin} -1 text)
    string(FIND "${text}" "\n```" end)
    if(end EQUAL -1)
      message(FATAL_ERROR "${document}: a ```cpp block has no end")
    endif()
    string(SUBSTRING "${text}" 0 ${end} block)
    string(SUBSTRING "${text}" ${end} -1 text)
    set(needs_torch FALSE)
    if(block MATCHES "adacc/adapter/torch")
      set(needs_torch TRUE)
      if(NOT TARGET adacc::torch OR ADACC_NO_EXCEPTIONS OR ADACC_SANITIZE)
        continue()  # as tests/torch
      endif()
    endif()
    if(block MATCHES "adacc/adapter/mpi" AND NOT ADACC_LAUNCHES_MPI)
      continue()  # as tests/mpi
    endif()
    if(block MATCHES "int main")
      math(EXPR number "${number} + 1")
      set(program ${name}_${number})
      set(source "${PROJECT_BINARY_DIR}/documents/${program}.cpp")
      file(WRITE "${source}.new" "${block}\n")
      # Only where it differs, or it would compile every time.
      file(COPY_FILE "${source}.new" "${source}" ONLY_IF_DIFFERENT)
      adacc_executable(${program} "${source}" QUICK -O0)
      if(needs_torch)
        target_link_libraries(${program} PRIVATE adacc::torch)
      endif()
      if(block MATCHES "adacc/adapter/mpi")
        target_link_libraries(${program} PRIVATE adacc::mpi)
        adacc_mpi_test(${program} 2 ${program})
        continue()
      endif()
      add_test(NAME ${program} COMMAND ${program})
      set_tests_properties(${program} PROPERTIES TIMEOUT 300)
      if(needs_torch)
        set_tests_properties(${program} PROPERTIES LABELS torch
                             ENVIRONMENT "OMP_NUM_THREADS=2;OMP_WAIT_POLICY=passive")  # as torch_test
        add_dependencies(adacc_torch_tests ${program})
      endif()
    endif()
  endwhile()
endfunction()

if(NOT PROJECT_NAME STREQUAL "adacc")  # tests/platforms chooses its documents
  return()
endif()
adacc_document_blocks("${PROJECT_SOURCE_DIR}/README.md" readme_block)
file(GLOB documents CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/*.md")
foreach(document IN LISTS documents)
  cmake_path(GET document STEM stem)
  adacc_document_blocks("${document}" docs_${stem})
endforeach()

# Links of pages lead somewhere, and the index of docs/ is complete.
add_test(NAME document_links COMMAND "${CMAKE_COMMAND}" -P "${CMAKE_CURRENT_LIST_DIR}/document_links.cmake")
