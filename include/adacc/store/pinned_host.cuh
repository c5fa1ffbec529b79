// SPDX-License-Identifier: MIT
/// A store in page-locked memory of the host, for activations of a GPU.
///
/// Copies go over two streams of the store, one for each direction, since a device copies both ways at a time, beside
/// the kernels of the step's stream. Events order the copies, and the host waits for none: a transfer begins after
/// all work queued on the step's stream before begin(), and all work queued there after wait() finds the transfer
/// ended. If a step is captured, its graph includes both streams. So done() is always true, wait() returns at once,
/// and slices never wait. Before the host looks at the memory, or gives it back, synchronize the step's stream.
///
/// Steps ran with this store on the executor of tests, and the order was tested against a made-up runtime; not run on
/// a GPU.
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
  /// Waits for copies that are still queued.
  ~PinnedHost() {
    for (const Stream* stream : {&writes_, &reads_})
      if (stream->get() != nullptr) static_cast<void>(cudaStreamSynchronize(stream->get()));
  }

  /// `bytes` of host memory for the current device. `stream` must be the stream of the steps' context
  /// (Cuda::stream()): a step on another stream refuses the store.
  static Result<PinnedHost> make(std::size_t bytes, cudaStream_t stream = nullptr) {
    PinnedHost host;
    if (const Error why = detail::stream_fault(stream))
      return Error::say("page-locked memory to offload to: ", why.text());
    host.bytes_ = align_up(bytes);
    host.stream_ = stream;
    cudaError_t status = cudaStreamCreateWithFlags(host.writes_.place(), cudaStreamNonBlocking);
    if (status == cudaSuccess)
      status = cudaStreamCreateWithFlags(host.reads_.place(), cudaStreamNonBlocking);
    if (status == cudaSuccess && bytes > 0)
      status = cudaHostAlloc(host.memory_.place(), host.bytes_, cudaHostAllocDefault);
    if (status == cudaSuccess) return static_cast<PinnedHost&&>(host);
    return Error::say("no page-locked memory of ", shown(host.bytes_),
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

  void begin(int ticket, const StoreTransfer& request) {
    Ticket& state = tickets_[static_cast<std::size_t>(ticket)];
    std::byte* const place = static_cast<std::byte*>(memory_.get()) + request.offset;
    const bool write = request.direction == StoreTransfer::Direction::write;
    void* const to = write ? place : request.memory.data();
    const void* const from = write ? request.memory.data() : place;
    cudaStream_t const copies = write ? writes_.get() : reads_.get();
    state.status = cudaEventRecord(state.begun.get(), stream_);
    then(state, [&] { return cudaStreamWaitEvent(copies, state.begun.get(), 0); });
    then(state, [&] {
      return cudaMemcpyAsync(to, from, request.memory.size(), cudaMemcpyDefault, copies);
    });
    then(state, [&] { return cudaEventRecord(state.ended.get(), copies); });
  }

  bool done(int) const { return true; }

  /// The reason why a copy could not be queued. A copy that fails later is reported when the stream is synchronized,
  /// like a failed kernel.
  Error wait(int ticket) {
    Ticket& state = tickets_[static_cast<std::size_t>(ticket)];
    then(state, [&] { return cudaStreamWaitEvent(stream_, state.ended.get(), 0); });
    return state.status == cudaSuccess ? Error() : fault(state.status);
  }

 private:
  using Event = detail::CudaHandle<cudaEvent_t, &cudaEventDestroy>;
  using Stream = detail::CudaHandle<cudaStream_t, &cudaStreamDestroy>;
  struct Ticket {
    Event begun;  ///< on the step's stream
    Event ended;  ///< on the store's stream of copies
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
