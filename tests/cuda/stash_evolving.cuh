// SPDX-License-Identifier: MIT
/// A stash in device memory whose plan changes between steps: by budgets, with the trainer's bits, and by what
/// codecs saw on the device.
#pragma once

#include <adacc/codec/bf16.cuh>
#include <adacc/codec/bit_mask.cuh>
#include <adacc/codec/int8_outlier.cuh>
#include <adacc/plan/make_plan.hpp>
#include <adacc/stash/evolving_stash.cuh>
#include <adacc/store/pinned_host.cuh>

#include "stash_checks.cuh"
#include "stash_trainer.cuh"

namespace stash_run {

using EvolvingDeviceStash = EvolvingStash<float, Cuda>;

/// Computing again takes `again` seconds, a codec a tenth of a millisecond.
inline CostProfile made_up_profile(const Graph& graph, double again) {
  CostProfile made = empty_profile(graph);
  for (int k = 0; k < graph.node_count(); ++k) {
    const Node& node = graph.node(k);
    if (node.recomputable && node.made_by < 0)
      made.nodes[static_cast<std::size_t>(k)].forward = again;
    const CodecSpan candidates = graph.candidates_of(node);
    for (std::size_t c = 0; c < candidates.count; ++c)
      made.codec_cost(k, made.column(candidates[c])) = {1e-4, 1e-4,
                                                        candidates[c]->lossless ? 0 : 1e-3, 0};
  }
  made.rest = 0.1;
  return made;
}

/// Budgets that change between steps. same(trainer): whether it has the bits of one without a stash.
template <class Same>
void check_budgets(cudaStream_t stream, bool holds, bool sends, std::size_t steps,
                   const Same& same) {
  Trainer trainer(stream);
  trainer.register_all<BitMask, Bf16>(holds);
  const Graph graph = *trainer.model.graph();
  const std::size_t whole = peak_bytes(graph, retain_all(graph));
  PlanRequest request{.budget_bytes = whole, .tolerance = 0};
  if (sends) request.link.write_rate = request.link.read_rate = 1e9;
  auto stash = EvolvingDeviceStash::make(trainer.model, made_up_profile(graph, sends ? 1 : 1e-3),
                                         request, make_plan);
  if (!fine(stash.error)) return;
  GuardedArena arena(stream, whole, 0x5A);
  auto store = PinnedHost::make(1 << 20, stream);
  if (sends) expect_words(stash->bind(arena.bytes()), "bind() must lend one");
  if (!fine(sends ? stash->bind(arena.bytes(), *store) : stash->bind(arena.bytes()))) return;
  expect_words(stash->set_budget(64), "no plan fits into a budget of 64 bytes");
  expect_words(stash->set_budget(whole + 1), "the arena that is bound has");
  std::size_t sent = 0, changes = 0;
  const std::size_t percents[] = {60, 75, 90,
                                  100};  // so that each takes bytes that none before took
  for (std::size_t s = 0; s < steps; ++s) {
    if (!fine(stash->set_budget(whole * percents[s % 4] / 100))) return;
    changes += stash->boundary().update.changed;
    sent += stash->store_bytes() != 0;
    fine(trainer.step(*stash, s % 2 == 0));
    const auto promised = static_cast<std::ptrdiff_t>(stash->arena_bytes());
    const std::size_t boundary = stash->store_bytes() != 0 ? transfer_alignment : alignment;
    const std::ptrdiff_t used = arena.used();
    expect(used <= promised && used > promised - static_cast<std::ptrdiff_t>(boundary),
           "budgets that change: " + std::to_string(promised) + " bytes were promised, and " +
               std::to_string(used) + " were used");
  }
  expect(changes > 2, "budgets change, and plans do not");
  expect((sent > 0) == sends, "budgets that change: offloading");
  expect(same(trainer), "budgets that change: other bits than without a stash");
  fine(stash->begin(trainer.cuda));
  expect_words(stash->set_budget(whole), "set_budget() inside of a step");
  fine(stash->end());
  fine(stash->set_budget(whole));
  const auto clock = [] { return 0.0; };
  expect_words(EvolvingDeviceStash::make(trainer.model, made_up_profile(graph, 1), request,
                                         make_plan, {.clock = clock})
                   .error,
               "reads no clock");
}

/// A codec whose input changes from `calm` to `wild` is left, in the step behind two that were watched.
inline void check_watched_codecs(cudaStream_t stream, const char* change,
                                 const std::vector<float>& calm, const std::vector<float>& wild) {
  constexpr int count = 6;
  constexpr std::size_t side = 64;
  struct Same {
    cudaStream_t stream;
    void operator()(const View<const float>*, View<float> y) const {
      cudaMemsetAsync(y.data(), 0, y.size() * sizeof(float), stream);
    }
  } const again{stream};
  StashModel<float, Cuda> model;
  const Shape shape(side, side);
  for (int i = 0; i < count; ++i) {
    model.recompute(model.add("x", shape, {i}), {}, again);
    model.allow<Int8Outlier>(i, 1e-3);
  }
  const Graph graph = *model.graph();
  const std::size_t whole = peak_bytes(graph, retain_all(graph));
  auto stash = EvolvingDeviceStash::make(model, made_up_profile(graph, 1e-2),
                                         {.budget_bytes = whole * 6 / 10, .tolerance = 1e-2},
                                         make_plan, {.evolution = {.check_every = 1}});
  if (!fine(stash.error)) return;
  GuardedArena arena(stream, whole, 0x5A);
  const Device<std::byte> watched(stash->watch_bytes());
  expect(watched.size > 0, "codecs leave nothing to be watched");
  const Bytes seen(watched.data, Shape(watched.size));
  expect_words(stash->bind(arena.bytes(), {}, Bytes(watched.data, Shape(64))), "and 64 were lent");
  if (!fine(stash->bind(arena.bytes(), {}, seen))) return;

  const Device<float> tame(calm), grown(wild);
  const auto encoded = [&] {
    int n = 0;
    for (int i = 0; i < count; ++i) n += stash->plan()[i].codec() == &codec_info<Int8Outlier>;
    return n;
  };
  const int before = encoded();
  expect(before > 1, "the plan encodes nothing");
  constexpr int grows = 12;  // as many checks as samples of four a check take to be believed
  int left = -1;
  Cuda cuda(stream);
  for (int s = 0; s < grows + 4; ++s) {
    if (!fine(stash->begin(cuda))) return;
    if (stash->boundary().update.changed && left < 0) {
      left = s;
      for (const PlanChange& change : stash->boundary().update.changes)
        expect(
            change.reason == ChangeReason::codec_failed || change.reason == ChangeReason::made_room,
            "the plan changed for another reason");
    }
    for (int i = 0; i < count; ++i) fine(stash->put(i, {(s < grows ? tame : grown).data, shape}));
    for (int i = count; i-- > 0;) fine(stash->enter(i));
    fine(stash->leave(0));
  }
  expect(left == grows + 2, std::string(change) +
                                ": a codec that fails on the device is left at step " +
                                std::to_string(left));
  expect(encoded() < before, "the codec is still there");
}

/// Of an input that grows tails, and of one with rows far below the others, which the noise does not show.
inline void check_watched_codecs(cudaStream_t stream) {
  constexpr std::size_t side = 64;
  const std::vector<float> calm = numbers(side * side, 5, 1);
  std::vector<float> tails = calm, unlike_rows = calm;
  for (std::size_t i = 0; i < calm.size(); ++i) {
    tails[i] *= i % 7 == 0 ? 40.F : 1.F;
    unlike_rows[i] *= i / side % 16 == 4 ? 0.01F : 1.F;
  }
  check_watched_codecs(stream, "tails", calm, tails);
  check_watched_codecs(stream, "rows", calm, unlike_rows);
}

}  // namespace stash_run
