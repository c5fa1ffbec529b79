// SPDX-License-Identifier: MIT
// expect: a layer functor must say what its backward reads
#include <adacc/core/cpu.hpp>
#include <adacc/model/contract.hpp>

using adacc::View;

struct Halve {
#ifndef SHOULD_FAIL
  static constexpr auto backward_reads = adacc::reads::none;
#endif
  void forward(adacc::Cpu&, View<const float> x, View<float> y) const;
  void backward(adacc::Cpu&, View<const float> dy, View<float> dx) const;
};

void run(adacc::Cpu& cpu) { adacc::call_backward(Halve{}, cpu, adacc::BackwardCall<float>{}); }
