// SPDX-License-Identifier: MIT
/// Streams pictures of changing scenes past everything that is compared, and counts.
#pragma once

#include <adacc/core/steady_clock.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "army.hpp"
#include "frames.hpp"
#include "heap_calls.hpp"

namespace anole {

/// What answers on the stream.
enum System : std::size_t {
  army_learning,   ///< the selector, its memory of the scene, the cache, and heads that learn
  army_frozen,     ///< the same without learning
  army_forgetful,  ///< without learning, and each picture's model is chosen by that picture alone
  large_learning,
  large_frozen,
  systems
};
inline constexpr std::array<const char*, systems> system_names{
    "army, learning", "army", "army without memory", "large, learning", "large"};

/// Answers, and how many of them were right, in scenes that were learned from and in others.
struct Count {
  std::array<std::size_t, 2> asked{}, right{};
  void add(bool unseen, bool is_right) {
    ++asked[unseen];
    right[unseen] += is_right;
  }
  static double share(std::size_t part, std::size_t of) {
    return of == 0 ? 0 : static_cast<double>(part) / static_cast<double>(of);
  }
  double known() const { return share(right[0], asked[0]); }
  double unseen() const { return share(right[1], asked[1]); }
  double all() const { return share(right[0] + right[1], asked[0] + asked[1]); }
};

/// Part of a stream that is one scene.
struct Visit {
  Scene scene;
  bool unseen = false;
  std::size_t frames = 0;
};

/// Each scene twice, in any order, for `frames` pictures give or take a third.
inline std::vector<Visit> plan_visits(const SceneSplit& split, std::size_t known,
                                      std::size_t frames, std::uint64_t seed) {
  std::vector<Visit> visits;
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < std::min(known, split.known.size()); ++i)
      visits.push_back({split.known[i], false, 0});
    for (const Scene& scene : split.unseen) visits.push_back({scene, true, 0});
  }
  Draws draws(seed, static_cast<std::uint32_t>(Stream::stream_order), 0);
  for (std::size_t i = 0; i + 1 < visits.size(); ++i)
    std::swap(visits[i], visits[i + draws.below(visits.size() - i)]);
  for (Visit& visit : visits)
    visit.frames = frames - frames / 3 + draws.below(2 * (frames / 3) + 1);
  return visits;
}

struct StreamWays {
  std::size_t told_every = 2;  ///< of so many pictures the class of one becomes known
  std::size_t slice = 16;      ///< parts of a step that run behind every picture
  std::uint64_t seed = 0;
  float rate = 5e-4F;  ///< of the heads
};

struct StreamResult {
  std::array<Count, systems> counts{};
  std::array<std::vector<char>, systems> right;  ///< by picture
  std::vector<Visit> visits;
  std::size_t budget_bytes = 0, army_bytes = 0, large_bytes = 0, slots = 0, updates = 0,
              abandoned = 0;
  ArmyUse use;
  double army_seconds = 0, large_seconds = 0;  ///< medians of the time of an answer
  double army_mean = 0, large_mean = 0;        ///< means, loads of models included
  double longest_slice = 0;
  long heap_calls = -1;  ///< while the learning army was at work; -1: not counted
  std::uint64_t fingerprint = 0xcbf29ce484222325U;  ///< FNV-1a of all answers
};

/// What a device has. The large network's block, and the others', are no part of the comparison.
inline constexpr std::size_t most_device_bytes = 2 * adacc::MiB;
alignas(64) inline std::byte device_memory[systems][most_device_bytes];

/// Whether `bytes`, or that share of what the large network takes, hold a model of an army of these
/// sizes, before there is one.
inline adacc::Error check_budget(Army army, const StreamWays& ways, const adacc::Budget& bytes) {
  using namespace adacc;
  const auto fill = [](Weights& weights) -> Error {
    const Net net = weights.sizes.net();
    const auto graph = graph_of(net, 1, false);
    if (!graph) return graph.error;
    weights.values.assign(graph->parameter_elems, 0.0F);
    return {};
  };
  for (Weights& compact : army.compacts)
    if (const Error why = fill(compact)) return why;
  for (Weights* weights : {&army.selector, &army.large})
    if (const Error why = fill(*weights)) return why;
  army.shares.assign(army.compacts.size(), 1);
  const Bytes all(device_memory[large_frozen], Shape(most_device_bytes));
  OneNetwork large;
  if (const Error why = large.set_up(army.large, all, false, ways.seed, ways.rate)) return why;
  const std::size_t budget = bytes.of(large.bytes());
  if (budget > most_device_bytes)
    return Error::say("--bytes ", shown(budget), ": the device has no more than ",
                      shown(most_device_bytes));
  ArmyOnDevice device;
  return device.set_up(army, Bytes(device_memory[army_learning], Shape(budget)), {});
}

inline adacc::Result<StreamResult> run_stream(const World& world, const std::vector<Visit>& visits,
                                              const Army& army, const StreamWays& ways,
                                              const adacc::Budget& bytes) {
  using namespace adacc;
  StreamResult result;
  result.visits = visits;
  const auto memory = [](System system, std::size_t size) {
    return Bytes(device_memory[system], Shape(size));
  };
  const auto large = std::make_unique<OneNetwork>(), large_learns = std::make_unique<OneNetwork>();
  if (const Error why = large->set_up(army.large, memory(large_frozen, most_device_bytes), false,
                                      ways.seed, ways.rate))
    return why;
  if (const Error why = large_learns->set_up(army.large, memory(large_learning, most_device_bytes),
                                             true, ways.seed, ways.rate))
    return why;
  result.large_bytes = large->bytes();
  const std::size_t budget = std::min(bytes.of(result.large_bytes), most_device_bytes);
  result.budget_bytes = budget;
  const auto learning = std::make_unique<ArmyOnDevice>(), frozen = std::make_unique<ArmyOnDevice>(),
             forgetful = std::make_unique<ArmyOnDevice>();
  if (const Error why =
          learning->set_up(army, memory(army_learning, budget), {true, true, ways.seed, ways.rate}))
    return why;
  if (const Error why =
          frozen->set_up(army, memory(army_frozen, budget), {false, true, ways.seed, ways.rate}))
    return why;
  if (const Error why = forgetful->set_up(army, memory(army_forgetful, budget),
                                          {false, false, ways.seed, ways.rate}))
    return why;
  result.army_bytes = learning->bytes();
  result.slots = learning->slots();

  Error error;
  std::vector<double> army_times, large_times;
  const auto settle = [&](System system, const Result<std::size_t>& answer, std::size_t kind,
                          bool unseen) {
    if (!answer) {
      if (!error) error = answer.error;
      return;
    }
    const bool right = *answer == kind;
    result.counts[system].add(unseen, right);
    result.right[system].push_back(right);
    result.fingerprint = (result.fingerprint ^ *answer) * 0x100000001b3U;
  };
  // Clips and frames of their own: nobody has seen these.
  std::uint32_t frame = 1U << 30, clip = 1U << 30;
  long heap = 0;
  for (const Visit& visit : visits) {
    const Conditions seen = world.conditions(visit.scene, clip++);
    for (std::size_t f = 0; f < visit.frames && !error; ++f, ++frame) {
      std::array<unsigned char, pixels> picture;
      const std::size_t kind = world.photograph(seen, frame, true, picture.data());
      Result<std::size_t> army_says, large_says;
      const auto ask_army = [&] {
        const long before = heap_calls();
        const double start = steady_seconds();
        army_says = learning->answer(picture.data());
        const double took = steady_seconds() - start;
        heap += heap_calls() - before;
        army_times.push_back(took);
      };
      const auto ask_large = [&] {
        const double start = steady_seconds();
        large_says = large->answer(picture.data());
        large_times.push_back(steady_seconds() - start);
      };
      // In turns: what runs second finds warmer caches.
      if (frame % 2 == 0) ask_army(), ask_large();
      else ask_large(), ask_army();
      settle(army_learning, army_says, kind, visit.unseen);
      settle(large_frozen, large_says, kind, visit.unseen);
      settle(army_frozen, frozen->answer(picture.data()), kind, visit.unseen);
      settle(army_forgetful, forgetful->answer(picture.data()), kind, visit.unseen);
      settle(large_learning, large_learns->answer(picture.data()), kind, visit.unseen);
      const bool told = frame % ways.told_every == 0;
      const long before = heap_calls();
      if (told) learning->note(picture.data(), kind);
      const double start = steady_seconds();
      if (const Error why = learning->learn(ways.slice)) error = why;
      result.longest_slice = std::max(result.longest_slice, steady_seconds() - start);
      heap += heap_calls() - before;
      if (told) large_learns->note(picture.data(), kind);
      if (const Error why = large_learns->learn(ways.slice)) error = why;
    }
  }
  if (error) return error;
  if (counts_heap_calls) result.heap_calls = heap;
  result.use = learning->use();
  result.updates = learning->learner().updates();
  result.abandoned = learning->learner().abandoned();
  const auto times = [](std::vector<double>& all, double& median, double& mean) {
    for (const double one : all) mean += one / static_cast<double>(all.size());
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2),
                     all.end());
    median = all[all.size() / 2];
  };
  times(army_times, result.army_seconds, result.army_mean);
  times(large_times, result.large_seconds, result.large_mean);
  return result;
}

}  // namespace anole
