// SPDX-License-Identifier: MIT
// expect: this layer's backward takes its nine arguments one by one; write backward(Context&, const BackwardCall<T>& call) const
#include <adacc/core/cpu.hpp>
#include <adacc/model/contract.hpp>

using adacc::View;

struct Scale {
  static constexpr auto backward_reads = adacc::reads::input;
  void forward(adacc::Cpu&, const adacc::ForwardCall<float>& call) const;
#ifdef SHOULD_FAIL
  void backward(adacc::Cpu&, adacc::Params<const float>, View<const float> x, View<const float> y,
                View<const float> dy, View<float> dx, adacc::Params<float> dparams,
                adacc::ConstBytes aux, adacc::Bytes workspace) const;
#else
  void backward(adacc::Cpu&, const adacc::BackwardCall<float>& call) const;
#endif
};

void run(adacc::Cpu& cpu) { adacc::call_backward(Scale{}, cpu, adacc::BackwardCall<float>{}); }
