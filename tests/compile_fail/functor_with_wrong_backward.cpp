// SPDX-License-Identifier: MIT
// expect: a layer functor needs a const member backward(Context&, [x or y,] View<const T> dy, View<T> dx) with x or y as its backward_reads names it
#include <adacc/core/cpu.hpp>
#include <adacc/model/contract.hpp>

using adacc::View;

struct Square {
  static constexpr auto backward_reads = adacc::reads::input;
  void forward(adacc::Cpu&, View<const float> x, View<float> y) const;
#ifdef SHOULD_FAIL
  void backward(adacc::Cpu&, View<const float> dy, View<float> dx) const;  // where is x?
#else
  void backward(adacc::Cpu&, View<const float> x, View<const float> dy, View<float> dx) const;
#endif
};

void run(adacc::Cpu& cpu) { adacc::call_backward(Square{}, cpu, adacc::BackwardCall<float>{}); }
