// SPDX-License-Identifier: MIT
/// An army of compact models on a device: a selector follows the scene, and of the models as many are
/// in memory as a byte budget has room for.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "device.hpp"

namespace anole {

/// All that the offline half makes. On a device this is flash.
struct Army {
  std::vector<Weights> compacts;
  std::vector<double> shares;  ///< of the frames that the selector learned from, by group
  Weights selector;
  Weights large;

  std::size_t parameters() const {
    return compacts.size() * compacts[0].sizes.parameters() + selector.sizes.parameters();
  }
};

/// Follows the scene through single pictures, each of which says little about it.
///
/// A hidden Markov model's forward algorithm (Rabiner, "A tutorial on hidden Markov models", Proc. IEEE
/// 77, 1989): a scene goes on with the probability `stays`, and what the selector says of a picture,
/// over how often it saw that group, is its likelihood, to a power below 1, because pictures of one
/// scene mislead it in the same way. Hysteresis: another model is chosen only once it is `sure`.
class SceneFilter {
 public:
  static constexpr std::size_t most = 16;
  double stays = 0.98, trust = 0.6, sure = 0.8;

  void begin(const std::vector<double>& shares) {
    count_ = shares.size();
    for (std::size_t g = 0; g < count_; ++g) {
      share_[g] = std::max(shares[g], 1e-3);
      belief_[g] = 1 / static_cast<double>(count_);
    }
  }

  /// The group to answer for, after one more picture's scores.
  std::size_t follow(const float* scores) {
    const float top = *std::max_element(scores, scores + count_);
    double sum = 0;
    for (std::size_t g = 0; g < count_; ++g)
      sum += chance_[g] = std::exp(static_cast<double>(scores[g] - top));
    const double leaves = (1 - stays) / static_cast<double>(count_);
    double all = 0;
    for (std::size_t g = 0; g < count_; ++g) {
      const double likelihood = std::pow((chance_[g] / sum + 1e-4) / share_[g], trust);
      all += belief_[g] = likelihood * (stays * belief_[g] + leaves);
    }
    std::size_t best = 0;
    for (std::size_t g = 0; g < count_; ++g) {
      belief_[g] /= all;
      if (belief_[g] > belief_[best]) best = g;
    }
    if (belief_[best] >= sure) chosen_ = best;
    return chosen_;
  }

 private:
  std::array<double, most> share_{}, belief_{}, chance_{};
  std::size_t count_ = 0, chosen_ = 0;
};

/// Models that are in memory: the one that was not used for longest makes room for the next.
class ModelCache {
 public:
  static constexpr std::size_t most = 16, none = most;

  void begin(std::size_t slots) {
    slots_ = slots;
    holds_.fill(none);
    used_.fill(0);
  }

  struct Place {
    std::size_t slot = 0;
    std::size_t loses = none;  ///< the model that was there
    bool loads = false;
  };
  Place place(std::size_t model) {
    std::size_t oldest = 0;
    for (std::size_t s = 0; s < slots_; ++s) {
      if (holds_[s] == model) return used_[s] = ++clock_, Place{s, none, false};
      if (used_[s] < used_[oldest]) oldest = s;
    }
    const Place place{oldest, holds_[oldest], true};
    holds_[oldest] = model;
    used_[oldest] = ++clock_;
    return place;
  }
  std::size_t slots() const { return slots_; }

 private:
  std::array<std::size_t, most> holds_{};
  std::array<std::uint64_t, most> used_{};
  std::size_t slots_ = 0;
  std::uint64_t clock_ = 0;
};

struct ArmyUse {
  std::size_t switches = 0, loads = 0, evictions = 0;
};

/// How an army is used.
struct ArmyWays {
  bool learns = true;
  bool remembers = true;  ///< false: each picture's model is chosen by that picture alone
  std::uint64_t seed = 0;
  float rate = 5e-4F;
};

class ArmyOnDevice {
 public:
  /// All of it within `memory`, which is the budget: a message says what is missing if that holds no
  /// model.
  adacc::Error set_up(const Army& army, adacc::Bytes memory, const ArmyWays& ways) {
    using namespace adacc;
    army_ = &army;
    ways_ = ways;
    const Sizes& sizes = army.compacts[0].sizes;
    if (const Error why = selector_.set_up(army.selector.sizes)) return why;
    if (const Error why = compact_.set_up(sizes)) return why;
    if (const Error why = learner_.set_up(sizes, ways.seed, ways.rate)) return why;
    const Net net = sizes.net(), selecting = army.selector.sizes.net();
    auto stored = graph_of(net, 1, false);
    if (!stored) return stored.error;
    stored_ = std::move(*stored);
    const auto selector_stored = graph_of(selecting, 1, false);
    if (!selector_stored) return selector_stored.error;

    Memory all(memory);
    // The selector and the chosen model run one after the other.
    arena_ = all.take<std::byte>(std::max(selector_.arena_bytes(), compact_.arena_bytes()));
    input_ = all.take<float>(pixels);
    const View<float> selector = all.take<float>(selector_.graph().parameter_elems);
    if (ways.learns) {
      learner_.take(all);
      heads_ = all.take<float>(army.compacts.size() * learner_.head_elems());
    }
    const std::size_t elems = compact_.graph().parameter_elems, model = carved_bytes<float>(elems);
    const std::size_t beside = all.used() + all.short_of();
    std::size_t slots = all.short_of() != 0 ? 0 : all.left() / model;
    if (slots == 0)
      return Error::say("a budget of ", shown(memory.size()), " holds no model: one takes ",
                        shown(model), ", and what is always there ", shown(beside));
    slots = std::min(slots, army.compacts.size());
    for (std::size_t s = 0; s < slots; ++s) slot_[s] = all.take<float>(elems);
    bytes_ = all.used();

    copy_parameters(*selector_stored, army.selector.values.data(), selector_.graph(),
                    selector.data());
    if (const Error why = selector_.bind(arena_, selector)) return why;
    if (ways.learns)
      for (std::size_t k = 0; k < army.compacts.size(); ++k) {
        // Heads are what changes: they stay in memory when their models do not.
        load(k, slot_[0], false);
        std::memcpy(head_of(k), slot_[0].data(), learner_.head_elems() * sizeof(float));
      }
    cache_.begin(slots);
    filter_.begin(army.shares);
    chosen_ = ModelCache::none;
    return {};
  }

  std::size_t bytes() const { return bytes_; }
  std::size_t slots() const { return cache_.slots(); }
  const ArmyUse& use() const { return use_; }
  const Learner& learner() const { return learner_; }
  std::size_t chosen() const { return chosen_; }

  adacc::Result<std::size_t> answer(const unsigned char* picture) {
    as_input(picture, input_.data());
    const auto said = selector_.scores(cpu_, input_.data());
    if (!said) return said.error;
    const std::size_t model =
        ways_.remembers ? filter_.follow(*said) : largest(*said, army_->compacts.size());
    if (model != chosen_)
      if (const adacc::Error why = choose(model)) return why;
    const auto scores = compact_.scores(cpu_, input_.data());
    if (!scores) return scores.error;
    return largest(*scores, compact_.sizes().outputs);
  }

  adacc::Error learn(std::size_t parts) {
    return ways_.learns ? learner_.slice(cpu_, parts) : adacc::Error{};
  }
  void note(const unsigned char* picture, std::size_t kind) {
    if (ways_.learns) learner_.note(picture, kind);
  }

 private:
  float* head_of(std::size_t model) { return heads_.data() + model * learner_.head_elems(); }

  /// Copies a model from flash, with the head as it is by now.
  void load(std::size_t model, adacc::View<float> slot, bool with_head) {
    copy_parameters(stored_, army_->compacts[model].values.data(), compact_.graph(), slot.data());
    if (with_head) std::memcpy(slot.data(), head_of(model), learner_.head_elems() * sizeof(float));
  }

  adacc::Error choose(std::size_t model) {
    if (chosen_ != ModelCache::none) ++use_.switches;
    const ModelCache::Place place = cache_.place(model);
    const adacc::View<float> slot = slot_[place.slot];
    if (place.loads) {
      ++use_.loads;
      if (place.loses != ModelCache::none) {
        ++use_.evictions;
        if (ways_.learns)
          std::memcpy(head_of(place.loses), slot.data(), learner_.head_elems() * sizeof(float));
      }
      load(model, slot, ways_.learns);
    }
    chosen_ = model;
    if (ways_.learns)
      if (const adacc::Error why = learner_.bind(slot)) return why;
    return compact_.bind(arena_, slot);
  }

  const Army* army_ = nullptr;
  ArmyWays ways_;
  adacc::Cpu cpu_;
  Answerer selector_, compact_;
  Learner learner_;
  SceneFilter filter_;
  ModelCache cache_;
  adacc::Graph stored_;  ///< how flash has the parameters of a model
  adacc::Bytes arena_;
  adacc::View<float> input_, heads_;
  std::array<adacc::View<float>, ModelCache::most> slot_{};
  std::size_t chosen_ = ModelCache::none, bytes_ = 0;
  ArmyUse use_;
};

}  // namespace anole
