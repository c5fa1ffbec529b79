// SPDX-License-Identifier: MIT
/// The host umbrella in a CUDA source: what trainers with kernels of their own include.
#include <adacc/adacc.hpp>
#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>

namespace trainer {

using adacc::Bytes;
using adacc::Cpu;
using adacc::LossCall;
using adacc::View;

struct Square {
  static constexpr auto backward_reads = adacc::reads::input;
  void forward(Cpu&, View<const float> x, View<float> y) const;
  void backward(Cpu&, View<const float> x, View<const float> dy, View<float> dx) const;
};

struct Loss {
  double forward(Cpu&, const LossCall<float>&) const;
  double forward_backward(Cpu&, const LossCall<float>&) const;
};

/// The peak is a constant under nvcc's front ends, too.
template <class Policy>
constexpr std::size_t peak() {
  using Kept = adacc::Layer<Square, adacc::Retain>;
  using Chosen = adacc::Layer<Square, Policy>;
  using Part = adacc::Sequential<Chosen, Chosen, Kept>;
  using Model = adacc::Sequential<Part, Part, Part, Part>;
  return adacc::peak_bytes<adacc::Network<Model, Loss>>(adacc::Shape(64, 64));
}
static_assert(peak<adacc::Recompute>() > 0);
static_assert(peak<adacc::Recompute>() < peak<adacc::Retain>());

/// The host's codecs, in vectors that nvcc has to get through.
template <class Codec>
adacc::Error keep(Codec, Cpu& cpu, View<const float> x, Bytes blob, View<float> y) {
  if (adacc::Error error = Codec::template encode<float>(cpu, x, blob)) return error;
  return Codec::template decode<float>(cpu, blob, y);
}
adacc::Error keep_all(Cpu& cpu, View<const float> x, Bytes blob, View<float> y) {
  using namespace adacc;
  if (Error error = keep(Int8Outlier{}, cpu, x, blob, y)) return error;
  if (Error error =
          keep(Int4OutlierWith<Int4Options{.rounding = Rounding::stochastic}>{}, cpu, x, blob, y))
    return error;
  if (Error error = keep(Int8OutlierWith<Int8Options{.group = 128}>{}, cpu, x, blob, y))
    return error;
  return keep(Int8OutlierWith<Int8Options{.group = whole_row, .outliers = Outliers::channels}>{},
              cpu, x, blob, y);
}

/// A user's own kernel on a tensor whose shape the library knows.
__global__ void halve(const float* x, float* y, std::size_t elems) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < elems) y[i] = 0.5F * x[i];
}

void launch_halve(View<const float> x, View<float> y, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((x.size() + 255) / 256);
  halve<<<blocks, 256, 0, stream>>>(x.data(), y.data(), x.size());
}

}  // namespace trainer
