# SPDX-License-Identifier: MIT
# Headers of cuDNN and of cudnn-frontend, for adapter/cudnn.cuh: adacc_cudnn_headers are the folders, empty if one is
# not there. cudnn-frontend has no package in Debian. This fetches it to where it is looked for:
#
#     python3 -m pip install --no-deps --target build/cudnn-frontend nvidia-cudnn-frontend

option(ADACC_CUDNN "Build train_gpt_cuda and cuda_attention_bench with cuDNN's attention" OFF)
set(ADACC_CUDNN_FRONTEND_DIR "" CACHE PATH "Folder of cudnn-frontend, which has include/cudnn_frontend.h")
cmake_path(GET ADACC_NVCC PARENT_PATH adacc_cuda)
find_path(ADACC_CUDNN_INCLUDE_DIR cudnn.h HINTS "${adacc_cuda}/../include")
find_path(ADACC_CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h
          HINTS "${ADACC_CUDNN_FRONTEND_DIR}" "${PROJECT_SOURCE_DIR}/build/cudnn-frontend" PATH_SUFFIXES include)
mark_as_advanced(ADACC_CUDNN_INCLUDE_DIR ADACC_CUDNN_FRONTEND_INCLUDE_DIR)
set(adacc_cudnn_headers)
if(ADACC_CUDNN_INCLUDE_DIR AND ADACC_CUDNN_FRONTEND_INCLUDE_DIR)
  set(adacc_cudnn_headers "${ADACC_CUDNN_INCLUDE_DIR}" "${ADACC_CUDNN_FRONTEND_INCLUDE_DIR}" "${adacc_cuda}/../include")
elseif(ADACC_CUDNN)
  message(FATAL_ERROR "ADACC_CUDNN needs cudnn.h (found: ${ADACC_CUDNN_INCLUDE_DIR}) and cudnn_frontend.h (found: \
${ADACC_CUDNN_FRONTEND_INCLUDE_DIR}): cmake/cudnn.cmake says where they come from")
endif()
