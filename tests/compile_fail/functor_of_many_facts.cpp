// SPDX-License-Identifier: MIT
// expect: a layer's declarations of yes or no are one value: write static constexpr LayerFacts facts
#include <adacc/core/cpu.hpp>
#include <adacc/model/contract.hpp>

using namespace adacc;

struct Halve {
  static constexpr auto backward_reads = reads::none;
#ifdef SHOULD_FAIL
  static constexpr bool dx_overwrites_dy = true;
#else
  static constexpr LayerFacts facts{.dx_overwrites_dy = true};
#endif
  void forward(Cpu&, View<const float> x, View<float> y) const;
  void backward(Cpu&, View<const float> dy, View<float> dx) const;
};

static_assert(layer_traits<Halve>::facts().dx_overwrites_dy);
