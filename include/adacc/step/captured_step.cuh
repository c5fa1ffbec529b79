// SPDX-License-Identifier: MIT
/// A step on a device, captured as a CUDA graph and replayed as long as the graph's contents are valid.
///
///     CapturedStep captured;
///     captured.run(step, cuda, tokens, targets);   // the first one queues one kernel after the other
///
/// A graph is launched as a whole, in the time of a few kernels. The graph holds addresses and the random key, so steps
/// that draw numbers are never captured, nor watched steps, whose blobs the host reads. With a program, binding,
/// stream, input, targets or lengths of sequences other than the step before, a step runs uncaptured; the next one with
/// all of them unchanged is captured. (cuBLASLt chooses the algorithm for a shape when first seen, which cannot be done
/// during capture.) Steps that write gradients and steps that add to them (Step::write_gradients) have a graph each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/cuda.cuh"
#include "../core/cuda_handle.cuh"
#include "step.hpp"

namespace adacc { inline namespace v0_1 {

class CapturedStep {
 public:
  /// One whole step, like Step::run().
  template <class T>
  Result<double> run(Step<T, Cuda>& step, Cuda& cuda, AnyView input, AnyView targets) {
    return run(step, cuda, input, targets, [] {});
  }
  /// Like Step::run_then(). What `then` queues is no part of the graph.
  template <class T, class Then>
  Result<double> run(Step<T, Cuda>& step, Cuda& cuda, AnyView input, AnyView targets,
                     const Then& then) {
    if (step.watches()) return step.run_then(cuda, input, targets, then);
    const Held now{step.programs(), step.bindings(),     cuda.stream(),      input.data(),
                   targets.data(),  cuda.lengths.data(), cuda.lengths.size()};
    last_ = step.writes_gradients() ? 1 : 0;
    Recording& at = recordings_[last_];
    if (!(now == at.held)) {
      at = {};
      at.held = now;
      return step.run_then(cuda, input, targets, then);
    }
    if (at.graph.get() == nullptr && !at.failure)
      at.failure = capture(at, step, cuda, input, targets);
    if (at.failure) return step.run_then(cuda, input, targets, then);
    const Result<double> loss = step.run_recorded(cuda, input, targets, [&]() -> Error {
      const cudaError_t status = cudaGraphLaunch(at.graph.get(), cuda.stream());
      if (status == cudaSuccess) return then(), Error();
      return Error::say("CUDA did not start a captured step: ", cudaGetErrorString(status));
    });
    if (loss) ++replays_;
    return loss;
  }

  /// How many steps were launches of a graph.
  std::uint64_t replays() const { return replays_; }
  /// By how many bytes free memory of the device fell when the graph was made; 0 without a graph. The driver's own
  /// memory, beside the arena. The driver takes memory in blocks, so a second graph may need no more.
  std::size_t graph_bytes() const { return recordings_[0].bytes + recordings_[1].bytes; }
  /// Why they are not; none if they are, or were not to be captured yet.
  const Error& failure() const { return recordings_[last_].failure; }

 private:
  /// Contents of a graph.
  struct Held {
    std::uint64_t program = 0, binding = 0;
    cudaStream_t stream = nullptr;
    const void *input = nullptr, *targets = nullptr;
    const std::int32_t* lengths = nullptr;
    std::size_t length_count = 0;
    friend bool operator==(const Held&, const Held&) = default;
  };

  struct Recording {
    Held held;
    detail::CudaHandle<cudaGraphExec_t, &cudaGraphExecDestroy> graph;
    std::size_t bytes = 0;  ///< of the driver's memory
    Error failure;
  };

  template <class T>
  static Error capture(Recording& at, Step<T, Cuda>& step, Cuda& cuda, AnyView input,
                       AnyView targets) {
    if (step.draws_numbers())
      return Error::say(
          "the step draws random numbers, and a graph keeps the key it was captured with");
    if (cuda.stream() == nullptr)
      return Error::say(
          "the step runs on the default stream, which CUDA does not capture: make a stream");
    const auto says = [](const char* what, cudaError_t status) {
      static_cast<void>(cudaGetLastError());
      return Error::say(what, ": CUDA says ", cudaGetErrorString(status));
    };
    if (const cudaError_t status =
            cudaStreamBeginCapture(cuda.stream(), cudaStreamCaptureModeThreadLocal);
        status != cudaSuccess)
      return says("the stream cannot be captured", status);
    const Error why = step.submit(cuda, input, targets);
    detail::CudaHandle<cudaGraph_t, &cudaGraphDestroy> graph;
    const cudaError_t ended = cudaStreamEndCapture(cuda.stream(), graph.place());
    if (why) return why;
    if (ended != cudaSuccess) return says("the step cannot be captured", ended);
    const std::size_t before = free_bytes();
    if (const cudaError_t status = cudaGraphInstantiate(at.graph.place(), graph.get(), 0);
        status != cudaSuccess)
      return says("no graph can be made of the step", status);
    if (const cudaError_t status = cudaGraphUpload(at.graph.get(), cuda.stream());
        status != cudaSuccess)
      return at.graph = {}, says("the graph of the step has no room on the device", status);
    const std::size_t behind = free_bytes();
    at.bytes = before > behind ? before - behind : 0;
    return {};
  }

  static std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) == cudaSuccess) return free;
    static_cast<void>(cudaGetLastError());
    return 0;
  }

  Recording recordings_[2];  ///< of steps that add to gradients, and of steps that write them
  std::size_t last_ = 0;     ///< of the last step
  std::uint64_t replays_ = 0;
};

}}  // namespace adacc::v0_1
