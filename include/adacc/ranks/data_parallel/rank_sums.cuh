// SPDX-License-Identifier: MIT
/// Sums over ranks of blocks in the memory of CUDA devices, while the devices compute on.
///
/// A block is marked on the context's stream when it is lent. Each chunk under way has a stream of its own, which waits
/// for the mark of its block: messages and sums do not wait for kernels that were queued later. The host looks after
/// messages in progress() and finish(), and is never waited for by kernels of the context. The sums have the bits of the
/// host's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "../../core/array.hpp"
#include "../../core/cuda.cuh"
#include "../../core/cuda_handle.cuh"
#include "../../core/device_block.cuh"
#include "../../core/packets.cuh"
#include "rank_sums.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

inline constexpr int most_device_ranks = 64;

/// Element by element the sum in the order of pairwise_sum().
template <class T>
struct PairwiseSumBody {
  const T* from[most_device_ranks];
  std::size_t count, elems;

  template <unsigned width>
  __device__ void packet(std::size_t e, Packet<T, width>& to) const {
    for (unsigned i = 0; i < width && e + i < elems; ++i) to.at[i] = sum(e + i);
  }
  __device__ T sum(std::size_t e) const {
    T kept[6] = {}, sum{};  // of 1, 2, 4, ... 32 terms
    for (std::size_t item = 0; item < count; ++item) {
      sum = from[item][e];
      std::size_t level = 0;
      for (; (item >> level & 1) != 0; ++level) sum = kept[level] + sum;
      if (item + 1 < count) {
        kept[level] = sum;
        continue;
      }
      for (++level; count >> level != 0; ++level)  // the sums of larger runs before are left
        if ((item >> level & 1) != 0) sum = kept[level] + sum;
    }
    return sum;
  }
};

}  // namespace detail

template <>
class RankSumsMemory<Cuda> {
 public:
  template <class T>
  using Block = DeviceBlock<T>;

  RankSumsMemory() = default;
  explicit RankSumsMemory(const Cuda& context) : computes_(context.stream()) {}

  Error make(std::size_t ranks, std::size_t blocks, std::size_t chunks) {
    if (ranks > detail::most_device_ranks)
      return Error::say("sums in the memory of devices are over ", detail::most_device_ranks,
                        " ranks at most, and there are ", ranks);
    computed_.resize(blocks);
    sums_.resize(chunks);
    Error why = event(joined_);
    for (Event& one : computed_)
      if (!why) why = event(one);
    for (Stream& one : sums_)
      if (!why) why = said(cudaStreamCreateWithFlags(one.place(), cudaStreamNonBlocking));
    return why;
  }
  Error computed(std::size_t block) {
    return said(cudaEventRecord(computed_[block].get(), computes_));
  }
  Result<const void*> wait(std::size_t slot, std::size_t block) {
    const cudaStream_t stream = sums_[slot].get();
    if (const Error why = said(cudaStreamWaitEvent(stream, computed_[block].get(), 0))) return why;
    return static_cast<const void*>(stream);
  }
  template <class T>
  Error add(std::size_t slot, T* to, const T* const* from, std::size_t count, std::size_t elems) {
    detail::PairwiseSumBody<T> body{{}, count, elems};
    for (std::size_t r = 0; r < count; ++r) body.from[r] = from[r];
    Cuda beside(sums_[slot].get());
    beside.map("sums over ranks", View<T>(to, Shape(elems)), body);
    return beside.take_error();
  }
  Error join() {
    for (const Stream& stream : sums_) {
      if (const Error why = said(cudaEventRecord(joined_.get(), stream.get()))) return why;
      if (const Error why = said(cudaStreamWaitEvent(computes_, joined_.get(), 0))) return why;
    }
    return {};
  }

 private:
  using Event = detail::CudaHandle<cudaEvent_t, cudaEventDestroy>;
  using Stream = detail::CudaHandle<cudaStream_t, cudaStreamDestroy>;

  static Error said(cudaError_t status) {
    if (status == cudaSuccess) return {};
    return Error::say("sums over ranks: CUDA says ", cudaGetErrorString(status));
  }
  static Error event(Event& to) {
    return said(cudaEventCreateWithFlags(to.place(), cudaEventDisableTiming));
  }

  cudaStream_t computes_ = nullptr;
  Array<Event> computed_;  ///< by place in the queue of blocks
  Array<Stream> sums_;     ///< by chunk under way
  Event joined_;
};

}}  // namespace adacc::v0_1
