// SPDX-License-Identifier: MIT
/// The offline half: clips to groups, groups to an army, and beside it one large network.
///
/// The comparison is to be fair to the large network. It has the form of the others and at least as
/// many parameters as the army in all, it learns from the same frames, and from as many of them as a
/// compact model and its beginning do per frame of the data: `shared_epochs` + `own_epochs`. Its rate is the best
/// of several by frames held out of the training scenes, that of the compact models is fixed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "army.hpp"
#include "frames.hpp"
#include "scene_groups.hpp"
#include "school.hpp"

namespace anole {

struct OfflineWays {
  std::size_t models = 4, known_scenes = 48, unseen_scenes = 12, clips = 8, frames = 24, hints = 12;
  double shared_epochs = 6, own_epochs = 9, selector_epochs = 10;
  double rate = 8e-3, own_rate = 6e-3;
  std::vector<double> large_rates{8e-3};
  adacc::Budget budget{.share = 0.85};
  std::size_t first = 8, second = 16, hidden = 24;
};

inline Sizes compact_sizes(const OfflineWays& ways, const World& world) {
  return {ways.first, ways.second, ways.hidden, world.classes()};
}
inline Sizes selector_sizes(const OfflineWays& ways, std::size_t groups) {
  return {ways.first, ways.second, ways.hidden, groups, 2};
}

/// What the offline half found on its way.
struct OfflineReport {
  std::size_t frames = 0, clips = 0, hinted = 0, groups = 0;
  double agreement = 0;
  Bill large, compact;
  double large_rate = 0, large_held_out = 0;
};

/// The attribute that somebody names who knows what is to be told apart: vehicles differ by their size,
/// digits by the way they are turned.
inline std::vector<Attribute> hinted_attributes(const World& world) {
  return {world.has_digits() ? heading : altitude};
}

/// `say(text)` is told how far it is.
template <class Say>
adacc::Result<Army> train_army(const World& world, const SceneSplit& split, const OfflineWays& ways,
                               OfflineReport& report, const Say& say) {
  using namespace adacc;
  const std::uint64_t seed = world.seed();
  say("filming");
  const Clips clips = Clips::film(world, split.known, ways.clips, ways.frames, 0, false);
  const std::vector<Attribute> about = hinted_attributes(world);
  const Hints hints(clips, about, ways.hints, seed);
  const SceneGroups groups = find_groups(clips, hints, about, ways.models);
  report.frames = clips.frames(), report.clips = clips.scenes.size();
  report.hinted = hints.clips.size(), report.groups = groups.count;
  report.agreement = groups.agreement;

  Lesson all{&clips, {}, {}}, scenes{&clips, {}, {}};
  std::vector<Lesson> own(groups.count, Lesson{&clips, {}, {}});
  for (std::size_t f = 0; f < clips.frames(); ++f) {
    const std::size_t group = groups.of_clip[f / clips.frames_per_clip];
    all.frames.push_back(f), all.answers.push_back(clips.kinds[f]);
    scenes.frames.push_back(f), scenes.answers.push_back(static_cast<std::int32_t>(group));
    own[group].frames.push_back(f), own[group].answers.push_back(clips.kinds[f]);
  }
  const auto epochs = [](double count, const Lesson& lesson) {
    return static_cast<std::size_t>(count * static_cast<double>(lesson.frames.size()));
  };

  Army army;
  Course course;
  course.seed = seed, course.budget = ways.budget;
  const Sizes compact = compact_sizes(ways, world), selector = selector_sizes(ways, groups.count);

  say("training what all compact models begin with");
  course.rate = ways.rate, course.samples = epochs(ways.shared_epochs, all);
  const auto start = train(compact, all, course, nullptr, &report.compact);
  if (!start) return start.error;
  course.rate = ways.own_rate;
  for (std::size_t g = 0; g < groups.count; ++g) {
    say(("training compact model " + std::to_string(g + 1) + " of " + std::to_string(groups.count))
            .c_str());
    course.samples = epochs(ways.own_epochs, own[g]);
    auto model =
        own[g].frames.empty() ? Result<Weights>(*start) : train(compact, own[g], course, &*start);
    if (!model) return model.error;
    army.compacts.push_back(std::move(*model));
    army.shares.push_back(static_cast<double>(own[g].frames.size()) /
                          static_cast<double>(clips.frames()));
  }
  say("training the selector");
  course.rate = ways.rate, course.samples = epochs(ways.selector_epochs, scenes);
  auto selects = train(selector, scenes, course);
  if (!selects) return selects.error;
  army.selector = std::move(*selects);

  // Held out: other clips of the same scenes, and of digits those that nothing learned from are kept for
  // the stream.
  const std::size_t tuning_clips = 1, first = std::size_t{1} << 28;
  const Clips tuning = Clips::film(world, split.known, tuning_clips, ways.frames,
                                   static_cast<std::uint32_t>(first), false);
  Lesson held{&tuning, {}, {}};
  for (std::size_t f = 0; f < tuning.frames(); ++f)
    held.frames.push_back(f), held.answers.push_back(tuning.kinds[f]);
  const Sizes large = compact.widened_to(army.parameters());
  report.large_held_out = -1;
  for (const double rate : ways.large_rates) {
    say("training the large network");
    course.rate = rate, course.samples = epochs(ways.shared_epochs + ways.own_epochs, all);
    auto trained = train(large, all, course, nullptr, &report.large);
    if (!trained) return trained.error;
    const auto share = judge(*trained, held);
    if (!share) return share.error;
    if (*share <= report.large_held_out) continue;
    report.large_rate = rate, report.large_held_out = *share;
    army.large = std::move(*trained);
  }
  return army;
}

}  // namespace anole
