// SPDX-License-Identifier: MIT
// expect: the second argument of Layer is a policy: Retain, Recompute, Planned, Compress<Codec> or Offload<>
#include <adacc/model/layer.hpp>
#include <adacc/policy/recompute.hpp>

struct Gelu {};

#ifdef SHOULD_FAIL
adacc::Layer<Gelu, Gelu> layer;
#else
adacc::Layer<Gelu, adacc::Recompute> layer;
#endif
