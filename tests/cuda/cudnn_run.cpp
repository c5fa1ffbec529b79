// SPDX-License-Identifier: MIT
/// CudnnAttention without a device: cuDNN builds its graphs for an H100 that it is told about, behind a CUDA driver that
/// is made up (made_up_driver.cpp). What they compute, cuda_attention_bench --cudnn shows on a GPU.
#define ADACC_ASSERT(holds, text) static_cast<void>(0)

#include <adacc/adapter/cudnn.cuh>

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "made_up_cuda.hpp"

extern "C" {
cudaError_t cudaGetDevice(int*) { return cudaErrorNoDevice; }
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int) { return cudaErrorNoDevice; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
}

namespace cudnn_run { namespace {

using namespace adacc;

constexpr const char* h100 = R"({
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
  "multiProcessorCount": 132, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
  "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536,
  "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0,
  "supportCoopLaunch": 1, "totalGlobalMem": 85000000000, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000,
  "l2CacheSize": 52428800, "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000,
  "deviceName": "NVIDIA H100 80GB HBM3"})";

bool has(const Error& error, const char* words) {
  return std::string(error.text()).find(words) != std::string::npos;
}

// The first case: once a library is loaded, no other is asked for.
TEST_CASE("a cuDNN that is missing is an error in words") {
  const auto made = CudnnAttention::make({.library = "libcudnn_of_nobody.so.9"});
  REQUIRE(!made);
  CHECK(has(made.error, "cuDNN cannot be loaded: libcudnn_of_nobody.so.9"));
  CHECK(has(made.error, "LD_LIBRARY_PATH"));
}

TEST_CASE(
    "cuDNN's graphs are built for sizes that it takes, once, and others are refused in words") {
  const char* const library = std::getenv("ADACC_CUDNN_LIBRARY");
  if (library == nullptr) {
    MESSAGE("there is no libcudnn.so.9: no graph is built");
    return;
  }
  CHECK(has(CudnnAttention::make({.library = library}).error, "there is no current device"));
  CHECK(has(CudnnAttention::make({.library = library, .device_properties = "{}"}).error, "device"));
  auto made = CudnnAttention::make({.library = library, .device_properties = h100});
  REQUIRE_MESSAGE(made, made.error.text());
  CudaAttention& cudnn = **made;
  CHECK(std::string(cudnn.name()).substr(0, 8) == "cuDNN 9.");

  const CudaAttention::Sizes gpt2{8, 1024, 12, 12, 64}, grouped{2, 100, 4, 2, 128};
  const CudaAttention::Answer answer = cudnn.prepare(gpt2);
  REQUIRE_MESSAGE(!answer.refused, answer.refused.text());
  CHECK(answer.forward_bytes % 256 == 0);
  CHECK(answer.backward_bytes % 256 == 0);
  CHECK(answer.forward_bytes < 8 * MiB);
  // Gradients of all scores, or sums of the queries' gradients in fp32.
  CHECK(answer.backward_bytes >= 8 * 1024 * 12 * 64 * sizeof(float));
  CHECK(answer.backward_bytes < 8 * 12 * 1024 * 1024 * 2 + 8 * MiB);
  MESSAGE(cudnn.name() << ": workspaces of GPT-2 at batch 8: " << answer.forward_bytes << ", "
                       << answer.backward_bytes);
  const CudaAttention::Answer& of_groups = cudnn.prepare(grouped);
  CHECK_MESSAGE(!of_groups.refused, of_groups.refused.text());
  CHECK(!cudnn.refusal());

  const CudaAttention::Answer odd = cudnn.prepare({1, 256, 2, 2, 63});
  CHECK(has(odd.refused,
            "does not take 2 heads of 63 channels (2 of keys and values) over 1 x 256 "
            "positions: "));
  CHECK(has(odd.refused, "multiple of 8"));
  CHECK(cudnn.prepare({1, 256, 2, 2, 264}).refused);
  CHECK(has(cudnn.refusal(), "63 channels"));

  CHECK(cudnn.answers().size() == 4);
  CHECK(&cudnn.prepare(gpt2) == cudnn.find(gpt2));
  CHECK(cudnn.find({8, 1024, 12, 12, 32}) == nullptr);
  CHECK(cudnn.answers().size() == 4);
  CHECK(has(cudnn.forward(*cudnn.find(gpt2), {}), "built without a device, and cannot run"));
  CHECK(has(cudnn.backward(*cudnn.find(gpt2), {}), "built without a device, and cannot run"));
}

}}  // namespace cudnn_run
