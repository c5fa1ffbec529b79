// SPDX-License-Identifier: MIT
/// A CUDA driver, libcuda.so.1, that is made up: cuDNN compiles kernels for a device that it is told about, and loads
/// them. There is no device, and nothing runs.
extern "C" {

#define ADACC_NO_DEVICE(name) \
  int name() { return 100; }
ADACC_NO_DEVICE(cuCtxGetCurrent)
ADACC_NO_DEVICE(cuCtxGetDevice)
ADACC_NO_DEVICE(cuCtxGetLimit)
ADACC_NO_DEVICE(cuCtxPopCurrent)
ADACC_NO_DEVICE(cuCtxPushCurrent)
ADACC_NO_DEVICE(cuDeviceGet)
ADACC_NO_DEVICE(cuDeviceGetAttribute)
ADACC_NO_DEVICE(cuDeviceGetCount)
ADACC_NO_DEVICE(cuDevicePrimaryCtxRelease)
ADACC_NO_DEVICE(cuDevicePrimaryCtxReset)
ADACC_NO_DEVICE(cuDevicePrimaryCtxRetain)
ADACC_NO_DEVICE(cuDriverGetVersion)
ADACC_NO_DEVICE(cuFuncGetAttribute)
ADACC_NO_DEVICE(cuFuncSetAttribute)
ADACC_NO_DEVICE(cuGetErrorName)
ADACC_NO_DEVICE(cuGetErrorString)
ADACC_NO_DEVICE(cuInit)
ADACC_NO_DEVICE(cuLaunchCooperativeKernel)
ADACC_NO_DEVICE(cuLaunchKernel)
ADACC_NO_DEVICE(cuLaunchKernelEx)
ADACC_NO_DEVICE(cuLinkAddData)
ADACC_NO_DEVICE(cuLinkAddData_v2)
ADACC_NO_DEVICE(cuLinkAddFile_v2)
ADACC_NO_DEVICE(cuLinkComplete)
ADACC_NO_DEVICE(cuLinkCreate)
ADACC_NO_DEVICE(cuLinkCreate_v2)
ADACC_NO_DEVICE(cuLinkDestroy)
ADACC_NO_DEVICE(cuMemcpyDtoH_v2)
ADACC_NO_DEVICE(cuModuleGetFunction)
ADACC_NO_DEVICE(cuModuleGetGlobal_v2)
ADACC_NO_DEVICE(cuModuleLoadData)
ADACC_NO_DEVICE(cuModuleLoadDataEx)
ADACC_NO_DEVICE(cuModuleLoadFatBinary)
ADACC_NO_DEVICE(cuModuleUnload)
ADACC_NO_DEVICE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
ADACC_NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
ADACC_NO_DEVICE(cuStreamGetCtx)
ADACC_NO_DEVICE(cuStreamGetGreenCtx)
ADACC_NO_DEVICE(cuStreamSynchronize)
ADACC_NO_DEVICE(cuTensorMapEncodeTiled)

// Libraries and kernels are loaded; nobody looks into them.
int cuLibraryLoadData(void** library) { return *library = library, 0; }
int cuLibraryLoadFromFile(void** library) { return *library = library, 0; }
int cuLibraryGetKernel(void** kernel) { return *kernel = kernel, 0; }
int cuLibraryUnload() { return 0; }
int cuKernelGetAttribute() { return 0; }
int cuKernelGetFunction() { return 0; }
int cuKernelSetAttribute() { return 0; }
}
