// SPDX-License-Identifier: MIT
// Updates and norms at every instruction level: the levels that fuse multiply-adds have the same bits.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "adacc/core/block.hpp"
#include "adacc/core/cpu.hpp"
#include "adacc/optimizer/adafactor.hpp"
#include "adacc/optimizer/any_optimizer.hpp"
#include "adacc/optimizer/lion.hpp"
#include "adacc/optimizer/sgd.hpp"
#include "adacc/optimizer/update_table.hpp"

namespace optimizer_levels_test { namespace {

using namespace adacc;

/// Parameters, gradients and state after three updates, as bytes.
using Bits = std::vector<std::byte>;

ParameterSpec matrix() { return {"weight", Shape(37, 301), Init::zeros(), true}; }

Array<Parameter> table_of_one() {
  Parameter parameter;
  static_cast<ParameterSpec&>(parameter) = matrix();
  Array<Parameter> table;
  table.push_back(parameter);
  return table;
}

void draw(View<float> to, std::uint64_t seed, float size) {
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = size * (unit_float(random_word({.seed = seed}, i)) - 0.5F);
}

/// Calls run(update), where update(range, terms) updates a range, for a parameter of 37 x 301 numbers.
template <class Optimizer, class Update>
Bits run(const Optimizer& optimizer, const Update& update) {
  const ParameterSpec spec = matrix();
  const std::size_t elems = spec.shape.elems();
  auto values = *Block<float>::make(elems, "values"), gradient = *Block<float>::make(elems, "dp");
  std::size_t at[4] = {}, bytes = 0;
  for (std::size_t s = 0; s < optimizer.state_count; ++s) {
    const StateSpec state = detail::state_of(optimizer, s, spec);
    at[s] = bytes;
    bytes += align_up(state_bytes(state.form, state.elems, Dtype::f32));
  }
  auto state = *Block<std::byte>::make(bytes, "state");
  draw(values.view(), 1, 1);
  for (std::uint64_t number = 1; number <= 3; ++number) {
    draw(gradient.view(), 1 + number, 0.1F);
    const UpdateTerms terms{number, 1e-2, 0.7, {3, static_cast<std::uint32_t>(number)}};
    for (int pass = 0; pass < detail::passes_of(optimizer); ++pass) {
      const UpdateCut cut = detail::cut_of(optimizer, spec, pass);
      for (std::size_t first = 0; first < cut.items; first += cut.tile)
        update(ParameterRange<float>{spec, values.data(), gradient.data(), state.data(), at, pass,
                                     first,
                                     cut.items - first < cut.tile ? cut.items - first : cut.tile,
                                     terms.key.with_purpose(Purpose::moments).with_activation(0), 0,
                                     elems},
               terms);
    }
  }
  Bits bits(2 * elems * sizeof(float) + bytes);
  std::memcpy(bits.data(), values.data(), elems * sizeof(float));
  std::memcpy(bits.data() + elems * sizeof(float), gradient.data(), elems * sizeof(float));
  std::memcpy(bits.data() + 2 * elems * sizeof(float), state.data(), bytes);
  return bits;
}

template <class Optimizer>
Bits run_at(const Optimizer& optimizer, InstructionLevel level) {
  return run(optimizer, [&](const ParameterRange<float>& range, const UpdateTerms& terms) {
    detail::with_target(level, [&]<class Target>(Target) {
      Target::template call<detail::call_update<Optimizer, float>>(optimizer, range, terms);
    });
  });
}

float largest_difference(const Bits& a, const Bits& b) {
  float largest = 0;
  for (std::size_t i = 0; i < 37 * 301; ++i) {
    float x, y;
    std::memcpy(&x, a.data() + i * sizeof x, sizeof x);
    std::memcpy(&y, b.data() + i * sizeof y, sizeof y);
    largest = std::fmax(largest, std::fabs(x - y));
  }
  return largest;
}

/// - rounds: the form of the state rounds to few bits, so an operation more or less changes numbers visibly
template <class Optimizer>
void check_levels(const Optimizer& optimizer, bool rounds = false) {
  CAPTURE(optimizer.name);
  const Bits plain = run_at(optimizer, InstructionLevel::plain);
  Bits fused;
  for (const InstructionLevel level : instruction_levels) {
    if (!has_level(level)) continue;
    const Bits bits = run_at(optimizer, level);
    CHECK(largest_difference(bits, plain) < (rounds ? 2e-2F : 1e-5F));
    if (level == InstructionLevel::avx2) fused = bits;
    if (level > InstructionLevel::avx2) CHECK(bits == fused);
  }
  // The library's own calls run at the program's level.
  const Bits program = run_at(optimizer, detail::target_level());
  CHECK(run(optimizer, [&](const auto& range, const UpdateTerms& terms) {
          detail::update_at_level(optimizer, range, terms);
        }) == program);
  const AnyOptimizer any(optimizer);
  CHECK(run(any, [&](const auto& range, const UpdateTerms& terms) { any.update(range, terms); }) ==
        program);
}

TEST_CASE("updates have the same bits at all levels that fuse multiply-adds") {
  check_levels(AdamW{.weight_decay = 0.1F});
  check_levels(AdamWWith<Bf16Moments>{.weight_decay = 0.1F}, true);
  check_levels(AdamWWith<Int8Moments>{.weight_decay = 0.1F}, true);
  check_levels(Sgd{.weight_decay = 0.1F});
  check_levels(Adafactor{.weight_decay = 0.1F});
}

TEST_CASE("Lion's, too: a direction at zero may be another at the plain level") {
  const Lion lion{.weight_decay = 0.1F};
  Bits fused;
  for (const InstructionLevel level : instruction_levels) {
    if (!has_level(level) || level == InstructionLevel::plain) continue;
    const Bits bits = run_at(lion, level);
    if (level == InstructionLevel::avx2) fused = bits;
    CHECK(bits == fused);
  }
}

TEST_CASE(
    "parameters held in bf16 are updated at the program's level, with the bits of these levels") {
  const AdamW adamw{.weight_decay = 0.1F};
  const auto held = [&](const auto& update) {
    std::vector<bfloat16> values(37 * 301, to_bfloat16(0.75F));
    run(adamw, [&](const ParameterRange<float>& range, const UpdateTerms& terms) {
      update(range, values.data(), terms);
    });
    return values;
  };
  const auto at = [&](InstructionLevel level) {
    return held([&](const auto& range, bfloat16* values, const UpdateTerms& terms) {
      detail::with_target(level, [&]<class Target>(Target) {
        Target::template call<detail::update_held<AdamW, float>>(adamw, range, values, terms);
      });
    });
  };
  std::vector<bfloat16> fused;
  for (const InstructionLevel level : {InstructionLevel::avx2, InstructionLevel::avx512}) {
    if (!has_level(level)) continue;
    if (fused.empty()) fused = at(level);
    CHECK(at(level) == fused);
  }
  const auto table = UpdateTable::make(adamw, table_of_one(), Dtype::f32);
  REQUIRE(table);
  const ParameterSpec spec = table_of_one()[0];
  Cpu cpu;
  CHECK(held([&](const auto& range, bfloat16* values, UpdateTerms terms) {
          if (range.first != 0) return;  // update_one() takes all ranges
          table->update_one(adamw, cpu, spec, 0, range.values, range.gradient,
                            {range.state_memory, Shape(table->bytes())}, terms, values);
        }) == at(detail::target_level()));
}

TEST_CASE("updates by blocks and norms run at the program's level") {
  const Array<Parameter> table = table_of_one();
  const std::size_t elems = table[0].shape.elems();
  auto gradient = *Block<float>::make(elems, "gradient"), params = *Block<float>::make(elems, "p");
  auto m = *Block<float>::make(elems, "m"), v = *Block<float>::make(elems, "v");
  const AdamW adamw{.weight_decay = 0.1F, .clear_gradients = false};
  const Bits alone = run(adamw, [&](const auto& range, const UpdateTerms& terms) {
    detail::update_at_level(adamw, range, terms);
  });
  draw(params.view(), 1, 1);
  Cpu cpu;
  for (std::uint64_t number = 1; number <= 3; ++number) {
    draw(gradient.view(), 1 + number, 0.1F);
    adamw.step(cpu, params.view(), gradient.view(), m.view(), v.view(), table, number, 1e-2, 0.7);
  }
  CHECK(std::memcmp(params.data(), alone.data(), elems * sizeof(float)) == 0);

  double sums[2] = {};
  std::size_t i = 0;
  for (const InstructionLevel level : {InstructionLevel::avx2, InstructionLevel::avx512})
    if (has_level(level))
      detail::with_target(level, [&]<class Target>(Target) {
        Target::template call<detail::write_sum_of_squares<float>>(gradient.data(), elems,
                                                                   sums[i++]);
      });
  if (i == 2) CHECK(sums[0] == sums[1]);
  if (detail::target_level() >= InstructionLevel::avx2)
    CHECK(gradient_norm(cpu, gradient.view()) == std::sqrt(sums[0]));
}

}}  // namespace optimizer_levels_test
