// SPDX-License-Identifier: MIT
/// PinnedHost against a CUDA runtime made up for it: streams of work that run as late as they may, or
/// copies as early. What is not ordered by an event is found in one of the two.
#include <adacc/store/pinned_host.cuh>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "made_up_cuda.hpp"

struct CUstream_st {
  struct Item {
    std::function<void()> work;
    CUevent_st waits;  ///< as it was recorded when this was queued; without a stream: for nothing
  };
  std::deque<Item> items;
  std::size_t ran = 0;        ///< items so far
  std::size_t bytes[2] = {};  ///< that it copies to the store, and from there
};

namespace {

std::vector<CUstream_st*> copies;  ///< all streams but the steps'
CUstream_st compute;
int stream_device = 0, current_device = 0;
const std::byte *store_begin = nullptr, *store_end = nullptr;
bool eager = false;
using made_up_cuda::live;
cudaError_t fail_copy = cudaSuccess;

/// Runs `stream` until it has run `position` items; what it waits for runs before.
void run(CUstream_st& stream, std::size_t position) {
  while (stream.ran < position) {
    CUstream_st::Item& item = stream.items[stream.ran];
    if (item.waits.stream != nullptr) run(*item.waits.stream, item.waits.position);
    if (item.work) item.work();
    ++stream.ran;
  }
}

/// Copies that wait for nothing.
void run_early() {
  if (!eager) return;
  for (CUstream_st* stream : copies)
    while (stream->ran < stream->items.size()) {
      const CUevent_st& waits = stream->items[stream->ran].waits;
      if (waits.stream != nullptr && waits.stream->ran < waits.position) break;
      run(*stream, stream->ran + 1);
    }
}

CUstream_st& stream_of(cudaStream_t stream) { return stream == nullptr ? compute : *stream; }

void queue(cudaStream_t stream, std::function<void()> work, CUevent_st waits = {}) {
  stream_of(stream).items.push_back({std::move(work), waits});
  run_early();
}

}  // namespace

extern "C" {
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  copies.push_back(*stream = new CUstream_st);
  ++live;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  copies.erase(std::find(copies.begin(), copies.end(), stream));
  delete stream;
  --live;
  return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t, int* device) {
  *device = stream_device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  CUstream_st& mine = stream_of(stream);
  for (; mine.ran < mine.items.size(); run_early()) run(mine, mine.ran + 1);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  if (bytes > std::size_t{1} << 40) return cudaErrorMemoryAllocation;
  *memory = std::aligned_alloc(64, bytes);
  store_begin = static_cast<std::byte*>(*memory);
  store_end = store_begin + bytes;
  ++live;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  --live;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  queue(stream, {});
  *event = {&stream_of(stream), stream_of(stream).items.size()};
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  queue(stream, {}, *event);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (fail_copy != cudaSuccess) return fail_copy;
  stream->bytes[from >= store_begin && from < store_end ? 1 : 0] += bytes;
  queue(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
}

namespace pinned_host_run { namespace {

using namespace adacc;
using Direction = StoreTransfer::Direction;

constexpr std::size_t bytes = 256;
constexpr int tickets = 5;

/// Kernels write values that go to the store and come back, several on their way at once.
int mistakes(unsigned seed) {
  std::mt19937 random(seed);
  compute.items.clear();
  compute.ran = 0;
  int wrong = 0, read_back = 0;
  std::size_t written = 0, read = 0;
  std::vector<std::byte> memory(tickets * bytes);
  {
    auto store = PinnedHost::make(tickets * bytes);
    REQUIRE(store);
    REQUIRE_FALSE(store->prepare(tickets, {memory.data(), Shape(memory.size())}));
    enum { empty, writing, away, reading };
    int state[tickets] = {}, value[tickets] = {};
    for (int i = 0; i < 200; ++i) {
      const int t = static_cast<int>(random() % tickets);
      std::byte* const mine = memory.data() + static_cast<std::size_t>(t) * bytes;
      const StoreTransfer what{Direction::write, static_cast<std::size_t>(t) * bytes,
                               Bytes(mine, Shape(bytes))};
      StoreTransfer back = what;
      back.direction = Direction::read;
      switch (state[t]) {
        case empty:
          value[t] = i;
          queue(nullptr, [=] { std::memset(mine, i, bytes); });
          store->begin(t, what);
          ++written;
          break;
        case writing:
          REQUIRE_FALSE(store->wait(t));
          queue(nullptr, [=] { std::memset(mine, 0xEE, bytes); });  // somebody else's by now
          break;
        case away:
          store->begin(t, back);
          ++read;
          break;
        case reading: {
          REQUIRE_FALSE(store->wait(t));
          ++read_back;
          queue(nullptr, [=, expected = value[t], &wrong] {
            for (std::size_t b = 0; b < bytes; ++b)
              if (mine[b] != static_cast<std::byte>(expected)) {
                ++wrong;
                return;
              }
          });
          break;
        }
      }
      state[t] = (state[t] + 1) % 4;
      if (random() % 16 == 0) cudaStreamSynchronize(nullptr);
    }
    cudaStreamSynchronize(nullptr);
    CHECK(read_back > 10);
    // A stream for each direction, so that a device copies both ways at a time.
    REQUIRE(copies.size() == 2);
    CHECK(copies[0]->bytes[0] == written * bytes);
    CHECK(copies[1]->bytes[1] == read * bytes);
    CHECK(copies[0]->bytes[1] + copies[1]->bytes[0] == 0);
  }
  return wrong;
}

TEST_CASE("whatever runs early or late, what comes back is what left") {
  for (const bool early : {false, true}) {
    eager = early;
    for (unsigned seed = 0; seed < 50; ++seed) CHECK(mistakes(seed) == 0);
  }
  CHECK(live == 0);
}

TEST_CASE("what CUDA refuses is an error in words, and the ticket is free again") {
  CHECK(std::string(PinnedHost::make(std::size_t{1} << 50).error.text())
            .find("no page-locked memory of") == 0);
  stream_device = 1;
  CHECK(std::string(PinnedHost::make(bytes).error.text()) ==
        "page-locked memory to offload to: the stream is of device 1, and device 0 is the current "
        "one: cudaSetDevice() comes first");
  stream_device = 0;
  std::vector<std::byte> memory(bytes);
  {
    auto store = PinnedHost::make(bytes);
    REQUIRE(store);
    CHECK(store->bytes() == bytes);
    CHECK(store->alignment() == 64);
    REQUIRE_FALSE(store->prepare(1, {}));
    const StoreTransfer what{Direction::write, 0, Bytes(memory.data(), Shape(bytes))};
    fail_copy = cudaErrorInvalidValue;
    store->begin(0, what);
    fail_copy = cudaSuccess;
    CHECK(std::string(store->wait(0).text()) ==
          "offloading to page-locked memory: out of something");
    store->begin(0, what);
    CHECK_FALSE(store->wait(0));
    const PinnedHost moved = std::move(*store);
    CHECK(moved.bytes() == bytes);
  }
  CHECK(live == 0);
}

}}  // namespace pinned_host_run
