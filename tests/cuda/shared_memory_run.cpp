// SPDX-License-Identifier: MIT
/// The room of kernels in shared memory, asked of a CUDA runtime that is made up: how often, and with which answers.
#include <adacc/core/shared_memory.cuh>

#include <doctest/doctest.h>

#include <string>

namespace {

int queries = 0, settings = 0, set_bytes = 0;
std::size_t declared = 0;  ///< shared memory that a kernel declares
cudaError_t refusal = cudaSuccess;
thread_local cudaError_t last = cudaSuccess;

}  // namespace

extern "C" {
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device) {
  ++queries;
  *value = device == 0 ? 227 * 1024 : 99 * 1024;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void*) {
  *found = {};
  found->sharedSizeBytes = declared;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int bytes) {
  if (refusal != cudaSuccess) return refusal;
  ++settings;
  set_bytes = bytes;
  last = cudaSuccess;  // as on a GPU
  return cudaSuccess;
}
cudaError_t cudaPeekAtLastError() { return last; }
cudaError_t cudaSetDevice(int);
}

namespace shared_memory_run { namespace {

using namespace adacc;

void first_kernel(int) {}
void second_kernel(float) {}

TEST_CASE("CUDA is told once for each kernel and device") {
  declared = 1024;
  for (int turn = 0; turn < 3; ++turn)
    for (const int device : {0, 1}) {
      cudaSetDevice(device);
      const std::size_t most = (device == 0 ? 227U : 99U) * 1024 - 1024;
      for (const auto& room :
           {detail::shared_room(first_kernel), detail::shared_room(second_kernel)}) {
        REQUIRE(room);
        CHECK(*room == most);
      }
      if (turn == 0) CHECK(static_cast<std::size_t>(set_bytes) == most);
    }
  CHECK(queries == 4);
  CHECK(settings == 4);
  cudaSetDevice(0);
}

void third_kernel(long) {}

TEST_CASE("An error of others stays the last one of its thread") {
  declared = 1024;
  last = cudaErrorInvalidDevice;
  const auto room = detail::shared_room(third_kernel);
  CHECK(last == cudaErrorInvalidDevice);
  last = cudaSuccess;
  declared = 0;
  REQUIRE(room);
  CHECK(*room == 226 * 1024);
}

void large_kernel(double) {}

TEST_CASE("A kernel that declares more than the device has gets none") {
  declared = std::size_t{300} * 1024;
  const auto room = detail::shared_room(large_kernel);
  declared = 0;
  REQUIRE(room);
  CHECK(*room == 0);
}

void refused_kernel(char) {}

TEST_CASE("A refusal is CUDA's, in words, and asked again") {
  refusal = cudaErrorInvalidValue;
  const auto room = detail::shared_room(refused_kernel);
  refusal = cudaSuccess;
  REQUIRE(!room);
  CHECK(std::string(room.error.text()) ==
        "a kernel is not allowed the shared memory of the device: CUDA says out of something");
  CHECK(detail::shared_room(refused_kernel));
}

}}  // namespace shared_memory_run
