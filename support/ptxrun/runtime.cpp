// SPDX-License-Identifier: MIT
// Streams, the queue of their work, and copies.
#include "runtime.hpp"

#include <signal.h>

#include <thread>

namespace ptxrun {
namespace {

/// The host's code has touched an address that is nothing to it: a device's, or any other.
void host_fault(int signal_number, siginfo_t* info, void*) {
  const u64 at = reinterpret_cast<u64>(info->si_addr);
  if (Memory::in_arena(at)) {
    std::fprintf(stderr, "ptxrun: the host touches device memory: %s\nptxrun: %d problems\n",
                 rt().machine.memory.describe(at).c_str(), ++rt().machine.problems);
    std::fflush(nullptr);
    std::_Exit(86);
  }
  signal(signal_number, SIG_DFL);  // and again, as without us
}

}  // namespace

Runtime& rt() {
  static Runtime* const r = new Runtime;
  static const struct AtExit {
    ~AtExit() { r->report(); }
  } at_exit;
  return *r;
}

Turn::Turn() {
  Runtime& r = rt();
  if (r.turns++ != 0 || r.late != Late::random || r.progress() % 4 != 0) return;
  std::vector<CUstream_st*> order(r.streams.begin(), r.streams.end());
  std::shuffle(order.begin(), order.end(), r.progress);
  for (CUstream_st* const stream : order)
    while (!stream->waiting.empty() && r.progress() % 2 == 0) come_further(*stream);
}

Runtime::Runtime() {
  struct sigaction action {};
  action.sa_sigaction = host_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}
cudaError_t said(cudaError_t e) {
  if (e != cudaSuccess) rt().last = e;
  return e;
}

cudaStream_t queue_of(cudaStream_t stream) {
  if (stream || rt().late < Late::all) return stream;
  CUstream_st*& own = rt().default_streams[rt().device];
  if (!own) rt().streams.insert(own = new CUstream_st{false, rt().device});
  return own;
}

namespace {

/// Whether the first piece of work was ready.
bool do_next(CUstream_st& stream) {
  const auto work = std::move(stream.waiting.front());
  stream.waiting.pop_front();
  if (rt().sticky != cudaSuccess) return true;
  const cudaError_t status = work();
  if (status == cudaErrorNotReady) stream.waiting.push_front(work);
  else said(status);
  return status != cudaErrorNotReady;
}

}  // namespace

void come_further(CUstream_st& stream) {
  if (!stream.waiting.empty()) do_next(stream);
}
void run_waiting(CUstream_st& stream, const Mark* until) {
  while (!stream.waiting.empty() && !(until && until->passed))
    if (!do_next(stream)) return;
}
void run_all_waiting(bool blocking_only) {
  for (CUstream_st* stream : rt().streams)
    if (stream->blocking || !blocking_only) run_waiting(*stream);
}

void wait_for(CUstream_st& stream, const Mark* until) {
  for (run_waiting(stream, until); !stream.waiting.empty() && !(until && until->passed);
       run_waiting(stream, until)) {
    run_all_waiting(false);
    std::this_thread::yield();
  }
}

cudaError_t enqueue(cudaStream_t given, std::function<cudaError_t()> work) {
  const Turn turn;
  if (rt().sticky != cudaSuccess) return said(rt().sticky);
  const cudaStream_t stream = queue_of(given);
  if (stream && stream->capturing) {
    stream->capturing->add(stream, std::move(work));
    return cudaSuccess;
  }
  if (!given && rt().global_capture) return said(cudaErrorStreamCaptureImplicit);
  // The default stream's work and that of streams that wait for it are done in the order of the calls.
  if (given != stream) run_all_waiting(true);
  if (stream && stream->blocking)
    for (const auto& [device, own] : rt().default_streams) run_waiting(*own);
  if (stream && (rt().late != Late::no || !stream->waiting.empty())) {
    stream->waiting.push_back(std::move(work));
    return cudaSuccess;
  }
  run_all_waiting(true);  // the default stream waits for these, and for no others
  const cudaError_t status = work();
  if (stream && status == cudaErrorNotReady) {
    stream->waiting.push_back(std::move(work));
    return cudaSuccess;
  }
  return said(status);
}

cudaError_t breaks(Capture& capture, cudaError_t why) {
  capture.broken = true;
  return said(why);
}
cudaError_t breaks_all() {
  for (CUstream_st* stream : rt().streams)
    if (stream->capturing) stream->capturing->broken = true;
  return said(cudaErrorStreamCaptureUnsupported);
}

bool on_device(const void* p) { return Memory::in_arena(reinterpret_cast<u64>(p)); }
u8* bytes_at(const void* p, size_t n, bool writes) {
  if (!on_device(p)) return const_cast<u8*>(static_cast<const u8*>(p));
  const u64 a = reinterpret_cast<u64>(p);
  Memory& m = rt().machine.memory;
  if (n != 0 && !m.holding(a, n)) return nullptr;
  if (writes) std::memset(m.known(a), 1, n);
  return m.store(a);
}
bool page_locked(const void* p) {
  return rt().machine.memory.is_pinned(reinterpret_cast<u64>(p), 1);
}
cudaError_t copy(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t stream) {
  const bool d = on_device(to), s = on_device(from);
  if (kind != cudaMemcpyDefault &&
      (d != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
       s != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)))
    return said(cudaErrorInvalidMemcpyDirection);
  // Host memory that can be paged is read before the call returns, and nothing else is.
  std::shared_ptr<std::vector<u8>> staged;
  if (rt().late != Late::no && !s && !page_locked(from) && !(stream && stream->capturing))
    staged = std::make_shared<std::vector<u8>>(static_cast<const u8*>(from),
                                               static_cast<const u8*>(from) + n);
  return enqueue(stream, [=] {
    if (n == 0) return cudaSuccess;
    u8* const t = bytes_at(to, n, true);
    const u8* const f = staged ? staged->data() : bytes_at(from, n, false);
    if (!t || !f) return cudaErrorInvalidValue;
    if (s && !d) {
      const u8* known = rt().machine.memory.known(reinterpret_cast<u64>(from));
      if (const void* const gap = std::memchr(known, 0, n)) {
        const u64 i = static_cast<u64>(static_cast<const u8*>(gap) - known);
        if (rt().machine.problems++ < 40)
          std::fprintf(stderr, "ptxrun: copies what nobody has written to the host: %s\n",
                       rt().machine.memory.describe(reinterpret_cast<u64>(from) + i).c_str());
      }
    }
    std::memmove(t, f, n);
    return cudaSuccess;
  });
}

u8* device_bytes(const void* p, u64 n, bool writes, const char* who) {
  const Turn turn;
  u8* const at = on_device(p) ? bytes_at(p, n, writes) : nullptr;
  const u64 a = reinterpret_cast<u64>(p);
  if (at == nullptr) {
    if (rt().machine.problems++ < 40)
      std::fprintf(stderr, "ptxrun: %s: %llu bytes are not device memory: %s\n", who,
                   static_cast<unsigned long long>(n), rt().machine.memory.describe(a).c_str());
    return nullptr;
  }
  const u8* known = rt().machine.memory.known(a);
  for (u64 i = 0; i < n && !writes; ++i)
    if (!known[i]) {
      if (rt().machine.problems++ < 40)
        std::fprintf(stderr, "ptxrun: %s: reads what nobody has written: %s\n", who,
                     rt().machine.memory.describe(a + i).c_str());
      break;
    }
  return at;
}

}  // namespace ptxrun
