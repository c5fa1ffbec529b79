// SPDX-License-Identifier: MIT
// Functions of the CUDA runtime that PyTorch asks for, beside those of ../api.cpp: for libcudart.so.13 in front of the
// toolkit's.
#include <cuda.h>
#include <dlfcn.h>

#include "../runtime.hpp"

using namespace ptxrun;

namespace {

/// PyTorch copies bytes that nobody has written: padding, results of empty(). So memory counts as written, unless
/// PTXRUN_STRICT is set.
const int at_load = [] {
  rt().counts_written = std::getenv("PTXRUN_STRICT") != nullptr;
  return 0;
}();

}  // namespace

extern "C" {

/// For tests: calls in which the host has waited for a device, but for those of ptxrun_finish().
long ptxrun_waits() {
  const Turn turn;
  return rt().waits;
}
/// Waits for a stream, uncounted: for operators computed on the host.
cudaError_t ptxrun_finish(cudaStream_t stream) {
  const Turn turn;
  const cudaError_t status = cudaStreamSynchronize(stream);
  --rt().waits;
  return status;
}

// Memory

cudaError_t cudaHostRegister(void* p, size_t n, unsigned) {
  const Turn turn;
  rt().machine.memory.pinned[reinterpret_cast<u64>(p)] = n;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* p) {
  const Turn turn;
  run_all_waiting(false);
  return rt().machine.memory.pinned.erase(reinterpret_cast<u64>(p))
             ? cudaSuccess
             : said(cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t n, cudaStream_t s) {
  return cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToDevice, s);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t rows, cudaMemcpyKind kind, cudaStream_t s) {
  for (size_t r = 0; r < rows; ++r)
    if (const cudaError_t e =
            cudaMemcpyAsync(static_cast<u8*>(to) + r * to_pitch,
                            static_cast<const u8*>(from) + r * from_pitch, width, kind, s);
        e != cudaSuccess)
      return e;
  return cudaSuccess;
}

// The device

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* v) {
  *v = CUDA_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int n, int d) {
  std::snprintf(id, static_cast<size_t>(n), "0000:%02x:00.0", static_cast<unsigned>(1 + d));
  return cudaSuccess;
}
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** f, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *f = dlsym(RTLD_DEFAULT, name);  // ../driver.cpp
  if (found) *found = *f ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

// Streams and events

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int) {
  return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaStreamGetPriority(cudaStream_t, int* p) {
  *p = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus* is,
                                     unsigned long long* id, cudaGraph_t* g,
                                     const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* n) {
  const Turn turn;
  cudaStreamIsCapturing(s, is);
  if (id) *id = *is == cudaStreamCaptureStatusNone ? 0 : reinterpret_cast<u64>(s->capturing.get());
  if (g) *g = nullptr;
  if (nodes) *nodes = nullptr;
  if (edges) *edges = nullptr;
  if (n) *n = 0;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, rt().capture_mode);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t given) {
  const Turn turn;
  const cudaStream_t s = queue_of(given);
  if (!s || s->waiting.empty()) return cudaSuccess;
  come_further(*s);  // whoever asks again and again gets there
  return cudaErrorNotReady;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned) {
  return cudaEventRecord(e, s);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void* with) {
  return enqueue(s, [=] {
    f(with);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void* with, unsigned) {
  return enqueue(s, [=] {
    f(s, cudaSuccess, with);
    return cudaSuccess;
  });
}

// Graphs: PyTorch asks how many nodes one has, for a warning.

cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t*, size_t* n) {
  *n = g->nodes.size();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* e, cudaGraph_t g,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(e, g, flags);
}

void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int) {}

}  // extern "C"
