// SPDX-License-Identifier: MIT
// expect: a member of this functor is not as in model/contract.hpp, and would never be called
#include <adacc/core/cpu.hpp>
#include <adacc/model/contract.hpp>

using namespace adacc;

struct Halve {
  static constexpr auto backward_reads = reads::none;
  void forward(Cpu&, View<const float> x, View<float> y) const;
  void backward(Cpu&, View<const float> dy, View<float> dx) const;
#ifdef SHOULD_FAIL
  constexpr LayerNeeds needs(Shape in) const { return {.workspace = in.cols()}; }
#else
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const { return {.workspace = in.cols()}; }
#endif
};

static_assert(layer_traits<Halve>::name() != nullptr);
