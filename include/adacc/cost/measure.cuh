// SPDX-License-Identifier: MIT
/// Measuring on a CUDA device: an event after each instruction, and no wait before the end of the step. So a time is
/// the stream's time from the end of one instruction to the end of the next, launch delays included, as in training.
#pragma once

#include "../core/cuda.cuh"
#include "../core/cuda_handle.cuh"
#include "../core/steady_clock.hpp"
#include "measure.hpp"

namespace adacc { inline namespace v0_1 {

/// Steady seconds when all work queued on a stream has ended: the clock of a Training in Cuda.
class StreamClock {
 public:
  explicit StreamClock(cudaStream_t stream) : stream_(stream) {}
  double operator()() const {
    static_cast<void>(cudaStreamSynchronize(stream_));  // the next call reports failures, too
    return steady_seconds();
  }

 private:
  cudaStream_t stream_;
};

namespace detail {

template <>
class InstructionTimes<Cuda> {
 public:
  Error make(std::size_t instructions, ClockRef) {
    events_ = Array<Event>(instructions + 1);
    for (Event& event : events_)
      if (const cudaError_t status = cudaEventCreate(event.place()); status != cudaSuccess)
        return fault(status);
    return {};
  }

  void begin(Cuda& cuda, Array<double>&) {
    last_ = 0;
    status_ = cudaEventRecord(events_[0].get(), cuda.stream());
  }
  void after(Cuda& cuda, std::size_t instruction, Array<double>&) {
    last_ = instruction + 1;
    const cudaError_t status = cudaEventRecord(events_[last_].get(), cuda.stream());
    if (status_ == cudaSuccess) status_ = status;
  }
  Error end(Cuda&, Array<double>& seconds) {
    if (status_ == cudaSuccess) status_ = cudaEventSynchronize(events_[last_].get());
    double all = 0;
    for (std::size_t i = 0; i < last_ && status_ == cudaSuccess; ++i) {
      float milliseconds = 0;
      status_ = cudaEventElapsedTime(&milliseconds, events_[i].get(), events_[i + 1].get());
      seconds[i] = static_cast<double>(milliseconds) / 1e3;
      all += seconds[i];
    }
    return status_ == cudaSuccess ? check_step_seconds(true, all) : fault(status_);
  }

 private:
  using Event = CudaHandle<cudaEvent_t, &cudaEventDestroy>;

  static Error fault(cudaError_t status) {
    static_cast<void>(cudaGetLastError());
    return Error::say("measuring by events: CUDA says ", cudaGetErrorString(status));
  }

  Array<Event> events_;
  std::size_t last_ = 0;
  cudaError_t status_ = cudaSuccess;
};

}  // namespace detail

}}  // namespace adacc::v0_1
