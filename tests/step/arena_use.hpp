// SPDX-License-Identifier: MIT
/// Measures which bytes of its arena a step uses: fills the arena with a pattern, guards its end, and
/// looks for bytes that changed.
#pragma once

#include <doctest/doctest.h>

#include <adacc/adacc.hpp>
#include <adacc/core/block.hpp>
#include <adacc/train/initialize.hpp>

#include <cstddef>
#include <cstring>

/// Runs `step` twice and checks that it changes the arena's last byte and nothing behind the arena. The arena and the
/// bytes behind it have other patterns in the other run, because a byte may be given the value that it has, and
/// different ones, because a step may copy what it has not written.
template <class X, class Y>
void check_arena_use(adacc::Step<>& step, adacc::Cpu& cpu, adacc::View<const X> x,
                     adacc::View<const Y> y) {
  using namespace adacc;
  const std::size_t bytes = step.arena_bytes(), guard = 4096;
  const std::size_t elems = step.graph().parameter_elems;
  const bool short_form = step.graph().parameter_form == ParameterForm::bf16;
  auto arena = Block<std::byte>::make(bytes + guard, "arena");
  auto params = Block<float>::make(short_form ? 0 : elems, "p"),
       grads = Block<float>::make(elems, "g");
  auto short_params = Block<bfloat16>::make(short_form ? elems : 0, "p");
  ParameterBlock<float> held = params->view();
  if (short_form) {
    initialize_parameters(cpu, step.graph().parameters, short_params->view(), 5);
    held = short_params->view();
  } else {
    initialize_parameters(cpu, step.graph().parameters, params->view(), 5);
  }
  std::size_t used = 0;
  for (const int pattern : {0x5A, 0xC3}) {
    const int behind = 0xFF - pattern;
    std::memset(arena->data(), pattern, bytes);
    std::memset(arena->data() + bytes, behind, guard);
    REQUIRE_FALSE(step.bind({arena->data(), Shape(bytes)}, held, grads->view()));
    REQUIRE(step.run(cpu, x, y));
    std::size_t end = bytes;
    while (end > used && (*arena)[end - 1] == static_cast<std::byte>(pattern)) --end;
    used = end;
    for (std::size_t i = bytes; i < arena->size(); ++i)
      if ((*arena)[i] != static_cast<std::byte>(behind))
        FAIL("byte " << i << " behind an arena of " << bytes << " changed");
  }
  CHECK(used == bytes);
}
