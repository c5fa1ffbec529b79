// SPDX-License-Identifier: MIT
/// The layers and losses whose device twins are compared with the CPU's, and their inputs.
///
/// The CPU's layers are compiled by the host's compiler, in layers_cpu.cpp, as users have them.
#pragma once

#include <adacc/core/bfloat16.hpp>
#include <adacc/core/random.hpp>
#include <adacc/layer/attention.hpp>
#include <adacc/layer/causal_attention.hpp>
#include <adacc/layer/cross_entropy_head.hpp>
#include <adacc/layer/dropout.hpp>
#include <adacc/layer/embedding.hpp>
#include <adacc/layer/erf_gelu.hpp>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/layer_norm.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/lora_linear.hpp>
#include <adacc/layer/mean_squared_error.hpp>
#include <adacc/layer/relu.hpp>
#include <adacc/layer/rms_norm.hpp>
#include <adacc/layer/rotary_embedding.hpp>
#include <adacc/layer/silu.hpp>
#include <adacc/layer/softmax_cross_entropy.hpp>
#include <adacc/layer/swiglu.hpp>

#include <cstdint>
#include <vector>

namespace layers {

using namespace adacc;

/// How a case is called.
struct Call {
  bool training = true, exact = true;
  bool in_place = false;  ///< dx is dy, or, of a loss, x
  bool without_dx = false;
  bool adds_y = false, adds_dx = false;  ///< residual sums beside the layer
  bool shifts = false;                   ///< tensors may begin anywhere, which changes no bit
  bool shifted = false;                  ///< and here they do
  bool ignores = false;                  ///< two of three targets are ignored
  std::size_t divisor = 0;               ///< of a loss over classes
  Wanted wanted{};
  std::vector<std::int32_t> lengths{};  ///< of sequences that end early
  RandomKey key{.seed = 5, .step = 4, .micro_step = 3, .activation = 2};
};

struct Inputs {
  std::vector<Parameter> table;
  std::vector<float> params, x, dy, added;  ///< added: to y and dx
  std::vector<std::int32_t> tokens, targets;
  std::vector<float> gradients;  ///< what is there before
};

struct Outcome {
  std::vector<float> y, dx, gradients;
  double loss = 0;
};

/// In [-3, 3], and one of the numbers that bfloat16 has: what is computed from those in bfloat16 is as exact
/// as its result.
inline float value(std::uint32_t stream, std::size_t i) {
  return to_float(
      to_bfloat16(6 * unit_float(random_word({99, 0, 0, stream, Purpose::probe}, i)) - 3));
}

template <class F>
constexpr bool is_loss = requires(const F& f, Shape in) {
  f.target_shape(in);
}
|| std::is_same_v<F, MeanSquaredError>;

template <class F>
Inputs inputs(const F& f, Shape in, std::size_t vocab) {
  using Traits = layer_traits<F>;
  Inputs made;
  std::size_t elems = 0;
  Traits::parameters(f, in, [&](const ParameterSpec& spec) {
    Parameter parameter;
    static_cast<ParameterSpec&>(parameter) = spec;
    parameter.offset = elems;
    parameter.frozen = false;  // whose gradients are wanted, calls say
    elems += align_up(spec.shape.elems() * sizeof(float)) / sizeof(float);
    made.table.push_back(parameter);
  });
  made.params.resize(elems), made.gradients.resize(elems);
  for (std::uint32_t p = 0; p < made.table.size(); ++p)
    for (std::size_t i = 0; i < made.table[p].shape.elems(); ++i) {
      made.params[made.table[p].offset + i] = to_float(to_bfloat16(1 + 0.25F * value(10 + p, i)));
      made.gradients[made.table[p].offset + i] = value(30 + p, i);
    }
  for (std::size_t i = 0; i < in.elems(); ++i) {
    made.x.push_back(value(8, i));
    made.tokens.push_back(static_cast<std::int32_t>(random_word({}, i) % (vocab + 2)) - 1);
    made.targets.push_back(static_cast<std::int32_t>(random_word({.seed = 1}, i) % vocab));
  }
  const std::size_t outputs = Traits::output_shape(f, in).elems();
  for (std::size_t i = 0; i < outputs; ++i) made.dy.push_back(value(9, i));
  for (std::size_t i = 0; i < outputs + in.elems(); ++i) made.added.push_back(value(7, i));
  return made;
}

/// What the CPU's layer makes of them.
template <class F>
Outcome cpu_run(const F& f, Shape in, const Inputs& inputs, const Call& call);

}  // namespace layers
