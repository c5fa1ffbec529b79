// SPDX-License-Identifier: MIT
// expect: a layer functor needs a const member forward(Context&, View<const T> x, View<T> y)
#include <adacc/core/cpu.hpp>
#include <adacc/model/contract.hpp>

using adacc::View;

struct Halve {
  static constexpr auto backward_reads = adacc::reads::none;
#ifndef SHOULD_FAIL
  void forward(adacc::Cpu&, View<const float> x, View<float> y) const;
#endif
  void backward(adacc::Cpu&, View<const float> dy, View<float> dx) const;
};

void run(adacc::Cpu& cpu) { adacc::call_forward(Halve{}, cpu, adacc::ForwardCall<float>{}); }
