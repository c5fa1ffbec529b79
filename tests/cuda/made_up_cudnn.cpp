// SPDX-License-Identifier: MIT
/// A cuDNN whose handles and executions are made up. All other functions are cuDNN's: the loader finds them in the
/// library that this one is linked with. Tensors of an execution are seen when its attributes are set.
#include "made_up_cudnn.hpp"

#include <cudnn.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstring>

extern "C" {

MadeUpCudnn made_up_cudnn;

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  ++made_up_cudnn.handles;
  *handle = reinterpret_cast<cudnnHandle_t>(&made_up_cudnn);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t) {
  --made_up_cudnn.handles;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t stream) {
  made_up_cudnn.stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t, cudaStream_t* stream) {
  *stream = made_up_cudnn.stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t what,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* from) {
  const auto bytes = static_cast<std::size_t>(count) * 8;
  if (what == CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
    std::memcpy(&made_up_cudnn.workspace, from, sizeof made_up_cudnn.workspace);
  if (what == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS && bytes <= sizeof made_up_cudnn.ids)
    std::memcpy(made_up_cudnn.ids, from, bytes), made_up_cudnn.count = count;
  if (what == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS && bytes <= sizeof made_up_cudnn.places)
    std::memcpy(made_up_cudnn.places, from, bytes);
  static const auto real = reinterpret_cast<decltype(&cudnnBackendSetAttribute)>(
      dlsym(RTLD_NEXT, "cudnnBackendSetAttribute"));
  return real(descriptor, what, type, count, from);
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t,
                                  cudnnBackendDescriptor_t) {
  ++made_up_cudnn.executed;
  return made_up_cudnn.fails ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}
}
