// SPDX-License-Identifier: MIT
/// A network whose rows get uneven from some step on, so that a codec with one scale for several rows loses
/// some.
#pragma once

#include "../rough_codec.hpp"
#include "growing_net.hpp"

namespace uneven_net {

using namespace adacc;
using rough::Rough;

struct Tolerant : growing_net::Dense {
  static constexpr const char* name = "tolerant";
  using input_codecs = CodecList<Rough, Bf16>;
};

/// The step from which every other row is small.
inline std::uint32_t uneven_from = ~std::uint32_t{0};

struct Uneven {
  static constexpr const char* name = "uneven";
  static constexpr auto backward_reads = reads::none;
  static float factor(const Cpu& cpu, std::size_t row) {
    return row % 2 == 0 || cpu.key.step < uneven_from ? 1.0F : 1e-3F;
  }
  template <class T>
  void forward(Cpu& cpu, View<const T> x, View<T> y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * factor(cpu, i / x.cols());
  }
  template <class T>
  void backward(Cpu& cpu, View<const T> dy, View<T> dx) const {
    for (std::size_t i = 0; i < dy.size(); ++i) dx[i] = dy[i] * factor(cpu, i / dy.cols());
  }
};

/// Activations behind the second are uneven.
template <class Kept = Planned>
using Net = Network<Sequential<Layer<Tolerant, Kept>, Layer<Tolerant, Kept>, Layer<Uneven, Kept>,
                               Repeat<Layer<Tolerant, Kept>>, Layer<Tolerant, Retain>>,
                    random_model::HalfSquare>;
template <class Kept = Planned>
inline const Net<Kept> net{{{}, {}, {}, Repeat<Layer<Tolerant, Kept>>{3, {}}, {}}, {}};
inline const Shape shape(64, 32);

/// Rough is all but free.
inline CostProfile profile(const Graph& of) {
  CostProfile made = empty_profile(of);
  for (int k = 0; k < of.node_count(); ++k) {
    made.nodes[static_cast<std::size_t>(k)] = {1e-2, 2e-2, 0, 0};
    made.codec_cost(k, made.column(&codec_info<Rough>)) = {1e-5, 1e-5, 1e-4, 2e-4};
    made.codec_cost(k, made.column(&codec_info<Bf16>)) = {1e-3, 1e-3, 1e-6, 2e-6};
  }
  return made;
}

inline int roughly_kept(const Plan& plan) {
  int count = 0;
  for (const Policy& policy : plan.policies) count += policy.codec() == &codec_info<Rough> ? 1 : 0;
  return count;
}

}  // namespace uneven_net
