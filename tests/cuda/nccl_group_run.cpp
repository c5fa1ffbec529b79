// SPDX-License-Identifier: MIT
/// NcclGroup against an NCCL and a CUDA runtime that are made up in the host's memory: ranks are threads,
/// streams run whenever their rank asks after an event, each only as far as what is in front lets it.
#include <adacc/adapter/nccl.cuh>
#include <adacc/ranks/data_parallel/rank_sums.hpp>
#include <adacc/ranks/thread_group.hpp>
#include <adacc/testing/group_check.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "made_up_cuda.hpp"

struct CUstream_st {
  std::deque<std::function<bool()>> items;  ///< true: it has ended
  std::size_t ran = 0, queued = 0;
};

namespace {

/// What two ranks share of a communicator.
struct Pair {
  struct Sent {
    const void* memory;
    std::size_t bytes;
    std::shared_ptr<bool> taken;
  };
  std::mutex mutex;
  std::deque<Sent> sent[2];  ///< by sender
};
std::mutex pairs_mutex;
std::map<std::string, std::shared_ptr<Pair>> pairs;
std::atomic<int> ids{0};
using made_up_cuda::live;
std::atomic<bool> refuses{false}, fails_behind{false};

thread_local CUstream_st compute;
thread_local std::vector<CUstream_st*> streams;

void progress(CUstream_st& stream) {
  while (!stream.items.empty() && stream.items.front()()) {
    stream.items.pop_front();
    ++stream.ran;
  }
}
void progress() {
  progress(compute);
  for (CUstream_st* stream : streams) progress(*stream);
}
CUstream_st& stream_of(cudaStream_t stream) { return stream == nullptr ? compute : *stream; }
void queue(cudaStream_t stream, std::function<bool()> item) {
  stream_of(stream).items.push_back(std::move(item));
  ++stream_of(stream).queued;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Pair> pair;
  int rank = 0;
  std::shared_ptr<std::atomic<bool>> aborted = std::make_shared<std::atomic<bool>>(false);
};

extern "C" {
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  streams.push_back(*stream);
  ++live;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  for (auto& one : streams)
    if (one == stream) one = streams.back();
  streams.pop_back();
  delete stream;
  --live;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  for (; !stream_of(stream).items.empty(); std::this_thread::yield()) progress();
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  *event = {&stream_of(stream), stream_of(stream).queued};
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const CUevent_st as_recorded = *event;
  queue(stream, [as_recorded] { return as_recorded.stream->ran >= as_recorded.position; });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  progress();
  return event->stream->ran >= event->position ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  ++live;
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  queue(stream, [=] { return std::memset(memory, value, bytes) != nullptr; });
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  --live;
  return cudaSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "%d", ++ids);
  return refuses ? ncclSystemError : ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* made, int ranks, ncclUniqueId id, int rank) {
  if (ranks != 2) return ncclInvalidArgument;
  const std::lock_guard lock(pairs_mutex);
  std::shared_ptr<Pair>& pair = pairs[id.internal];
  if (pair == nullptr) pair = std::make_shared<Pair>();
  *made = new ncclComm{pair, rank};
  ++live;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  delete communicator;
  --live;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  *communicator->aborted = true;
  return ncclCommDestroy(communicator);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* result) {
  *result = fails_behind ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* memory, std::size_t bytes, ncclDataType_t, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  if (peer == communicator->rank) return ncclInvalidArgument;
  auto taken = std::make_shared<bool>(false);
  queue(stream, [=, pair = communicator->pair, rank = communicator->rank, begun = false,
                 aborted = communicator->aborted]() mutable {
    const std::lock_guard lock(pair->mutex);
    if (!begun) pair->sent[rank].push_back({memory, bytes, taken});
    begun = true;
    return *taken || *aborted;
  });
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* memory, std::size_t bytes, ncclDataType_t, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  if (peer == communicator->rank) return ncclInvalidArgument;
  queue(stream, [=, pair = communicator->pair, aborted = communicator->aborted] {
    if (*aborted) return true;
    const std::lock_guard lock(pair->mutex);
    auto& sent = pair->sent[peer];
    if (sent.empty() || sent.front().bytes != bytes) return false;
    std::memcpy(memory, sent.front().memory, bytes);
    *sent.front().taken = true;
    sent.pop_front();
    return true;
  });
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "the other side has gone"; }
}

namespace nccl_group_run { namespace {

using namespace adacc;

/// body(group, rank) on so many ranks, each with a group over NCCL that threads of the host made.
template <class Body>
void on_ranks(int ranks, const NcclGroupOptions& options, const Body& body) {
  ThreadGroup host(ranks);
  run_ranks(host, [&](ThreadGroup::Member& member) {
    auto group = NcclGroup::make(member, options);
    REQUIRE_MESSAGE(group, std::string(group.error.text()));
    NcclGroup moved = std::move(*group);
    body(moved);
  });
  CHECK(live == 0);
}

TEST_CASE("a group over NCCL keeps the contract") {
  for (const int ranks : {1, 2, 3})
    on_ranks(ranks, {}, [&](NcclGroup& group) {
      const Error why = testing::check_group(group, {.rounds = 6, .most_bytes = 20000});
      CHECK_MESSAGE(!why, std::string(why.text()));
    });
}

TEST_CASE("sums over it have the one order, behind what computes them") {
  on_ranks(3, {.channels = 2}, [&](NcclGroup& group) {
    std::vector<float> mine(5000, -1), expected(5000);
    const float* from[3] = {};
    std::vector<float> all[3];
    for (std::size_t r = 0; r < 3; ++r) {
      for (std::size_t e = 0; e < mine.size(); ++e)
        all[r].push_back(1.0F / static_cast<float>(1 + (e * 7 + r * 31) % 97));
      from[r] = all[r].data();
    }
    pairwise_sum(expected.data(), from, 3, expected.size());
    queue(nullptr, [&] {
      mine = all[static_cast<std::size_t>(group.rank())];
      return true;
    });
    auto sums = RankSums<float>::make(group, 1, {.chunk_bytes = 4096, .chunks = 2});
    REQUIRE(sums);
    // Of a block of the host's only behind the kernel: a message waits for it, a sum by the host could not.
    cudaStreamSynchronize(nullptr);
    sums->sum({mine.data(), Shape(mine.size())});
    const Error why = sums->finish();
    CHECK_MESSAGE(!why, std::string(why.text()));
    CHECK(mine == expected);
  });
  // A message is of what the stream has computed by then.
  on_ranks(2, {}, [&](NcclGroup& group) {
    int number = 0;
    const Bytes memory(reinterpret_cast<std::byte*>(&number), Shape(sizeof number));
    CHECK(!group.prepare(1));
    const bool sends = group.rank() == 0;
    if (sends)
      queue(nullptr, [&, turns = 0]() mutable {
        if (++turns < 5) return false;
        number = 7;
        return true;
      });
    group.begin(0, {sends ? GroupMessage::Direction::send : GroupMessage::Direction::receive,
                    1 - group.rank(), 0, memory});
    CHECK(!group.wait(0));
    CHECK(number == 7);
  });
}

TEST_CASE("who does not answer, and what NCCL refuses, are errors in words") {
  on_ranks(2, {.limit_seconds = 0.1}, [&](NcclGroup& group) {
    std::byte byte{};
    CHECK(!group.prepare(2));
    if (group.rank() == 1) return;
    group.begin(0, {GroupMessage::Direction::receive, 1, 0, {&byte, Shape(1)}});
    CHECK_FALSE(group.done(0));
    const std::string why = group.wait(0).text();
    CHECK(why == "rank 0 waited 100 ms to receive from rank 1, which was not heard of");
    CHECK(group.done(1));
    CHECK(std::string(group.wait(1).text()) == why);
    CHECK(std::string(group.prepare(1).text()) == why);
  });
  on_ranks(2, {}, [&](NcclGroup& group) {
    std::byte byte{};
    CHECK(!group.prepare(1));
    if (group.rank() == 1) return;
    fails_behind = true;
    group.begin(0, {GroupMessage::Direction::send, 1, 0, {&byte, Shape(1)}});
    CHECK(std::string(group.wait(0).text()) == "rank 0 and rank 1: NCCL: the other side has gone");
    fails_behind = false;
  });
  const auto refused = [](const NcclGroupOptions& options, const char* words) {
    ThreadGroup host(3, {.limit_seconds = 5});
    run_ranks(host, [&](ThreadGroup::Member& member) {
      const std::string why = NcclGroup::make(member, options).error.text();
      // Who was let down by another names that one.
      CHECK_MESSAGE((why.find(words) != std::string::npos ||
                     (member.rank() != 0 && why.find("rank 0 could not connect") == 0)),
                    why);
    });
    CHECK(live == 0);
  };
  refused({.channels = 0}, "one channel at least, and 0 were asked for");
  refuses = true;
  refused({}, "ncclGetUniqueId: the other side has gone");
  refuses = false;
  on_ranks(2, {.channels = 1}, [&](NcclGroup& group) {
    std::byte byte{};
    CHECK(!group.prepare(1));
    group.begin(0, {GroupMessage::Direction::send, 1 - group.rank(), 1, {&byte, Shape(1)}});
    CHECK(std::string(group.wait(0).text()).find("a channel below 1") != std::string::npos);
  });
}

}}  // namespace nccl_group_run
