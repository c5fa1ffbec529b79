// SPDX-License-Identifier: MIT
/// A store in page-locked memory of the host, for activations of a GPU.
///
/// Copies go over two streams of the store's own, one for each direction, since a device copies both
/// ways at a time, beside the kernels of the stream that a step runs on.
/// Events order them, and the host waits for none: a transfer begins behind all that was queued
/// on the step's stream before begin(), and all that is queued there behind wait() finds it ended. A step that
/// is captured takes both streams into its graph.
/// So done() is always true, as wait() returns at once, and slices never wait. Whoever looks at the
/// memory from the host, or gives it back, synchronizes the step's stream first.
///
/// Steps ran with it on the executor of tests, and its order was tested against a runtime made up for
/// that; not run on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <initializer_list>

#include "../core/array.hpp"
#include "../core/bytes.hpp"
#include "../core/cuda_handle.cuh"
#include "../core/cuda_stream.cuh"
#include "store.hpp"

namespace adacc { inline namespace v0_1 {

class PinnedHost {
 public:
  PinnedHost() = default;
  PinnedHost(PinnedHost&&) noexcept = default;
  PinnedHost& operator=(PinnedHost&&) noexcept = default;
  /// Copies that are still queued have ended when it returns.
  ~PinnedHost() {
    for (const Stream* stream : {&writes_, &reads_})
      if (stream->get() != nullptr) static_cast<void>(cudaStreamSynchronize(stream->get()));
  }

  /// `bytes` of the host's memory for the current device; `stream` is that of the steps' context
  /// (Cuda::stream()): a step on another one refuses the store.
  static Result<PinnedHost> make(std::size_t bytes, cudaStream_t stream = nullptr) {
    PinnedHost made;
    if (const Error why = detail::stream_fault(stream))
      return Error::say("page-locked memory to offload to: ", why.text());
    made.bytes_ = align_up(bytes);
    made.stream_ = stream;
    cudaError_t status = cudaStreamCreateWithFlags(made.writes_.place(), cudaStreamNonBlocking);
    if (status == cudaSuccess)
      status = cudaStreamCreateWithFlags(made.reads_.place(), cudaStreamNonBlocking);
    if (status == cudaSuccess && bytes > 0)
      status = cudaHostAlloc(made.memory_.place(), made.bytes_, cudaHostAllocDefault);
    if (status == cudaSuccess) return static_cast<PinnedHost&&>(made);
    return Error::say("no page-locked memory of ", shown(made.bytes_),
                      " to offload to: ", cudaGetErrorString(status));
  }

  std::size_t bytes() const { return bytes_; }
  std::size_t alignment() const { return adacc::alignment; }
  cudaStream_t stream() const { return stream_; }

  Error prepare(int tickets, Bytes) {
    tickets_.clear();
    tickets_ = Array<Ticket>(static_cast<std::size_t>(tickets));
    for (Ticket& ticket : tickets_)
      for (Event* event : {&ticket.begun, &ticket.ended})
        if (const cudaError_t status =
                cudaEventCreateWithFlags(event->place(), cudaEventDisableTiming);
            status != cudaSuccess)
          return fault(status);
    return {};
  }

  void begin(int ticket, const StoreTransfer& what) {
    Ticket& mine = tickets_[static_cast<std::size_t>(ticket)];
    std::byte* const place = static_cast<std::byte*>(memory_.get()) + what.offset;
    const bool write = what.direction == StoreTransfer::Direction::write;
    void* const to = write ? place : what.memory.data();
    const void* const from = write ? what.memory.data() : place;
    cudaStream_t const copies = write ? writes_.get() : reads_.get();
    mine.status = cudaEventRecord(mine.begun.get(), stream_);
    then(mine, [&] { return cudaStreamWaitEvent(copies, mine.begun.get(), 0); });
    then(mine,
         [&] { return cudaMemcpyAsync(to, from, what.memory.size(), cudaMemcpyDefault, copies); });
    then(mine, [&] { return cudaEventRecord(mine.ended.get(), copies); });
  }

  bool done(int) const { return true; }

  /// The reason why a copy could not be queued. That one failed later is what the stream says when it
  /// is synchronized, as of kernels.
  Error wait(int ticket) {
    Ticket& mine = tickets_[static_cast<std::size_t>(ticket)];
    then(mine, [&] { return cudaStreamWaitEvent(stream_, mine.ended.get(), 0); });
    return mine.status == cudaSuccess ? Error() : fault(mine.status);
  }

 private:
  using Event = detail::CudaHandle<cudaEvent_t, &cudaEventDestroy>;
  using Stream = detail::CudaHandle<cudaStream_t, &cudaStreamDestroy>;
  struct Ticket {
    Event begun;  ///< on the step's stream
    Event ended;  ///< on that of the store's which copies
    cudaError_t status = cudaSuccess;
  };

  template <class Call>
  static void then(Ticket& ticket, const Call& call) {
    if (ticket.status == cudaSuccess) ticket.status = call();
  }
  static Error fault(cudaError_t status) {
    return Error::say("offloading to page-locked memory: ", cudaGetErrorString(status));
  }

  std::size_t bytes_ = 0;
  cudaStream_t stream_ = nullptr;
  detail::CudaHandle<void*, &cudaFreeHost> memory_;
  Stream writes_, reads_;
  Array<Ticket> tickets_;
};

}}  // namespace adacc::v0_1
