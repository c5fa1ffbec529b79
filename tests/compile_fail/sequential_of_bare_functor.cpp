// SPDX-License-Identifier: MIT
// expect: wrap a functor in Layer
#include <adacc/model/sequential.hpp>

struct Gelu {
  static constexpr auto backward_reads = adacc::reads::input;
};

#ifdef SHOULD_FAIL
adacc::Sequential<adacc::Layer<Gelu>, Gelu> model;
#else
adacc::Sequential<adacc::Layer<Gelu>, adacc::Layer<Gelu>> model;
#endif
