// SPDX-License-Identifier: MIT
/// Which clips belong together: found from what they look like, and from a few hints.
///
/// Nobody labels all clips. Somebody looks at a few for every value of a few attributes ("this one is
/// high up"), and says nothing about the rest. Hints do two things. They tell which features of a
/// picture matter: a feature counts by the share of its variance among the hinted clips that lies
/// between values of an attribute rather than within them (the correlation ratio; Fisher, "Statistical
/// methods for research workers", 1925). And clips with the same hints must stay together, which begins
/// the groups. The rest is Lloyd's algorithm (k-means) with linked clips moved as one, in the manner of
/// Wagstaff, Cardie, Rogers, Schroedl, "Constrained k-means clustering with background knowledge",
/// ICML 2001.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "frames.hpp"

namespace anole {

inline constexpr std::size_t feature_count = 14;
using Features = std::array<double, feature_count>;

/// Means over the frames of a clip: brightness, contrast, slopes down and across, middle against margin,
/// unevenness in both directions, and how alike pixels are that lie 1, 2, 3 and 4 apart.
inline Features features_of(const Clips& clips, std::size_t clip) {
  Features sums{};
  std::array<double, pixels> value{};
  for (std::size_t f = 0; f < clips.frames_per_clip; ++f) {
    const unsigned char* const picture = clips.picture(clip * clips.frames_per_clip + f);
    double mean = 0, square = 0;
    for (std::size_t p = 0; p < pixels; ++p) mean += value[p] = picture[p] / 255.0;
    mean /= pixels;
    for (double& v : value) v -= mean, square += v * v;
    const double variance = square / pixels + 1e-6;
    double down = 0, across = 0, middle = 0;
    for (std::size_t row = 0; row < side; ++row)
      for (std::size_t col = 0; col < side; ++col) {
        const double v = value[row * side + col];
        down += v * (static_cast<double>(row) - 7.5);
        across += v * (static_cast<double>(col) - 7.5);
        if (row >= 5 && row < 11 && col >= 5 && col < 11) middle += v;
      }
    double* out = sums.data();
    *out++ += mean;
    *out++ += std::log(variance);
    *out++ += down / (pixels * mean + 1);
    *out++ += across / (pixels * mean + 1);
    *out++ += middle / pixels;
    *out++ += std::fabs(middle) / pixels;
    for (std::size_t apart = 1; apart <= 4; ++apart) {
      double below = 0, beside = 0;
      for (std::size_t row = 0; row < side; ++row)
        for (std::size_t col = 0; col < side; ++col) {
          const double v = value[row * side + col];
          if (row + apart < side) below += v * value[(row + apart) * side + col];
          if (col + apart < side) beside += v * value[row * side + col + apart];
        }
      const double pairs = static_cast<double>(side * (side - apart)) * variance;
      *out++ += below / pairs;
      *out++ += beside / pairs;
    }
  }
  for (double& sum : sums) sum /= static_cast<double>(clips.frames_per_clip);
  return sums;
}

/// What somebody said of some clips: by clip, a number for all that was said, or -1.
struct Hints {
  std::vector<int> said;
  std::vector<std::size_t> clips;  ///< those of which something was said

  /// Until `per_value` clips have been looked at for each value of every attribute in `about`, those of
  /// another clip are written down.
  Hints(const Clips& all, const std::vector<Attribute>& about, std::size_t per_value,
        std::uint64_t seed)
      : said(all.scenes.size(), -1) {
    Draws draws(seed, static_cast<std::uint32_t>(Stream::hints), 0);
    std::vector<std::size_t> order(all.scenes.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (std::size_t i = 0; i + 1 < order.size(); ++i)
      std::swap(order[i], order[i + draws.below(order.size() - i)]);
    std::map<std::pair<Attribute, int>, std::size_t> looked_at;
    for (const std::size_t clip : order) {
      bool needed = false;
      for (const Attribute a : about)
        needed = needed || looked_at[{a, all.scenes[clip].value[a]}] < per_value;
      if (!needed) continue;
      int words = 0;
      for (const Attribute a : about) {
        ++looked_at[{a, all.scenes[clip].value[a]}];
        words = words * 8 + all.scenes[clip].value[a];
      }
      said[clip] = words;
      clips.push_back(clip);
    }
    std::sort(clips.begin(), clips.end());
  }
};

/// The groups that were found.
struct SceneGroups {
  std::vector<std::size_t> of_clip;
  std::size_t count = 0;
  std::array<double, feature_count> weights{};
  double agreement = 0;  ///< share of pairs of clips that are together just if hints would say so
};

namespace detail {

/// By clip: features with mean 0 and variance 1 over all of them.
inline std::vector<Features> standardized(const Clips& clips) {
  const std::size_t count = clips.scenes.size();
  std::vector<Features> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = features_of(clips, i);
  for (std::size_t f = 0; f < feature_count; ++f) {
    double mean = 0, square = 0;
    for (const Features& one : all) mean += one[f] / static_cast<double>(count);
    for (const Features& one : all)
      square += (one[f] - mean) * (one[f] - mean) / static_cast<double>(count);
    for (Features& one : all) one[f] = (one[f] - mean) / std::sqrt(square + 1e-12);
  }
  return all;
}

/// The share of the variance of feature `f` among hinted clips that attribute `a` explains, less what
/// as many groups would explain by chance.
inline double explained(const std::vector<Features>& all, const Clips& clips, const Hints& hints,
                        Attribute a, std::size_t f) {
  const std::size_t values = attribute_values[a], n = hints.clips.size();
  std::vector<double> sums(values), counts(values);
  double mean = 0;
  for (const std::size_t clip : hints.clips) {
    sums[clips.scenes[clip].value[a]] += all[clip][f];
    counts[clips.scenes[clip].value[a]] += 1;
    mean += all[clip][f] / static_cast<double>(n);
  }
  double whole = 0, within = 0;
  for (const std::size_t clip : hints.clips) {
    const std::size_t v = clips.scenes[clip].value[a];
    const double own = all[clip][f] - sums[v] / counts[v];
    within += own * own;
    whole += (all[clip][f] - mean) * (all[clip][f] - mean);
  }
  if (n <= values || whole <= 0) return 0;
  const double left = within / static_cast<double>(n - values);
  return std::max(0.0, 1 - left / (whole / static_cast<double>(n - 1)));
}

inline double distance(const Features& a, const Features& b) {
  double sum = 0;
  for (std::size_t f = 0; f < feature_count; ++f) sum += (a[f] - b[f]) * (a[f] - b[f]);
  return sum;
}

}  // namespace detail

/// `count` groups, or as many as there are clips to begin them.
inline SceneGroups find_groups(const Clips& clips, const Hints& hints,
                               const std::vector<Attribute>& about, std::size_t count) {
  SceneGroups groups;
  std::vector<Features> all = detail::standardized(clips);
  for (std::size_t f = 0; f < feature_count; ++f) {
    double best = 0;
    for (const Attribute a : about)
      best = std::max(best, detail::explained(all, clips, hints, a, f));
    groups.weights[f] = best * best;
    for (Features& one : all) one[f] *= groups.weights[f];
  }

  // Clips that move as one: those with the same hints, and every other alone. The linked come first,
  // the largest before the others.
  std::map<int, std::vector<std::size_t>> linked;
  for (const std::size_t clip : hints.clips) linked[hints.said[clip]].push_back(clip);
  std::vector<std::vector<std::size_t>> units;
  for (auto& [words, together] : linked) units.push_back(together);
  std::stable_sort(units.begin(), units.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  const std::size_t links = units.size();
  for (std::size_t clip = 0; clip < clips.scenes.size(); ++clip)
    if (hints.said[clip] < 0) units.push_back({clip});
  const auto middle = [&](const std::vector<std::size_t>& unit) {
    Features sum{};
    for (const std::size_t clip : unit)
      for (std::size_t f = 0; f < feature_count; ++f)
        sum[f] += all[clip][f] / static_cast<double>(unit.size());
    return sum;
  };

  // Groups begin with the linked clips, and then with what is farthest from all before.
  std::vector<Features> centres;
  for (std::size_t u = 0; u < links && centres.size() < count; ++u)
    centres.push_back(middle(units[u]));
  while (centres.size() < count && centres.size() < units.size()) {
    double most = -1;
    Features farthest{};
    for (const auto& unit : units) {
      const Features here = middle(unit);
      double nearest = std::numeric_limits<double>::infinity();
      for (const Features& centre : centres)
        nearest = std::min(nearest, detail::distance(here, centre));
      if (nearest > most) most = nearest, farthest = here;
    }
    centres.push_back(farthest);
  }

  groups.count = centres.size();
  groups.of_clip.assign(clips.scenes.size(), 0);
  for (int round = 0; round < 100; ++round) {
    bool moved = false;
    for (const auto& unit : units) {
      std::size_t best = 0;
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t g = 0; g < centres.size(); ++g) {
        double sum = 0;
        for (const std::size_t clip : unit) sum += detail::distance(all[clip], centres[g]);
        if (sum < least) least = sum, best = g;
      }
      for (const std::size_t clip : unit) {
        moved = moved || groups.of_clip[clip] != best;
        groups.of_clip[clip] = best;
      }
    }
    if (!moved && round > 0) break;
    for (std::size_t g = 0; g < centres.size(); ++g) {
      std::vector<std::size_t> members;
      for (std::size_t clip = 0; clip < groups.of_clip.size(); ++clip)
        if (groups.of_clip[clip] == g) members.push_back(clip);
      if (!members.empty()) centres[g] = middle(members);  // one without clips stays where it is
    }
  }

  double agree = 0, pairs = 0;
  for (std::size_t i = 0; i < clips.scenes.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      bool same = true;
      for (const Attribute a : about)
        same = same && clips.scenes[i].value[a] == clips.scenes[j].value[a];
      agree += same == (groups.of_clip[i] == groups.of_clip[j]);
      pairs += 1;
    }
  groups.agreement = pairs > 0 ? agree / pairs : 1;
  return groups;
}

}  // namespace anole
