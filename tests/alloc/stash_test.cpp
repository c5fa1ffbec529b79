// SPDX-License-Identifier: MIT
/// A stash allocates nothing between begin and the last get, whatever the policies.
#include <doctest/doctest.h>

#include <adacc/codec/int8_outlier.hpp>
#include <adacc/stash/stash.hpp>

#include <support/count_allocations.hpp>

#include "../rough_codec.hpp"

using namespace adacc;

TEST_CASE("a step with a stash allocates nothing") {
  alignas(64) static float x[32 * 64];
  alignas(64) static std::byte arena[1 << 16];
  for (std::size_t i = 0; i < 32 * 64; ++i) x[i] = static_cast<float>(i % 97) - 48;
  StashModel<> model;
  const auto twice = [](const View<const float>* from, View<float> y) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = 2 * from[0][i];
  };
  const long before_set_up = allocations;
  for (int i = 0; i < 6; ++i) {
    const int id = model.add("x", Shape(32, 64), {i});
    model.allow<Int8Outlier>(id, 1e-4);
    if (i == 3) model.allow<rough::Picky>(id, 1e-4);
    if (i % 3 == 2) model.recompute(id, {id - 1}, twice);
    if (i % 2 == 0) model.hold(id);
    model.stage_bytes(i, 1000);
  }
  const int carried = model.carry("dx", Shape(32, 64), 5, 0);
  const auto graph = model.graph();
  REQUIRE_MESSAGE(graph, graph.error.text());
  Plan plan = retain_all(*graph);
  for (const std::size_t i : {1U, 4U}) plan.policies[i] = compress(&codec_info<Int8Outlier>);
  plan.policies[3] = compress(&codec_info<rough::Picky>);
  for (const std::size_t i : {2U, 5U}) plan.policies[i] = recompute();
  auto stash = Stash<>::make(model, plan);
  REQUIRE_MESSAGE(stash, stash.error.text());
  REQUIRE_FALSE(stash->bind({arena, Shape(sizeof arena)}));
  CHECK(allocations > before_set_up);  // the counter counts

  Cpu cpu;
  const long before = allocations;
  bool fine = true;
  for (int step = 0; step < 3; ++step) {
    fine = fine && !stash->begin(cpu);
    for (int id = 0; id < 6; ++id) fine = fine && !stash->put(id, View<const float>(x, {32, 64}));
    for (int id = 5; id >= 0; --id) {
      fine = fine && !stash->enter(id) && stash->get(id) && stash->backward_workspace();
      fine = fine && stash->carried(carried) && !stash->leave(id);
    }
    fine = fine && !stash->carried(carried) && !stash->get(17) &&
           stash->put(0, View<const float>(x, {32, 64}));
  }
  CHECK(allocations == before);
  CHECK(fine);
  CHECK(stash->declined(3).errors.over > 0);
}
