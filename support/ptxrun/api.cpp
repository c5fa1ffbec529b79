// SPDX-License-Identifier: MIT
// The CUDA runtime's functions on an executor of PTX: link it instead of cudart.
//
//     nvcc -arch=compute_80 -code=compute_80 --no-compress --cudart=none -lineinfo … ptxrun.o
//
// Environment: PTXRUN_RACES=1 finds races; PTXRUN_ORDER=ascending|descending|random,
// PTXRUN_SEED=n, PTXRUN_QUANTUM=n (warps take turns of random lengths up to 2n instructions);
// PTXRUN_LATE=1 runs what a stream was given when somebody waits for it, and not before;
// PTXRUN_STATS=1 prints counts of every kernel. The exit status is 86 where a problem was found.
// The machine is one device of compute capability 9.0 with 32 GiB, unless PTXRUN_DEVICES=n,
// PTXRUN_CAPABILITY=major.minor, PTXRUN_MEMORY=bytes or PTXRUN_DRIVER=old say otherwise.
#include "runtime.hpp"

using namespace ptxrun;

extern "C" {

cudaError_t cudaGetDeviceCount(int* n) {
  *n = 0;
  if (rt().pretended.old_driver) return said(cudaErrorInsufficientDriver);
  if (rt().pretended.devices == 0) return said(cudaErrorNoDevice);
  *n = rt().pretended.devices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) {
  if (d < 0 || d >= rt().pretended.devices) return said(cudaErrorInvalidDevice);
  rt().device = d;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* d) {
  if (rt().pretended.devices == 0) return said(cudaErrorNoDevice);
  *d = rt().device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int) {
  switch (what) {
    case cudaDevAttrComputeCapabilityMajor: *value = rt().pretended.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = rt().pretended.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(most_shared); break;
    default: return said(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = rt().pretended.memory;
  *free = *total - rt().machine.memory.used();
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* p) {
  std::memset(found, 0, sizeof *found);
  found->type = cudaMemoryTypeUnregistered;
  found->device = -1;
  const Allocation* a =
      on_device(p) ? rt().machine.memory.holding(reinterpret_cast<u64>(p), 1) : nullptr;
  if (a == nullptr) {
    found->hostPointer = const_cast<void*>(p);
    return cudaSuccess;
  }
  found->type = cudaMemoryTypeDevice;
  found->device = rt().device_of[a->base];
  found->devicePointer = const_cast<void*>(p);
  return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t s, int* d) {
  *d = s ? s->device : rt().device;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void* function) {
  std::memset(found, 0, sizeof *found);
  const auto it = rt().functions.find(function);
  if (it == rt().functions.end()) return said(cudaErrorInvalidDeviceFunction);
  if (!runs_here(*it->second.first)) return said(cudaErrorNoKernelImageForDevice);
  found->ptxVersion = it->second.first->target;
  found->sharedSizeBytes = shared_bytes_of(*it->second.first, it->second.second);
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute what, int value) {
  const auto it = rt().functions.find(function);
  if (it == rt().functions.end()) return said(cudaErrorInvalidDeviceFunction);
  if (what != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<u64>(value) + shared_bytes_of(*it->second.first, it->second.second) > most_shared)
    return said(cudaErrorInvalidValue);
  rt().dynamic_shared[function] = static_cast<u64>(value);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  std::memset(p, 0, sizeof *p);
  std::strcpy(p->name, "ptxrun, no GPU");
  p->multiProcessorCount = 132, p->warpSize = 32;
  p->major = rt().pretended.major, p->minor = rt().pretended.minor;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (rt().global_capture) return breaks_all();
  for (CUstream_st* stream : rt().streams) wait_for(*stream);
  return said(rt().sticky);
}
cudaError_t cudaMalloc(void** p, size_t n) {
  *p = nullptr;
  if (rt().global_capture) return breaks_all();
  if (n > rt().pretended.memory - rt().machine.memory.used())
    return said(cudaErrorMemoryAllocation);
  *p = reinterpret_cast<void*>(n == 0 ? 0 : rt().machine.memory.allocate(n));
  if (*p) rt().device_of[reinterpret_cast<u64>(*p)] = rt().device;
  return *p || n == 0 ? cudaSuccess : said(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* p) {
  if (!p) return cudaSuccess;
  run_all_waiting(false);
  return rt().machine.memory.release(reinterpret_cast<u64>(p)) ? cudaSuccess
                                                               : said(cudaErrorInvalidValue);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind,
                            cudaStream_t s) {
  return copy(to, from, n, kind, s);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
  return copy(to, from, n, kind, nullptr);
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t n, cudaStream_t stream) {
  return enqueue(stream, [=] {
    u8* const at = bytes_at(p, n, true);
    if (!on_device(p) || !at) return cudaErrorInvalidValue;
    std::memset(at, value, n);
    return cudaSuccess;
  });
}
cudaError_t cudaMemset(void* p, int value, size_t n) {
  return cudaMemsetAsync(p, value, n, nullptr);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  *s = new CUstream_st{flags == 0, rt().device};
  rt().streams.insert(*s);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  if (s && s->capturing) return breaks(*s->capturing, cudaErrorStreamCaptureUnsupported);
  if (s) wait_for(*s);
  rt().streams.erase(s);
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  if (s && s->capturing) return breaks(*s->capturing, cudaErrorStreamCaptureUnsupported);
  if (s) wait_for(*s);
  else run_all_waiting(true);
  return said(rt().sticky);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  if (!s || s->capturing) return said(cudaErrorStreamCaptureUnsupported);
  s->capturing = std::make_shared<Capture>(s);
  rt().global_capture = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* g) {
  *g = nullptr;
  if (!s || !s->capturing) return said(cudaErrorIllegalState);
  const std::shared_ptr<Capture> capture = s->capturing;
  if (capture->origin() != s) return breaks(*capture, cudaErrorStreamCaptureUnmatched);
  capture->ended = true;
  rt().global_capture = false;
  for (const auto& [stream, place] : capture->streams())
    if (rt().streams.count(stream)) stream->capturing = nullptr;
  if (capture->broken) return said(cudaErrorStreamCaptureInvalidated);
  if (!capture->joined()) return said(cudaErrorStreamCaptureUnjoined);
  *g = new CUgraph_st(capture->graph());
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* e, cudaGraph_t g, unsigned long long) {
  *e = new CUgraphExec_st{*g};
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t e, cudaStream_t) {
  if (e->memory == 0) e->memory = rt().machine.memory.allocate(512 * (e->graph.nodes.size() + 1));
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
  for (const std::size_t n : order_of(e->graph, rt().machine.settings.order, rt().graph_order))
    if (const cudaError_t status = enqueue(s, e->graph.nodes[n].run); status != cudaSuccess)
      return status;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) {
  if (e->memory != 0) rt().machine.memory.release(e->memory);
  delete e;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
  delete g;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* e) {
  *e = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  if (const std::shared_ptr<Capture>& capture = e->mark->capture) {
    if (capture->ended) return said(cudaErrorCapturedEvent);
    if (!s) return breaks(*capture, cudaErrorStreamCaptureImplicit);
    if (s->capturing && s->capturing != capture)
      return breaks(*capture, breaks(*s->capturing, cudaErrorStreamCaptureMerge));
    s->capturing = capture;  // it is captured with the others from now on
    capture->wait(s, e->mark->place);
    return cudaSuccess;
  }
  if (s && s->capturing && e->mark->stream)
    return breaks(*s->capturing, cudaErrorStreamCaptureIsolation);
  return enqueue(s, [mark = e->mark] {
    if (mark->stream && !mark->passed) run_waiting(*mark->stream, mark.get());
    return mark->stream && !mark->passed ? cudaErrorNotReady : cudaSuccess;
  });
}
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) {
  *p = n == 0 ? nullptr : std::malloc(n);
  if (*p != nullptr) rt().pinned[static_cast<const u8*>(*p)] = n;
  return *p != nullptr || n == 0 ? cudaSuccess : said(cudaErrorMemoryAllocation);
}
cudaError_t cudaMallocHost(void** p, size_t n) { return cudaHostAlloc(p, n, 0); }
cudaError_t cudaFreeHost(void* p) {
  run_all_waiting(false);
  rt().pinned.erase(static_cast<const u8*>(p));
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  e->mark = std::make_shared<Mark>();
  e->mark->stream = s;
  if (s && s->capturing) {
    e->mark->capture = s->capturing;
    e->mark->place = s->capturing->place(s);
    return cudaSuccess;
  }
  return enqueue(s, [mark = e->mark] {
    mark->passed = true;
    mark->at = std::chrono::steady_clock::now();
    return cudaSuccess;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  if (e->mark->capture) return breaks(*e->mark->capture, cudaErrorCapturedEvent);
  if (e->mark->stream && !e->mark->passed) wait_for(*e->mark->stream, e->mark.get());
  return said(rt().sticky);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  if (e->mark->capture) return breaks(*e->mark->capture, cudaErrorCapturedEvent);
  run_all_waiting(false);
  if (rt().sticky != cudaSuccess) return said(rt().sticky);
  return e->mark->stream && !e->mark->passed ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  *ms = std::chrono::duration<float, std::milli>(b->mark->at - a->mark->at).count();
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t e = rt().last;
  rt().last = cudaSuccess;
  return e;
}
cudaError_t cudaPeekAtLastError() { return rt().last; }
const char* cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    default: return "a CUDA error";
  }
}
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }

}  // extern "C"
