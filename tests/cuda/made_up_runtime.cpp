// SPDX-License-Identifier: MIT
/// A CUDA runtime, libcudart.so.13, that is made up: cudnn-frontend loads it, and asks whether a stream is captured.
extern "C" {
int cudaRuntimeGetVersion(int* version) { return *version = 13000, 0; }
int cudaStreamGetCaptureInfo(void*, int* status) { return *status = 0, 0; }
int cudaGetLastError() { return 0; }
}
