// SPDX-License-Identifier: MIT
/// Whether a training fits the machine's memory, before it is taken.
#pragma once

#include <adacc/core/error.hpp>
#include <adacc/model/graph.hpp>
#include <adacc/optimizer/any_optimizer.hpp>
#include <adacc/optimizer/stored_moments.hpp>
#include <adacc/train/total.hpp>

#include <cstddef>

#include <unistd.h>

/// An error if an arena of so many bytes and the memory beside it are more than the machine has.
inline adacc::Error check_memory(std::size_t arena, const adacc::Graph& graph,
                                 const adacc::AnyOptimizer& optimizer,
                                 const adacc::MomentStore& moments) {
  const auto held = adacc::memory_beside_arena(graph, optimizer, moments);
  if (!held) return held.error;
  const auto machine =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (static_cast<double>(arena) + static_cast<double>(held->total()) <= machine) return {};
  return adacc::Error::say("this takes ", adacc::shown(arena), " for activations and ",
                           adacc::shown(held->total()),
                           " for parameters, gradients and moments, more than the machine's ",
                           adacc::shown(static_cast<std::size_t>(machine)),
                           "; try fewer --layers, --channels, --batch or --seq");
}
