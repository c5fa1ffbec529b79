// SPDX-License-Identifier: MIT
/// A Training on a CUDA device: arena, parameters, gradients and state in the device's memory.
///
///     auto training = Training<float, Cuda>::make(net, *make_program<Cuda>(net, shape), *cuda);
///     training->step(tokens, targets, 1e-3);   // of device memory
///
/// Under a plan of the caller's, as in make() of a Program: measuring and probing, which an evolving
/// plan rests on, take the host's clock and memory, and so do checkpoints. step() and update() wait
/// for the loss and the norm; a loop that must not wait queues Step, gradient_norm() and AdamW.
#pragma once

#include <limits>

#include "../core/device_block.cuh"
#include "adamw.cuh"
#include "gradient_norm.cuh"

#pragma nv_diagnostic push
#pragma nv_diag_suppress 2810  // nvcc takes the assignment of a Result for one that is ignored
#include "training.hpp"
#pragma nv_diagnostic pop

namespace adacc { inline namespace v0_1 {

template <>
class TrainingMemory<Cuda> {
 public:
  template <class T>
  using Block = DeviceBlock<T>;

  Error make(const Cuda& cuda) {
    stream_ = cuda.stream();
    auto places = DeviceBlock<double>::make(gradient_norm_places + 1, "loss and norm");
    if (!places) return places.error;
    places_ = static_cast<DeviceBlock<double>&&>(*places);
    return {};
  }
  template <class Step>
  Error bind(Step& step) {
    return step.bind_loss(Cuda::Loss(places_.data() + gradient_norm_places, stream_));
  }

  /// The same numbers as on the host, which draws them.
  template <class Table, class T>
  Error initialize(Cuda& cuda, const Table& table, View<T> params, std::uint64_t seed) {
    auto drawn = adacc::Block<T>::make(params.size(), "initial parameters");
    if (!drawn) return drawn.error;
    Cpu cpu;
    initialize_parameters(cpu, table, drawn->view(), seed);
    if (const Error why = copy_to_device(cuda, drawn->view(), params)) return why;
    if (cudaStreamSynchronize(stream_) != cudaSuccess) return cuda.take_error();
    return {};
  }
  Error failure(Cuda& cuda) { return cuda.take_error(); }
  template <class T>
  double norm(Cuda& cuda, View<T> gradients) {
    double norm = std::numeric_limits<double>::quiet_NaN();
    gradient_norm(cuda, gradients, places_.view());
    cuda.note(
        copy_to_host(cuda, View<double>(places_.data(), Shape(1)), View<double>(&norm, Shape(1))));
    return norm;
  }

 private:
  cudaStream_t stream_ = nullptr;
  DeviceBlock<double> places_;  ///< of the norm and, last, of the loss
};

}}  // namespace adacc::v0_1
