// SPDX-License-Identifier: MIT
/// CudnnAttention without a device: cuDNN builds its graphs for an H100 that it is told about, behind a CUDA driver that
/// is made up (made_up_driver.cpp), and executions are looked at (made_up_cudnn.cpp). What they compute,
/// cuda_attention_bench --cudnn shows on a GPU.
#define ADACC_ASSERT(holds, text) static_cast<void>(0)

#include <adacc/adapter/cudnn.cuh>

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "made_up_cuda.hpp"
#include "made_up_cudnn.hpp"

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
  REQUIRE(std::string(made.error.text()) == "");
  CudaAttention& cudnn = **made;
  CHECK(std::string(cudnn.name()).substr(0, 8) == "cuDNN 9.");

  const CudaAttention::Sizes gpt2{8, 1024, 12, 12, 64}, grouped{2, 100, 4, 2, 128};
  const CudaAttention::Answer answer = cudnn.prepare(gpt2);
  REQUIRE(std::string(answer.refused.text()) == "");
  CHECK(answer.forward_bytes % 256 == 0);
  CHECK(answer.backward_bytes % 256 == 0);
  CHECK(answer.forward_bytes < 8 * MiB);
  // Gradients of all scores, or sums of the queries' gradients in fp32.
  CHECK(answer.backward_bytes >= 8 * 1024 * 12 * 64 * sizeof(float));
  CHECK(answer.backward_bytes < 8 * 12 * 1024 * 1024 * 2 + 8 * MiB);
  MESSAGE(std::string(cudnn.name()) << ": workspaces of GPT-2 at batch 8: " << answer.forward_bytes
                                    << ", " << answer.backward_bytes);
  const CudaAttention::Answer& of_groups = cudnn.prepare(grouped);
  CHECK(std::string(of_groups.refused.text()) == "");
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

  // Places of queries, keys and values of a row, and of their gradients.
  auto* const seen =
      static_cast<MadeUpCudnn*>(dlsym(cudnn_frontend::cudnn_dlhandle, "made_up_cudnn"));
  REQUIRE(seen != nullptr);
  const auto lies_at = [&](std::int64_t id, const void* place) {
    for (std::int64_t i = 0; i < seen->count; ++i)
      if (seen->ids[i] == id) return seen->places[i] == place;
    return false;
  };
  const auto fine = [](const Error& error) {
    CHECK(std::string(error.text()) == "");
    return !error;
  };
  alignas(16) bfloat16 qkv[1024], dqkv[1024], out[8], dout[8];
  float sums[4];
  std::byte workspace[4];
  const auto stream = reinterpret_cast<cudaStream_t>(qkv);
  REQUIRE(fine(cudnn.forward(*cudnn.find(grouped), {stream, qkv, out, sums, workspace})));
  CHECK(seen->executed == 1);
  CHECK(seen->stream == stream);
  CHECK(seen->workspace == static_cast<void*>(workspace));
  CHECK(lies_at(1, qkv));
  CHECK(lies_at(2, qkv + 4 * 128));
  CHECK(lies_at(3, qkv + 6 * 128));
  CHECK(lies_at(4, out));
  CHECK(lies_at(5, sums));
  REQUIRE(
      fine(cudnn.backward(*cudnn.find(grouped), {nullptr, qkv, out, dout, sums, dqkv, workspace})));
  CHECK(seen->stream == nullptr);
  CHECK(lies_at(3, qkv + 6 * 128));
  CHECK(lies_at(4, out));
  CHECK(lies_at(5, sums));
  CHECK(lies_at(6, dout));
  CHECK(lies_at(7, dqkv));
  CHECK(lies_at(8, dqkv + 4 * 128));
  CHECK(lies_at(9, dqkv + 6 * 128));
  seen->fails = true;
  CHECK(has(cudnn.forward(*cudnn.find(gpt2), {stream, qkv, out, sums, workspace}), "cuDNN 9."));
  CHECK(seen->handles == 1);
  made->reset();
  CHECK(seen->handles == 0);
}

}}  // namespace cudnn_run
