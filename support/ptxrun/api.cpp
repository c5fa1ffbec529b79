// SPDX-License-Identifier: MIT
// The CUDA runtime's functions on an executor of PTX: link it instead of cudart.
//
//     nvcc -arch=compute_80 -code=compute_80 --no-compress --cudart=none -lineinfo … ptxrun.o
//
// Environment: PTXRUN_RACES=1 finds races; PTXRUN_ORDER=ascending|descending|random,
// PTXRUN_SEED=n, PTXRUN_QUANTUM=n (warps take turns of random lengths up to 2n instructions);
// PTXRUN_LATE=1 runs what a stream was given when somebody waits for it, and not before; PTXRUN_LATE=all the default
// stream's work, too; with PTXRUN_LATE=random any stream may come further at any call (by PTXRUN_SEED);
// PTXRUN_STATS=1 prints counts of every kernel. The exit status is 86 where a problem was found.
// The machine is one device of compute capability 9.0 with 32 GiB, unless PTXRUN_DEVICES=n,
// PTXRUN_CAPABILITY=major.minor, PTXRUN_MEMORY=bytes, PTXRUN_SHARED=bytes or PTXRUN_DRIVER=old say otherwise.
#include "runtime.hpp"

using namespace ptxrun;

extern "C" {

cudaError_t cudaGetDeviceCount(int* n) {
  const Turn turn;
  *n = 0;
  if (rt().pretended.old_driver) return said(cudaErrorInsufficientDriver);
  if (rt().pretended.devices == 0) return said(cudaErrorNoDevice);
  *n = rt().pretended.devices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) {
  const Turn turn;
  if (d < 0 || d >= rt().pretended.devices) return said(cudaErrorInvalidDevice);
  rt().device = d;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* d) {
  const Turn turn;
  if (rt().pretended.devices == 0) return said(cudaErrorNoDevice);
  *d = rt().device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int) {
  const Turn turn;
  switch (what) {
    case cudaDevAttrComputeCapabilityMajor: *value = rt().pretended.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = rt().pretended.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(rt().pretended.shared);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 228 << 10; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = 32; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrL2CacheSize: *value = 50 << 20; break;
    case cudaDevAttrClockRate: *value = 1980000; break;
    case cudaDevAttrMemoryClockRate: *value = 2619000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = 5120; break;
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrHostRegisterReadOnlySupported: *value = 0; break;
    default: return said(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Turn turn;
  *total = rt().pretended.memory;
  *free = *total - rt().machine.memory.used();
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* p) {
  const Turn turn;
  std::memset(found, 0, sizeof *found);
  found->type = cudaMemoryTypeUnregistered;
  found->device = -1;
  if (page_locked(p)) {
    found->type = cudaMemoryTypeHost;
    found->device = rt().device;
    found->devicePointer = found->hostPointer = const_cast<void*>(p);
    return cudaSuccess;
  }
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
  const Turn turn;
  *d = s ? s->device : rt().device;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void* function) {
  const Turn turn;
  std::memset(found, 0, sizeof *found);
  const auto it = rt().functions.find(function);
  if (it == rt().functions.end()) return said(cudaErrorInvalidDeviceFunction);
  if (!runs_here(*it->second.first)) return said(cudaErrorNoKernelImageForDevice);
  found->ptxVersion = it->second.first->target;
  found->sharedSizeBytes = shared_bytes_of(*it->second.first, it->second.second);
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute what, int value) {
  const Turn turn;
  const auto it = rt().functions.find(function);
  if (it == rt().functions.end()) return said(cudaErrorInvalidDeviceFunction);
  if (what != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<u64>(value) + shared_bytes_of(*it->second.first, it->second.second) >
          rt().pretended.shared)
    return said(cudaErrorInvalidValue);
  rt().dynamic_shared[function] = static_cast<u64>(value);
  rt().last =
      cudaSuccess;  // as on a GPU, where this function alone clears the last error though it succeeds
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int d) {
  const Turn turn;
  if (d < 0 || d >= rt().pretended.devices) return said(cudaErrorInvalidDevice);
  std::memset(static_cast<void*>(p), 0, sizeof *p);
  std::strcpy(p->name, "ptxrun, no GPU");
  p->major = rt().pretended.major, p->minor = rt().pretended.minor;
  p->totalGlobalMem = rt().pretended.memory;
  p->sharedMemPerBlock = 48 << 10, p->sharedMemPerMultiprocessor = 228 << 10;
  p->sharedMemPerBlockOptin = rt().pretended.shared, p->reservedSharedMemPerBlock = 1024;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32, p->multiProcessorCount = 132;
  p->maxThreadsPerBlock = 1024, p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = 32;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7FFFFFFF, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536, p->textureAlignment = 512, p->memPitch = 0x7FFFFFFF;
  p->l2CacheSize = 50 << 20, p->memoryBusWidth = 5120, p->asyncEngineCount = 3;
  p->unifiedAddressing = p->concurrentKernels = p->canMapHostMemory = 1;
  p->streamPrioritiesSupported = 1;
  p->pciBusID = 1 + d;
  std::memset(&p->uuid, 0x40 + d, sizeof p->uuid);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const Turn turn;
  if (rt().global_capture) return breaks_all();
  ++rt().waits;
  for (CUstream_st* stream : rt().streams) wait_for(*stream);
  return said(rt().sticky);
}
cudaError_t cudaMalloc(void** p, size_t n) {
  const Turn turn;
  *p = nullptr;
  if (rt().global_capture && rt().capture_mode != cudaStreamCaptureModeRelaxed) return breaks_all();
  if (n > rt().pretended.memory - rt().machine.memory.used())
    return said(cudaErrorMemoryAllocation);
  *p = reinterpret_cast<void*>(n == 0 ? 0 : rt().machine.memory.allocate(n));
  if (*p) rt().device_of[reinterpret_cast<u64>(*p)] = rt().device;
  if (*p && !rt().counts_written)
    std::memset(rt().machine.memory.known(reinterpret_cast<u64>(*p)), 1, n);
  return *p || n == 0 ? cudaSuccess : said(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* p) {
  const Turn turn;
  if (!p) return cudaSuccess;
  run_all_waiting(false);
  return rt().machine.memory.release(reinterpret_cast<u64>(p)) ? cudaSuccess
                                                               : said(cudaErrorInvalidValue);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind,
                            cudaStream_t s) {
  const Turn turn;
  return copy(to, from, n, kind, s);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
  const Turn turn;
  return copy(to, from, n, kind, nullptr);
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t n, cudaStream_t stream) {
  const Turn turn;
  return enqueue(stream, [=] {
    u8* const at = bytes_at(p, n, true);
    if (!on_device(p) || !at) return cudaErrorInvalidValue;
    std::memset(at, value, n);
    return cudaSuccess;
  });
}
cudaError_t cudaMemset(void* p, int value, size_t n) {
  const Turn turn;
  return cudaMemsetAsync(p, value, n, nullptr);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  const Turn turn;
  *s = new CUstream_st{flags == 0, rt().device};
  rt().streams.insert(*s);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  const Turn turn;
  if (s && s->capturing) return breaks(*s->capturing, cudaErrorStreamCaptureUnsupported);
  if (s) wait_for(*s);
  rt().streams.erase(s);
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  const Turn turn;
  if (s && s->capturing) return breaks(*s->capturing, cudaErrorStreamCaptureUnsupported);
  ++rt().waits;
  if (!s) run_all_waiting(true);
  if (const cudaStream_t queue = queue_of(s)) wait_for(*queue);
  return said(rt().sticky);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  const Turn turn;
  if (!s || s->capturing) return said(cudaErrorStreamCaptureUnsupported);
  s->capturing = std::make_shared<Capture>(s);
  rt().global_capture = true;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* is) {
  const Turn turn;
  *is = !s || !s->capturing    ? cudaStreamCaptureStatusNone
        : s->capturing->broken ? cudaStreamCaptureStatusInvalidated
                               : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* g) {
  const Turn turn;
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
  const Turn turn;
  *e = new CUgraphExec_st{*g};
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t e, cudaStream_t) {
  const Turn turn;
  if (e->memory == 0) e->memory = rt().machine.memory.allocate(512 * (e->graph.nodes.size() + 1));
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
  const Turn turn;
  for (const std::size_t n : order_of(e->graph, rt().machine.settings.order, rt().graph_order))
    if (const cudaError_t status = enqueue(s, e->graph.nodes[n].run); status != cudaSuccess)
      return status;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) {
  const Turn turn;
  if (e->memory != 0) rt().machine.memory.release(e->memory);
  delete e;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
  const Turn turn;
  delete g;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* e) {
  const Turn turn;
  *e = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  const Turn turn;
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
  const Turn turn;
  *p = n == 0 ? nullptr : std::malloc(n);
  if (*p != nullptr) rt().machine.memory.pinned[reinterpret_cast<u64>(*p)] = n;
  return *p != nullptr || n == 0 ? cudaSuccess : said(cudaErrorMemoryAllocation);
}
cudaError_t cudaMallocHost(void** p, size_t n) { return cudaHostAlloc(p, n, 0); }
cudaError_t cudaFreeHost(void* p) {
  const Turn turn;
  run_all_waiting(false);
  rt().machine.memory.pinned.erase(reinterpret_cast<u64>(p));
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  const Turn turn;
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  const Turn turn;
  e->mark = std::make_shared<Mark>();
  e->mark->stream = queue_of(s);
  if (s && s->capturing) {
    e->mark->capture = s->capturing;
    e->mark->place = s->capturing->place(s);
    return cudaSuccess;
  }
  return enqueue(s, [mark = e->mark] {
    mark->passed = true;
    using Clock = std::chrono::steady_clock;
    const auto ticked = rt().event_time += rt().event_tick;
    mark->at = rt().event_tick.count() == 0
                   ? Clock::now()
                   : Clock::time_point(std::chrono::duration_cast<Clock::duration>(ticked));
    return cudaSuccess;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  const Turn turn;
  if (e->mark->capture) return breaks(*e->mark->capture, cudaErrorCapturedEvent);
  ++rt().waits;
  if (e->mark->stream && !e->mark->passed) wait_for(*e->mark->stream, e->mark.get());
  return said(rt().sticky);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  const Turn turn;
  if (e->mark->capture) return breaks(*e->mark->capture, cudaErrorCapturedEvent);
  if (rt().late < Late::all) run_all_waiting(false);
  if (rt().sticky != cudaSuccess) return said(rt().sticky);
  if (!e->mark->stream || e->mark->passed) return cudaSuccess;
  come_further(*e->mark->stream);  // whoever asks again and again gets there
  return cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  const Turn turn;
  *ms = std::chrono::duration<float, std::milli>(b->mark->at - a->mark->at).count();
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const Turn turn;
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
