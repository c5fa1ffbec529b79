// SPDX-License-Identifier: MIT
// expect: a layer with parameters gets them in a call
#include <adacc/core/cpu.hpp>
#include <adacc/model/contract.hpp>

#include <array>

using namespace adacc;

struct Scale {
  static constexpr auto backward_reads = reads::none;
  constexpr std::array<ParameterSpec, 1> parameters(Shape) const {
    return {ParameterSpec{.name = "w", .shape = Shape(1)}};
  }
#ifdef SHOULD_FAIL
  void forward(Cpu&, View<const float> x, View<float> y) const;
#else
  void forward(Cpu&, const ForwardCall<float>& call) const;
#endif
  void backward(Cpu&, const BackwardCall<float>& call) const;
};

void run(Cpu& cpu, const ForwardCall<float>& call) { call_forward(Scale{}, cpu, call); }
