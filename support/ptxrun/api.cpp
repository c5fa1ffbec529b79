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
#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <signal.h>

#include <chrono>
#include <deque>
#include <memory>
#include <set>

#include "capture.hpp"
#include "counters.hpp"
#include "host.hpp"
#include "run.hpp"

using namespace ptxrun;

struct CUgraphExec_st {
  CUgraph_st graph;
};
/// A place in a stream that an event was recorded at.
struct Mark {
  CUstream_st* stream = nullptr;
  bool passed = false;
  std::shared_ptr<Capture> capture{};  ///< if it was one of those that are captured
  Capture::Place place{};
  std::chrono::steady_clock::time_point at;
};
struct CUstream_st {
  bool blocking;  ///< on the default stream, and that on it
  int device = 0;
  std::shared_ptr<Capture> capturing{};
  std::deque<std::function<cudaError_t()>> waiting{};  ///< with PTXRUN_LATE
};
struct CUevent_st {
  std::shared_ptr<Mark> mark = std::make_shared<Mark>();
};

namespace {

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
Runtime& rt() {
  static Runtime r;
  return r;
}

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

std::string demangled(const std::string& name) {
  int status = 0;
  char* d = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string out = status == 0 ? d : name;
  std::free(d);
  return out;
}

/// Runs what waits in a stream, until the mark is passed if one is given.
void run_waiting(CUstream_st& stream, const Mark* until = nullptr) {
  while (!stream.waiting.empty() && !(until && until->passed)) {
    const auto work = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    if (rt().sticky == cudaSuccess) said(work());
  }
}
void run_all_waiting(bool blocking_only) {
  for (CUstream_st* stream : rt().streams)
    if (stream->blocking || !blocking_only) run_waiting(*stream);
}

/// Does it now or when somebody waits for it, or records it.
cudaError_t queue(cudaStream_t stream, std::function<cudaError_t()> work) {
  if (rt().sticky != cudaSuccess) return said(rt().sticky);
  if (stream && stream->capturing) {
    stream->capturing->add(stream, std::move(work));
    return cudaSuccess;
  }
  if (!stream && rt().global_capture) return said(cudaErrorStreamCaptureImplicit);
  if (stream && rt().late) {
    stream->waiting.push_back(std::move(work));
    return cudaSuccess;
  }
  run_all_waiting(true);  // the default stream waits for these, and for no others
  return said(work());
}

/// For calls that must not be made while a stream is captured: that capture comes to nothing.
cudaError_t breaks(Capture& capture, cudaError_t why) {
  capture.broken = true;
  return said(why);
}
/// Of those that wait for all, or for memory.
cudaError_t breaks_all() {
  for (CUstream_st* stream : rt().streams)
    if (stream->capturing) stream->capturing->broken = true;
  return said(cudaErrorStreamCaptureUnsupported);
}

/// PTX in a fat binary, uncompressed.
void load_fat_binary(const u8* data, LoadedModule& to) {
  u16 header = 0;
  u64 size = 0;
  std::memcpy(&header, data + 6, 2), std::memcpy(&size, data + 8, 8);
  const u8* at = data + header;
  const u8* const end = at + size;
  while (at < end) {
    u16 kind = 0;
    u32 head = 0;
    u64 bytes = 0, flags = 0;
    std::memcpy(&kind, at, 2), std::memcpy(&head, at + 4, 4), std::memcpy(&bytes, at + 8, 8);
    std::memcpy(&flags, at + 40, 8);
    if (kind == 1) {
      const std::string_view text(reinterpret_cast<const char*>(at + head), bytes);
      if (text.find(".version") == std::string_view::npos)
        throw std::runtime_error("ptxrun: compressed PTX: build with nvcc --no-compress");
      const std::size_t target = text.find(".target sm_");
      if (target != std::string_view::npos) to.target = std::atoi(text.data() + target + 11);
      to.ptx = text;
      to.module = Parser(text).run();
      return;
    }
    at += head + bytes;
  }
  throw std::runtime_error("ptxrun: no PTX in the program: build with -code=compute_NN");
}

[[noreturn]] void give_up(const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  std::_Exit(87);
}

bool runs_here(const LoadedModule& m) {
  return m.target <= 10 * rt().pretended.major + rt().pretended.minor;
}

cudaError_t launch(const void* function, dim3 grid, dim3 block, void** args, size_t dynamic,
                   cudaStream_t stream) {
  const auto it = rt().functions.find(function);
  if (it == rt().functions.end()) return said(cudaErrorInvalidDeviceFunction);
  LoadedModule& m = *it->second.first;
  if (!runs_here(m)) return said(cudaErrorNoKernelImageForDevice);
  try {
    auto [k, fresh] = m.kernels.try_emplace(it->second.second);
    if (fresh) {
      const auto f = m.module.functions.find(it->second.second);
      if (f == m.module.functions.end()) return said(cudaErrorInvalidDeviceFunction);
      k->second = Decoder(m.module, f->second, m.symbols).run();
      k->second.shown = demangled(it->second.second);
    }
    Kernel& kernel = k->second;
    const u64 threads = u64{block.x} * block.y * block.z;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || threads > 1024 ||
        grid.y > 65535 || grid.z > 65535 || grid.x > 0x7FFFFFFF ||
        threads > static_cast<u64>(kernel.function->max_threads))
      return said(cudaErrorInvalidConfiguration);
    // Above 48 KiB a kernel must have been told (cudaFuncSetAttribute).
    const auto allowed = rt().dynamic_shared.find(function);
    const u64 most = allowed == rt().dynamic_shared.end() ? 48 * 1024 : allowed->second;
    if (dynamic > most || kernel.shared_bytes + dynamic > 227 * 1024)
      return said(cudaErrorInvalidValue);
    std::vector<u8> parameters(kernel.param_bytes);
    for (std::size_t i = 0; i < kernel.params.size(); ++i)
      std::memcpy(parameters.data() + kernel.params[i].offset, args[i], kernel.params[i].size);
    return queue(stream, [&kernel, grid, block, dynamic, parameters] {
      const u32 g[3] = {grid.x, grid.y, grid.z}, b[3] = {block.x, block.y, block.z};
      try {
        rt().machine.launch(kernel, g, b, dynamic, parameters);
      } catch (const Fault&) {
        return rt().sticky = cudaErrorIllegalAddress;
      }
      return cudaSuccess;
    });
  } catch (const std::exception& e) {
    give_up(e);
  }
}

bool on_device(const void* p) { return Memory::in_arena(reinterpret_cast<u64>(p)); }
/// Host memory as it is; device memory where it is kept. Null where n bytes are not there.
u8* bytes_at(const void* p, size_t n, bool writes) {
  if (!on_device(p)) return const_cast<u8*>(static_cast<const u8*>(p));
  const u64 a = reinterpret_cast<u64>(p);
  Memory& m = rt().machine.memory;
  if (n != 0 && !m.holding(a, n)) return nullptr;
  if (writes) std::memset(m.known(a), 1, n);
  return m.store(a);
}
bool page_locked(const void* p) {
  const auto* const at = static_cast<const u8*>(p);
  const auto after = rt().pinned.upper_bound(at);
  if (after == rt().pinned.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return at < begin + bytes;
}
cudaError_t copy(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t stream) {
  const bool d = on_device(to), s = on_device(from);
  if (kind != cudaMemcpyDefault &&
      (d != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
       s != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)))
    return said(cudaErrorInvalidMemcpyDirection);
  // Host memory that can be paged is read before the call returns, and nothing else is.
  std::shared_ptr<std::vector<u8>> staged;
  if (rt().late && !s && !page_locked(from) && !(stream && stream->capturing))
    staged = std::make_shared<std::vector<u8>>(static_cast<const u8*>(from),
                                               static_cast<const u8*>(from) + n);
  return queue(stream, [=] {
    if (n == 0) return cudaSuccess;
    u8* const t = bytes_at(to, n, true);
    const u8* const f = staged ? staged->data() : bytes_at(from, n, false);
    if (!t || !f) return cudaErrorInvalidValue;
    if (s && !d) {
      const u8* known = rt().machine.memory.known(reinterpret_cast<u64>(from));
      for (size_t i = 0; i < n; ++i)
        if (!known[i]) {
          if (rt().machine.problems++ < 40)
            std::fprintf(stderr, "ptxrun: copies what nobody has written to the host: %s\n",
                         rt().machine.memory.describe(reinterpret_cast<u64>(from) + i).c_str());
          break;
        }
    }
    std::memmove(t, f, n);
    return cudaSuccess;
  });
}

void Runtime::statistics() {
  std::fprintf(stderr, "%-9s %-7s %-12s %-6s %-9s %-9s %-9s %-9s %-7s %-7s kernel\n", "launches",
               "blocks", "warp instr", "lanes", "ld MB", "sector/B", "st MB", "sector/B", "confl.",
               "barrier");
  for (const LoadedModule& m : modules)
    for (const auto& [name, k] : m.kernels) {
      const auto over = [](u64 sectors, u64 bytes) {
        return bytes == 0 ? 0.0 : static_cast<double>(sectors) * 32 / static_cast<double>(bytes);
      };
      std::fprintf(
          stderr, "%-9llu %-7llu %-12llu %-6.1f %-9.3f %-9.2f %-9.3f %-9.2f %-7.2f %-7.1f %s\n",
          (unsigned long long)k.launches, (unsigned long long)k.blocks,
          (unsigned long long)k.warp_instructions,
          k.warp_instructions ? double(k.lane_instructions) / double(k.warp_instructions) : 0,
          double(k.bytes[0]) / 1e6, over(k.sectors[0], k.bytes[0]), double(k.bytes[1]) / 1e6,
          over(k.sectors[1], k.bytes[1]),
          k.shared_ideal ? double(k.shared_passes) / double(k.shared_ideal) : 0,
          k.blocks ? double(k.barriers) / double(k.blocks) : 0, k.shown.c_str());
      if (const char* one = std::getenv("PTXRUN_HISTOGRAM");
          one && k.shown.find(one) != std::string::npos) {
        std::map<std::string, u64> by_op;
        std::map<std::string, u64> by_line;
        for (std::size_t i = 0; i < k.code.size(); ++i) {
          by_op[k.code[i].st->op] += k.executed[i];
          const auto f = k.module->files.find(k.code[i].st->file);
          if (f != k.module->files.end())
            by_line[f->second.substr(f->second.rfind('/') + 1) + ":" +
                    std::to_string(k.code[i].st->source)] += k.executed[i];
        }
        for (const auto* map : {&by_op, &by_line}) {
          std::vector<std::pair<u64, std::string>> sorted;
          for (const auto& [what, n] : *map) sorted.push_back({n, what});
          std::sort(sorted.rbegin(), sorted.rend());
          for (std::size_t i = 0; i < sorted.size() && i < 30; ++i)
            std::fprintf(stderr, "    %12llu %5.1f%% %s\n", (unsigned long long)sorted[i].first,
                         100.0 * double(sorted[i].first) / double(k.warp_instructions),
                         sorted[i].second.c_str());
        }
      }
    }
}

}  // namespace

namespace ptxrun {
cudaError_t enqueue(cudaStream_t stream, std::function<cudaError_t()> work) {
  return queue(stream, std::move(work));
}
u8* device_bytes(const void* p, u64 n, bool writes, const char* who) {
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

void clear_counts() {
  rt().machine.settings.stats = true;
  for (LoadedModule& m : rt().modules)
    for (auto& [name, k] : m.kernels) k.clear_counts();
}

std::vector<Counts> counts() {
  std::vector<Counts> all;
  for (const LoadedModule& m : rt().modules)
    for (const auto& [name, k] : m.kernels) {
      if (k.launches == 0) continue;
      Counts& c = all.emplace_back();
      c.name = name, c.shown = k.shown, c.ptx = m.ptx;
      c.launches = k.launches, c.blocks = k.blocks, c.barriers = k.barriers;
      c.threads = k.threads, c.dynamic_shared = static_cast<unsigned>(k.dynamic_shared);
      c.instructions = k.warp_instructions, c.lanes = k.lane_instructions;
      for (int i = 0; i < 2; ++i) c.traffic[i] = {k.requests[i], k.sectors[i], k.bytes[i]};
      c.shared_passes = k.shared_passes, c.shared_ideal = k.shared_ideal;
      for (std::size_t i = 0; i < k.code.size(); ++i)
        if (k.executed[i] != 0) {
          u64& n = c.by_line[k.code[i].st->line];
          n = std::max(n, k.executed[i]);
        }
    }
  return all;
}

}  // namespace ptxrun

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  const u8* data = nullptr;
  std::memcpy(&data, static_cast<u8*>(wrapper) + 8, sizeof data);
  LoadedModule& m = rt().modules.emplace_back();
  try {
    load_fat_binary(data, m);
    for (auto* list : {&m.module.globals, &m.module.constants})
      for (const Variable& v : *list) {
        if (m.symbols.count(v.name)) continue;
        const bool constant = list == &m.module.constants;
        const u64 at = rt().machine.memory.allocate(std::max<u64>(v.size, 1), v.name, constant);
        m.symbols[v.name] = at;
        if (!v.init.empty()) std::memcpy(rt().machine.memory.store(at), v.init.data(), v.size);
        std::memset(rt().machine.memory.known(at), 1, v.size);
      }
  } catch (const std::exception& e) {
    give_up(e);
  }
  return reinterpret_cast<void**>(&m);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  rt().functions[host] = {reinterpret_cast<LoadedModule*>(handle), name};
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  rt().configurations.push_back(
      {grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, reinterpret_cast<u64>(stream)});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const auto c = rt().configurations.back();
  rt().configurations.pop_back();
  *grid = dim3(unsigned(c[0]), unsigned(c[1]), unsigned(c[2]));
  *block = dim3(unsigned(c[3]), unsigned(c[4]), unsigned(c[5]));
  *shared = c[6];
  std::memcpy(stream, &c[7], 8);
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                               size_t shared, cudaStream_t stream) {
  return launch(kernel, grid, block, args, shared, stream);
}
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                                    size_t shared, cudaStream_t stream) {
  return launch(kernel, grid, block, args, shared, stream);
}
cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** args, size_t shared,
                             cudaStream_t stream) {
  return launch(f, grid, block, args, shared, stream);
}

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
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 * 1024; break;
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
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute what, int value) {
  if (rt().functions.find(function) == rt().functions.end())
    return said(cudaErrorInvalidDeviceFunction);
  if (what != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > 227 * 1024)
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
  run_all_waiting(false);
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
  return queue(stream, [=] {
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
  if (s) run_waiting(*s);
  rt().streams.erase(s);
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  if (s && s->capturing) return breaks(*s->capturing, cudaErrorStreamCaptureUnsupported);
  if (s) run_waiting(*s);
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
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
  for (const std::size_t n : order_of(e->graph, rt().machine.settings.order, rt().graph_order))
    if (const cudaError_t status = queue(s, e->graph.nodes[n].run); status != cudaSuccess)
      return status;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) {
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
  return queue(s, [mark = e->mark] {
    if (mark->stream) run_waiting(*mark->stream, mark.get());
    return cudaSuccess;
  });
}
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) {
  *p = n == 0 ? nullptr : std::malloc(n);
  if (*p != nullptr) rt().pinned[static_cast<const u8*>(*p)] = n;
  return *p != nullptr || n == 0 ? cudaSuccess : said(cudaErrorMemoryAllocation);
}
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
  return queue(s, [mark = e->mark] {
    mark->passed = true;
    mark->at = std::chrono::steady_clock::now();
    return cudaSuccess;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  if (e->mark->capture) return breaks(*e->mark->capture, cudaErrorCapturedEvent);
  if (e->mark->stream) run_waiting(*e->mark->stream, e->mark.get());
  return said(rt().sticky);
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
