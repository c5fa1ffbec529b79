// SPDX-License-Identifier: MIT
// expect: the last layer of a Residual must not read its own output in backward
#include <adacc/model/residual.hpp>

struct Relu {
#ifdef SHOULD_FAIL
  static constexpr auto backward_reads = adacc::reads::output;
#else
  static constexpr auto backward_reads = adacc::reads::input;
#endif
};

adacc::Residual<adacc::Layer<Relu>> model;
