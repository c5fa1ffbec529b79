// SPDX-License-Identifier: MIT
// Programs' modules, as nvcc's code registers them, and launches of their kernels.
#include <cxxabi.h>

#include "run.hpp"
#include "runtime.hpp"

namespace ptxrun {
namespace {

std::string demangled(const std::string& name) {
  int status = 0;
  char* d = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string out = status == 0 ? d : name;
  std::free(d);
  return out;
}

/// The PTX in a fat binary that is not compressed; empty if there is none.
std::string_view ptx_of(const u8* data) {
  u16 header = 0;
  u64 size = 0;
  std::memcpy(&header, data + 6, 2), std::memcpy(&size, data + 8, 8);
  const u8* at = data + header;
  const u8* const end = at + size;
  while (at < end) {
    u16 kind = 0;
    u32 head = 0;
    u64 bytes = 0;
    std::memcpy(&kind, at, 2), std::memcpy(&head, at + 4, 4), std::memcpy(&bytes, at + 8, 8);
    const std::string_view text(reinterpret_cast<const char*>(at + head), bytes);
    if (kind == 1 && text.find(".version") != std::string_view::npos) return text;
    at += head + bytes;
  }
  return {};
}

void load(std::string_view text, LoadedModule& to) {
  const std::size_t target = text.find(".target sm_");
  if (target != std::string_view::npos) to.target = std::atoi(text.data() + target + 11);
  to.ptx = text;
  to.module = Parser(text).run();
  for (auto* list : {&to.module.globals, &to.module.constants})
    for (const Variable& v : *list) {
      if (to.symbols.count(v.name)) continue;
      const bool constant = list == &to.module.constants;
      const u64 at = rt().machine.memory.allocate(std::max<u64>(v.size, 1), v.name, constant);
      to.symbols[v.name] = at;
      if (!v.init.empty()) std::memcpy(rt().machine.memory.store(at), v.init.data(), v.size);
      std::memset(rt().machine.memory.known(at), 1, v.size);
    }
}

[[noreturn]] void give_up(const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  std::_Exit(87);
}

}  // namespace

LoadedModule& load_module(std::string_view ptx) {
  LoadedModule& m = rt().modules.emplace_back();
  try {
    load(ptx, m);
  } catch (const std::exception& e) {
    give_up(e);
  }
  return m;
}
LoadedModule* load_image(const void* image) {
  u32 magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  std::string_view text;
  if (magic == 0xBA55ED50) text = ptx_of(static_cast<const u8*>(image));
  else if (magic != 0x464C457F) text = static_cast<const char*>(image);  // neither machine code
  if (text.empty()) return nullptr;
  static std::deque<std::string> kept;  // modules refer to their text
  return &load_module(kept.emplace_back(text));
}

bool runs_here(const LoadedModule& m) {
  return m.target <= 10 * rt().pretended.major + rt().pretended.minor;
}

namespace {

/// Null where the module has none of the name.
Kernel* kernel_of(LoadedModule& m, const std::string& name) {
  const auto f = m.module.functions.find(name);
  if (f == m.module.functions.end()) return nullptr;
  auto [k, fresh] = m.kernels.try_emplace(name);
  if (fresh) {
    k->second = Decoder(m.module, f->second, m.symbols).run();
    k->second.shown = demangled(name);
  }
  return &k->second;
}

cudaError_t launch(const void* function, dim3 grid, dim3 block, void** args, size_t dynamic,
                   cudaStream_t stream) {
  const auto it = rt().functions.find(function);
  if (it == rt().functions.end()) return said(cudaErrorInvalidDeviceFunction);
  LoadedModule& m = *it->second.first;
  if (m.ptx.empty())
    std::fprintf(stderr,
                 "ptxrun: there is no PTX of %s: nvcc makes it by -code=compute_NN --no-compress\n",
                 demangled(it->second.second).c_str());
  if (m.ptx.empty() || !runs_here(m)) return said(cudaErrorNoKernelImageForDevice);
  if (stream && stream->device != rt().device) return said(cudaErrorInvalidResourceHandle);
  try {
    Kernel* const found = kernel_of(m, it->second.second);
    if (found == nullptr) return said(cudaErrorInvalidDeviceFunction);
    Kernel& kernel = *found;
    const u64 threads = u64{block.x} * block.y * block.z;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || threads > 1024 ||
        grid.y > 65535 || grid.z > 65535 || grid.x > 0x7FFFFFFF ||
        threads > static_cast<u64>(kernel.function->max_threads))
      return said(cudaErrorInvalidConfiguration);
    // Above 48 KiB a kernel must have been told (cudaFuncSetAttribute).
    const auto allowed = rt().dynamic_shared.find(function);
    const u64 most = allowed == rt().dynamic_shared.end() ? 48 * 1024 : allowed->second;
    if (dynamic > most || kernel.shared_bytes + dynamic > rt().pretended.shared)
      return said(cudaErrorInvalidValue);
    std::vector<u8> parameters(kernel.param_bytes);
    for (std::size_t i = 0; i < kernel.params.size(); ++i)
      std::memcpy(parameters.data() + kernel.params[i].offset, args[i], kernel.params[i].size);
    return enqueue(stream, [&kernel, grid, block, dynamic, parameters] {
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

}  // namespace

u64 shared_bytes_of(LoadedModule& m, const std::string& name) {
  try {
    const Kernel* const kernel = kernel_of(m, name);
    return kernel == nullptr ? 0 : kernel->shared_bytes;
  } catch (const std::exception& e) {
    give_up(e);
  }
}

}  // namespace ptxrun

using namespace ptxrun;

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  const Turn turn;
  const u8* data = nullptr;
  std::memcpy(&data, static_cast<u8*>(wrapper) + 8, sizeof data);
  const std::string_view text = ptx_of(data);
  // Machine code alone is an error once it is launched.
  LoadedModule& m = text.empty() ? rt().modules.emplace_back() : load_module(text);
  return reinterpret_cast<void**>(&m);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  const Turn turn;
  rt().functions[host] = {reinterpret_cast<LoadedModule*>(handle), name};
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  const Turn turn;
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
  const Turn turn;
  return launch(kernel, grid, block, args, shared, stream);
}
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                                    size_t shared, cudaStream_t stream) {
  const Turn turn;
  return launch(kernel, grid, block, args, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* f, void** args) {
  const Turn turn;
  if (how->numAttrs != 0) return said(cudaErrorInvalidValue);
  return launch(f, how->gridDim, how->blockDim, args, how->dynamicSmemBytes, how->stream);
}
cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** args, size_t shared,
                             cudaStream_t stream) {
  const Turn turn;
  return launch(f, grid, block, args, shared, stream);
}

}  // extern "C"
