// SPDX-License-Identifier: MIT
/// A Training on a CUDA device: arena, parameters, gradients and state in the device's memory.
///
///     auto training = Training<float, Cuda>::make(net, *make_program<Cuda>(net, shape), *cuda);
///     training->step(tokens, targets, 1e-3);   // in device memory
///
/// Trains under the caller's plan, or within a budget. Within a budget costs are estimated or, with a clock,
/// measured before the first step (cost/measure.cuh), and the plan evolves as on the CPU but for the link's
/// speed. Unless Cuda::capture_steps is off, steps are CUDA graphs while the plan stands (step/captured_step.cuh). A graph
/// captured by you from compiled_step() has addresses of the arena, which a change of plan exchanges:
/// capture anew once compiled_step().programs() has changed. Checkpoints of device and CPU are the same:
/// either goes on from the other's. Activations may be sent to a PinnedHost of the same stream. The
/// clock has to wait for the device (StreamClock). step() waits once, for loss and norm together; accumulate() waits for
/// the loss, and update() for the norm; a loop that must not wait queues Step, gradient_norm() and AdamW.
#pragma once

#include <cstddef>
#include <limits>

#include "../core/device_block.cuh"
#include "../core/host_threads.hpp"
#include "../cost/gradient_sketch.cuh"
#include "../cost/measure.cuh"
#include "../optimizer/adamw.cuh"
#include "../optimizer/gradient_norm.cuh"
#include "../step/captured_step.cuh"

#pragma nv_diagnostic push
#pragma nv_diag_suppress 2810  // nvcc takes the assignment of a Result for an ignored Result
#include "training.hpp"
#pragma nv_diagnostic pop

namespace adacc { inline namespace v0_1 {

template <>
class TrainingMemory<Cuda> {
 public:
  template <class T>
  using Block = DeviceBlock<T>;
  static constexpr bool on_host = false;

  Error make(const Cuda& cuda) {
    stream_ = cuda.stream();
    auto places =
        DeviceBlock<double>::make(norm_at + gradient_norm_places, "loss, report and norm");
    if (!places) return places.error;
    places_ = static_cast<DeviceBlock<double>&&>(*places);
    return {};
  }
  template <class Step>
  Error bind(Step& step) {
    return step.bind_loss(Cuda::Loss(reinterpret_cast<Cuda::StepResult*>(places_.data()), stream_));
  }

  /// Draws numbers on the host's threads, and copies them: the same numbers as there.
  template <class Table, class T>
  Error initialize(Cuda&, const Table& table, View<T> params, std::uint64_t seed) {
    return write(params, [&](View<T> drawn) {
      HostThreads threads;
      Cpu cpu{ExecutorRef(threads)};
      initialize_parameters(cpu, table, drawn, seed);
      return Error();
    });
  }
  Error copy_parameters(View<const float> params, View<bfloat16> copies) const {
    if (copies.empty()) return {};
    Cuda cuda(stream_);
    const std::size_t elems = params.size();
    cuda.set_bytes("copies of parameters",
                   Bytes(reinterpret_cast<std::byte*>(copies.data() + elems),
                         Shape((copies.size() - elems) * sizeof(bfloat16))),
                   0);
    cuda.narrow("copies of parameters", params, copies);
    return cuda.take_error();
  }
  Error failure(Cuda& cuda) { return cuda.take_error(); }
  template <class T, class Use>
  Error read(View<const T> block, const Use& use) const {
    auto copy = adacc::Block<T>::make(block.size(), "a copy for the host");
    if (!copy) return copy.error;
    Cuda cuda(stream_);
    if (const Error why = copy_to_host(cuda, block, copy->view())) return why;
    return use(View<const T>(copy->data(), block.shape()));
  }
  template <class T, class Fill>
  Error write(View<T> block, const Fill& fill) const {
    return write(block, fill, false);
  }
  template <class T, class Change>
  Error change(View<T> block, const Change& change) const {
    return write(block, change, true);
  }
  /// By events of the stream, since a clock would wait for all that is queued: each step, and each update.
  void start(ClockRef clock) {
    ended_ = false;
    timed_ = clock && (began_.get() != nullptr || make_events()) &&
             cudaEventRecord(began_.get(), stream_) == cudaSuccess;
  }
  /// Behind run(), which has waited for the step; 0 behind an update, which is still under way.
  double elapsed(ClockRef) {
    float milliseconds = 0;
    if (!ended_) return 0;
    if (cudaEventElapsedTime(&milliseconds, began_.get(), end_.get()) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // this call's own
      return 0;
    }
    return static_cast<double>(milliseconds) / 1e3;
  }
  template <class Step, class T>
  Result<double> run(Step& step, Cuda& cuda, AnyView input, AnyView targets, View<T> gradients) {
    const auto then = [&] {
      ended_ = timed_ && cudaEventRecord(end_.get(), stream_) == cudaSuccess;
      if (!gradients.empty()) gradient_norm(cuda, gradients, norm_places());
    };
    const Result<double> loss = cuda.capture_steps ? captured_.run(step, cuda, input, targets, then)
                                                   : step.run_then(cuda, input, targets, then);
    knows_norm_ = loss && !gradients.empty();
    if (knows_norm_) norm_ = step.lent_loss().norm();
    return loss;
  }
  std::uint64_t captured_steps() const { return captured_.replays(); }
  std::size_t captured_bytes() const { return captured_.graph_bytes(); }
  const Error& capture_failure() const { return captured_.failure(); }

  template <class T>
  double norm(Cuda& cuda, View<T> gradients) {
    if (knows_norm_) return knows_norm_ = false, norm_;
    double norm = std::numeric_limits<double>::quiet_NaN();
    gradient_norm(cuda, gradients, norm_places());
    cuda.note(copy_to_host(cuda, View<double>(norm_places().data(), Shape(1)),
                           View<double>(&norm, Shape(1))));
    return norm;
  }

 private:
  /// `has_old`: `fill` gets the numbers of the block, and may leave some as they are.
  template <class T, class Fill>
  Error write(View<T> block, const Fill& fill, bool has_old) const {
    auto copy = adacc::Block<T>::make(block.size(), "a copy for the device");
    if (!copy) return copy.error;
    Cuda cuda(stream_);
    if (has_old)
      if (const Error why = copy_to_host(cuda, View<const T>(block), copy->view())) return why;
    if (const Error why = fill(View<T>(copy->data(), block.shape()))) return why;
    if (const Error why = copy_to_device(cuda, View<const T>(copy->view()), block)) return why;
    if (cudaStreamSynchronize(stream_) != cudaSuccess) return cuda.take_error();
    return {};
  }

  /// A StepResult ends with the norm, behind which gradient_norm() has its places.
  static constexpr std::size_t norm_at = sizeof(Cuda::StepResult) / sizeof(double) - 1;
  static_assert(offsetof(Cuda::StepResult, norm) == norm_at * sizeof(double));
  View<double> norm_places() { return {places_.data() + norm_at, Shape(gradient_norm_places)}; }

  bool make_events() {
    return cudaEventCreate(began_.place()) == cudaSuccess &&
           cudaEventCreate(end_.place()) == cudaSuccess;
  }

  cudaStream_t stream_ = nullptr;
  detail::CudaHandle<cudaEvent_t, &cudaEventDestroy> began_, end_;
  bool timed_ = false, ended_ = false;
  DeviceBlock<double> places_;  ///< a StepResult, and the places of its norm
  double norm_ = 0;             ///< of the gradients behind the last step
  bool knows_norm_ = false;
  CapturedStep captured_;
};

}}  // namespace adacc::v0_1
