// SPDX-License-Identifier: MIT
// What the runtime's functions share: the machine, its modules, streams and events, and the queue of work.
#pragma once
#include <cuda_runtime_api.h>

#include <chrono>
#include <deque>
#include <memory>
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

/// The machine that programs see.
struct Pretended {
  int devices = std::getenv("PTXRUN_DEVICES") ? std::atoi(std::getenv("PTXRUN_DEVICES")) : 1;
  int major = 9, minor = 0;
  u64 memory = std::getenv("PTXRUN_MEMORY")
                   ? std::strtoull(std::getenv("PTXRUN_MEMORY"), nullptr, 0)
                   : arena_size;
  bool old_driver = std::getenv("PTXRUN_DRIVER") != nullptr;
  Pretended() {
    if (const char* text = std::getenv("PTXRUN_CAPABILITY"))
      std::sscanf(text, "%d.%d", &major, &minor);
  }
};

struct LoadedModule {
  Module module;
  int target = 0;  // of its PTX: 80 for sm_80
  std::string_view ptx;
  std::map<std::string, u64> symbols;
  std::map<std::string, Kernel> kernels;
};

struct Runtime {
  Machine machine;
  std::deque<LoadedModule> modules;
  std::map<const void*, std::pair<LoadedModule*, std::string>> functions;
  std::vector<std::array<u64, 8>> configurations;
  std::map<const void*, u64> dynamic_shared;  // allowed, where more than is always
  std::map<u64, int> device_of;               // by allocation
  cudaError_t last = cudaSuccess, sticky = cudaSuccess;
  bool global_capture = false;
  int device = 0;  // the current one
  const bool late = std::getenv("PTXRUN_LATE") != nullptr;
  std::set<CUstream_st*> streams;
  std::map<const u8*, u64> pinned;  // bytes of page-locked host memory, by address
  std::mt19937_64 graph_order{machine.settings.seed};
  Pretended pretended;

  Runtime();
  ~Runtime() {
    if (std::getenv("PTXRUN_STATS")) statistics();
    if (machine.problems != 0) {
      std::fprintf(stderr, "ptxrun: %d problems\n", machine.problems);
      std::fflush(nullptr);
      std::_Exit(86);
    }
  }
  void statistics();
};
Runtime& rt();

/// Keeps an error as the last one.
cudaError_t said(cudaError_t e);

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

/// Whether the machine that is pretended has code of the module.
bool runs_here(const LoadedModule& m);
/// Of shared memory, as a kernel declares it.
u64 shared_bytes_of(LoadedModule& m, const std::string& name);
/// Shared memory that the machine gives a block.
constexpr u64 most_shared = 227 * 1024;

}  // namespace ptxrun
