// SPDX-License-Identifier: MIT
// expect: a layer says what it needs in one function: write constexpr LayerNeeds needs(Shape in, NeedsQuery query) const
#include <adacc/core/cpu.hpp>
#include <adacc/model/contract.hpp>

using namespace adacc;

struct Halve {
  static constexpr auto backward_reads = reads::none;
  void forward(Cpu&, View<const float> x, View<float> y) const;
  void backward(Cpu&, View<const float> dy, View<float> dx) const;
#ifdef SHOULD_FAIL
  constexpr std::size_t workspace_bytes(Shape in, Dtype, int, Pass) const { return in.cols(); }
#else
  constexpr LayerNeeds needs(Shape in, NeedsQuery) const { return {.workspace = in.cols()}; }
#endif
};

static_assert(layer_traits<Halve>::needs(Halve{}, Shape(2, 3), {}).workspace == 3);
