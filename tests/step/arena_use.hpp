// SPDX-License-Identifier: MIT
/// Measures which bytes of its arena a step uses: fills it with a pattern, guards its end, and
/// looks at what changed.
#pragma once

#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/core/block.hpp>
#include <adacc/train/initialize.hpp>

#include <cstddef>
#include <cstring>

/// Runs `step` and checks that it changes the arena's last byte and nothing behind it. More than
/// one pattern, because a byte may be given the value that it has.
template <class X, class Y>
void check_arena_use(adacc::Step<>& step, adacc::Cpu& cpu, adacc::View<const X> x,
                     adacc::View<const Y> y) {
  using namespace adacc;
  const std::size_t bytes = step.arena_bytes(), guard = 4096;
  const std::size_t elems = step.graph().parameter_elems;
  auto arena = Block<std::byte>::make(bytes + guard, "arena");
  auto params = Block<float>::make(elems, "p"), grads = Block<float>::make(elems, "g");
  auto short_params = Block<bfloat16>::make(elems, "p");
  initialize_parameters(cpu, step.graph().parameters, params->view(), 5);
  initialize_parameters(cpu, step.graph().parameters, short_params->view(), 5);
  ParameterBlock<float> held = params->view();
  if (step.graph().parameter_form == ParameterForm::bf16) held = short_params->view();
  std::size_t used = 0;
  for (const int pattern : {0x5A, 0xC3, 0x7E}) {
    std::memset(arena->data(), pattern, arena->size());
    REQUIRE_FALSE(step.bind({arena->data(), Shape(bytes)}, held, grads->view()));
    REQUIRE(step.run(cpu, x, y));
    for (std::size_t i = 0; i < arena->size(); ++i) {
      if ((*arena)[i] == static_cast<std::byte>(pattern)) continue;
      if (i < bytes) used = i + 1 > used ? i + 1 : used;
      else FAIL("byte " << i << " behind an arena of " << bytes << " changed");
    }
  }
  CHECK(used == bytes);
}
