// SPDX-License-Identifier: MIT
// The driver's functions that load kernels and launch them, on the executor; and those that PyTorch asks for at its start.
#include <cuda.h>
#include <dlfcn.h>

#include "runtime.hpp"

using namespace ptxrun;

namespace {

/// A module loaded by the driver. The runtime knows a kernel by the address of its name here.
struct Library {
  LoadedModule* module;
  std::set<std::string> kernels{};
};

CUresult as_driver(cudaError_t e) { return static_cast<CUresult>(e); }  // these numbers are alike

CUresult load(void** to, const void* image) {
  const Turn turn;
  LoadedModule* const module = load_image(image);
  if (module == nullptr) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  if (!runs_here(*module)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  *to = new Library{module};
  return CUDA_SUCCESS;
}
CUresult kernel_of(void** to, void* from, const char* name) {
  const Turn turn;
  auto& library = *static_cast<Library*>(from);
  if (library.module->module.functions.count(name) == 0) return CUDA_ERROR_NOT_FOUND;
  const void* const kernel = &*library.kernels.insert(name).first;
  rt().functions[kernel] = {library.module, name};
  *to = const_cast<void*>(kernel);
  return CUDA_SUCCESS;
}
CUcontext context() {
  static int only;
  return reinterpret_cast<CUcontext>(&only);
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* v) {
  *v = CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* n) { return as_driver(cudaGetDeviceCount(n)); }
CUresult cuDeviceGet(CUdevice* d, int n) {
  *d = n;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* v, CUdevice_attribute which, CUdevice d) {
  return as_driver(cudaDeviceGetAttribute(v, static_cast<cudaDeviceAttr>(which), d));
}
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* c, CUdevice) {
  *c = context();
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* c) {
  *c = context();
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult e, const char** text) {
  *text = cudaGetErrorString(static_cast<cudaError_t>(e));
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult e, const char** text) { return cuGetErrorString(e, text); }

CUresult cuLibraryLoadData(CUlibrary* to, const void* image, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  return load(reinterpret_cast<void**>(to), image);
}
CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }
CUresult cuLibraryGetKernel(CUkernel* k, CUlibrary l, const char* name) {
  return kernel_of(reinterpret_cast<void**>(k), l, name);
}
CUresult cuKernelGetFunction(CUfunction* f, CUkernel k) {
  *f = reinterpret_cast<CUfunction>(k);
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* to, const void* image) {
  return load(reinterpret_cast<void**>(to), image);
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* f, CUmodule m, const char* name) {
  return kernel_of(reinterpret_cast<void**>(f), m, name);
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute which, int value) {
  return as_driver(cudaFuncSetAttribute(f, static_cast<cudaFuncAttribute>(which), value));
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream s, void** args,
                        void** extra) {
  if (extra) return CUDA_ERROR_NOT_SUPPORTED;
  return as_driver(cudaLaunchKernel(f, {gx, gy, gz}, {bx, by, bz}, args, shared, s));
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream s) {
  return as_driver(cudaMemcpyAsync(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n,
                                   cudaMemcpyDeviceToDevice, s));
}
CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus* is) {
  return as_driver(cudaStreamIsCapturing(s, reinterpret_cast<cudaStreamCaptureStatus*>(is)));
}
CUresult cuGetProcAddress_v2(const char* name, void** f, int, cuuint64_t,
                             CUdriverProcAddressQueryResult* found) {
  *f = dlsym(RTLD_DEFAULT, name);
  if (!*f) *f = dlsym(RTLD_DEFAULT, (std::string(name) + "_v2").c_str());
  if (found) *found = *f ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *f ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // extern "C"
