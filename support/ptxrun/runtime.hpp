// SPDX-License-Identifier: MIT
// What the runtime's functions share: the machine, its modules, streams and events, and the queue of work.
#pragma once
#include <cuda_runtime_api.h>

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <set>

#include "capture.hpp"
#include "host.hpp"
#include "machine.hpp"

struct CUgraphExec_st {
  CUgraph_st graph;
  ptxrun::u64 memory = 0;  ///< on the device, once uploaded
};

namespace ptxrun {

/// A place in a stream that an event was recorded at.
struct Mark {
  CUstream_st* stream = nullptr;
  bool passed = false;
  std::shared_ptr<Capture> capture{};  ///< if it was one of those that are captured
  Capture::Place place{};
  std::chrono::steady_clock::time_point at;
};

}  // namespace ptxrun

struct CUstream_st {
  bool blocking;  ///< on the default stream, and that on it
  int device = 0;
  std::shared_ptr<ptxrun::Capture> capturing{};
  std::deque<std::function<cudaError_t()>>
      waiting{};  ///< with PTXRUN_LATE, or behind what is not ready
};
struct CUevent_st {
  std::shared_ptr<ptxrun::Mark> mark = std::make_shared<ptxrun::Mark>();
};

namespace ptxrun {

/// Shared memory that the machine gives a block, unless told otherwise.
constexpr u64 most_shared = 227 * 1024;

/// The machine that programs see.
struct Pretended {
  int devices = std::getenv("PTXRUN_DEVICES") ? std::atoi(std::getenv("PTXRUN_DEVICES")) : 1;
  int major = 9, minor = 0;
  u64 memory = std::getenv("PTXRUN_MEMORY")
                   ? std::strtoull(std::getenv("PTXRUN_MEMORY"), nullptr, 0)
                   : arena_size;
  u64 shared = std::getenv("PTXRUN_SHARED")
                   ? std::strtoull(std::getenv("PTXRUN_SHARED"), nullptr, 0)
                   : most_shared;  // memory of a block
  bool old_driver = std::getenv("PTXRUN_DRIVER") != nullptr;
  Pretended() {
    if (const char* text = std::getenv("PTXRUN_CAPABILITY"))
      std::sscanf(text, "%d.%d", &major, &minor);
  }
};

/// When work of a stream is done: at once; when somebody waits for it; the default stream's, too; and besides, at any
/// call a stream may have come further, by a chance that PTXRUN_SEED draws.
enum class Late { no, streams, all, random };
inline Late late_by_environment() {
  const char* const text = std::getenv("PTXRUN_LATE");
  const std::string how = text ? text : "";
  return text == nullptr   ? Late::no
         : how == "all"    ? Late::all
         : how == "random" ? Late::random
                           : Late::streams;
}

struct LoadedModule {
  Module module;
  int target = 0;        // of its PTX: 80 for sm_80
  std::string_view ptx;  // empty: there is machine code alone
  std::map<std::string, u64> symbols;
  std::map<std::string, Kernel> kernels;
};

struct Runtime {
  Machine machine;
  std::deque<LoadedModule> modules;
  std::map<const void*, std::pair<LoadedModule*, std::string>> functions;
  std::map<const void*, u64> dynamic_shared;  // allowed, where more than is always
  std::map<u64, int> device_of;               // by allocation
  // A thread's own: the last error, the current device, what it may call during a capture, launches between <<<>>> and
  // the call.
  static inline thread_local cudaError_t last = cudaSuccess;
  static inline thread_local int device = 0;
  static inline thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  static inline thread_local std::vector<std::array<u64, 8>> configurations;
  cudaError_t sticky = cudaSuccess;
  bool global_capture = false;
  const Late late = late_by_environment();
  std::set<CUstream_st*> streams;
  std::map<int, CUstream_st*> default_streams;  // by device, if they are late
  std::mt19937_64 progress{machine.settings.seed};
  std::recursive_mutex mutex;
  int turns = 0;   // calls within each other
  long waits = 0;  // calls in which the host waited for the device
  // Between events, if not 0; and the time of the last one.
  std::chrono::duration<double> event_tick{0}, event_time{0};
  bool counts_written = true;  // otherwise memory counts as written from its allocation on
  std::mt19937_64 graph_order{machine.settings.seed};
  Pretended pretended;

  Runtime();
  /// When the process ends.
  void report() {
    if (std::getenv("PTXRUN_STATS")) statistics();
    if (machine.problems != 0) {
      std::fprintf(stderr, "ptxrun: %d problems\n", machine.problems);
      std::fflush(nullptr);
      std::_Exit(86);
    }
  }
  void statistics();
};
/// Never destroyed: threads of a program may outlive static objects.
Runtime& rt();

/// A call of the runtime: one thread at a time. With PTXRUN_LATE=random, streams may have come further.
class Turn {
 public:
  Turn();
  ~Turn() { --rt().turns; }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::lock_guard<std::recursive_mutex> lock_{rt().mutex};
};

/// Keeps an error as the last one.
cudaError_t said(cudaError_t e);

/// Where work for `stream` waits: null is the default stream, which is at once unless it is late.
cudaStream_t queue_of(cudaStream_t stream);
/// Does the next piece of work that waits in a stream, if there is one.
void come_further(CUstream_st& stream);
/// Runs what waits in a stream, until the mark is passed if one is given, or something is not ready.
void run_waiting(CUstream_st& stream, const Mark* until = nullptr);
void run_all_waiting(bool blocking_only);
/// Runs what waits in a stream until the mark is passed, or nothing waits. What is not ready is tried again, and so are
/// all streams: some of them may send what it waits for.
void wait_for(CUstream_st& stream, const Mark* until = nullptr);

/// For calls that must not be made while a stream is captured: that capture comes to nothing.
cudaError_t breaks(Capture& capture, cudaError_t why);
/// Of those that wait for all, or for memory.
cudaError_t breaks_all();

bool on_device(const void* p);
/// Host memory as it is; device memory where it is kept. Null where n bytes are not there.
u8* bytes_at(const void* p, size_t n, bool writes);
bool page_locked(const void* p);
cudaError_t copy(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t stream);

/// `ptx` is kept by the caller.
LoadedModule& load_module(std::string_view ptx);
/// PTX, as text or in a fat binary; null: machine code alone.
LoadedModule* load_image(const void* image);
/// Whether the machine that is pretended has code of the module.
bool runs_here(const LoadedModule& m);
/// Of shared memory, as a kernel declares it.
u64 shared_bytes_of(LoadedModule& m, const std::string& name);

}  // namespace ptxrun
