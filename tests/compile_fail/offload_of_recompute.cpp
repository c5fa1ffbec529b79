// SPDX-License-Identifier: MIT
// expect: what is recomputed or left to the planner is not kept, so it cannot be sent
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/policy/compress.hpp>
#include <adacc/policy/offload.hpp>
#include <adacc/policy/recompute.hpp>

#ifdef SHOULD_FAIL
using Sent = adacc::Recompute;
#else
using Sent = adacc::Compress<adacc::Int8Outlier>;
#endif

constexpr adacc::Policy policy() { return adacc::Offload<Sent>::value; }
