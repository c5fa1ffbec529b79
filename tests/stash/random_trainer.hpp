// SPDX-License-Identifier: MIT
/// Trainers drawn at random, whose activations a stash keeps: sources, stages, codecs, callables that
/// make several activations, values that lie in the arena, stages that need bytes for themselves, gradients
/// that go from stage to stage.
#pragma once

#include <doctest/doctest.h>

#include <adacc/cost/profile.hpp>
#include <adacc/stash/model.hpp>

#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "../step/random_model.hpp"

namespace random_trainer {

using namespace adacc;
using random_model::Truncate;

/// Three bytes of each float: without loss for the tests' values, which have no more.
struct Upper {
  static constexpr const char* name = "upper";
  static constexpr bool lossless = true;
  static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols, Dtype) {
    return rows * cols * 3;
  }
  template <class T>
  static Error encode(Cpu&, View<const T> x, Bytes blob) {
    for (std::size_t i = 0; i < x.size(); ++i)
      std::memcpy(blob.data() + 3 * i, reinterpret_cast<const std::byte*>(&x[i]) + 1, 3);
    return {};
  }
  template <class T>
  static Error decode(Cpu&, ConstBytes blob, View<T> x) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = 0;
      std::memcpy(reinterpret_cast<std::byte*>(&x[i]) + 1, blob.data() + 3 * i, 3);
    }
    return {};
  }
};

using Values = std::vector<float>;

/// The upper `bytes` of a float.
inline float rounded(double x, int bytes = 3) {
  const auto value = static_cast<float>(x);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  bits &= ~0U << 8 * (4 - bytes);
  float back = 0;
  std::memcpy(&back, &bits, 4);
  return back;
}

/// y[i] from a few values of every source, never twice the same by accident.
struct Mix {
  int id = 0;
  std::vector<std::size_t> sizes;  ///< of the sources
  mutable int calls = 0;
  /// One piece of code for all callers: inlined, compilers contract products and sums as they like.
  [[gnu::noinline]] void operator()(const View<const float>* x, View<float> y) const {
    ++calls;
    for (std::size_t i = 0; i < y.size(); ++i) {
      double sum = 0.37 * id + 0.011 * static_cast<double>(i);
      for (std::size_t s = 0; s < sizes.size(); ++s) {
        REQUIRE(x[s].size() == sizes[s]);
        sum = 0.8 * sum + static_cast<double>(x[s][i % sizes[s]]);
      }
      y[i] = rounded(sum / (1 + sum * sum));
    }
  }
};

/// Several activations from the same sources, as many Mixes would make them, with a workspace.
struct MixTogether {
  std::vector<Mix> mixes;
  std::size_t workspace_bytes = 0;
  mutable int calls = 0;
  void operator()(const View<const float>* x, const View<float>* y, Bytes workspace) const {
    ++calls;
    REQUIRE(workspace.size() == workspace_bytes);
    for (std::byte& byte : workspace) byte = std::byte{0xFF};
    for (std::size_t i = 0; i < mixes.size(); ++i) mixes[i](x, y[i]);
  }
};

/// A gradient that stages `first` to `last` carry, as floats or as bytes.
struct Carried {
  std::size_t bytes = 0;
  bool raw = false;
  int first = 0, last = 0;

  bool lives_in(int stage) const { return last <= stage && stage <= first; }
};

/// A trainer drawn at random: activations with random sources, stages and codecs.
struct Drawn {
  StashModel<> model;
  std::deque<Mix> functions;
  std::deque<MixTogether> together;
  std::vector<std::vector<int>> sources, stages;
  std::vector<Shape> shapes;
  std::vector<bool> again, held;
  std::vector<std::size_t> stage_bytes;
  std::vector<Carried> carried;
  int stage_count = 0;
};

inline void carry(StashModel<>& model, const Carried& one) {
  if (one.raw) model.carry("d", StashBytes{one.bytes}, one.first, one.last);
  else model.carry("d", Shape(one.bytes / 4), one.first, one.last);
}

inline void draw(unsigned seed, Drawn& drawn, unsigned most = 12) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  const int count = 1 + below(most);
  drawn.stage_count = 1 + below(10);
  const auto add = [&](const std::vector<int>& sources) {
    std::vector<int> stages;
    for (int i = below(4); i > 0; --i)
      stages.push_back(below(static_cast<unsigned>(drawn.stage_count)));
    const Shape shape(1 + random() % 5, 8 + random() % 40);
    const int id = drawn.model.add("a", shape, {stages.data(), stages.size()});
    REQUIRE(id == static_cast<int>(drawn.shapes.size()));
    Mix& function = drawn.functions.emplace_back();
    function.id = id;
    for (const int source : sources)
      function.sizes.push_back(drawn.shapes[static_cast<std::size_t>(source)].elems());
    drawn.model.allow<Upper>(id);
    drawn.model.allow<Truncate>(id, 1e-3);
    drawn.shapes.push_back(shape);
    drawn.sources.push_back(sources);
    drawn.stages.push_back(stages);
    return id;
  };
  for (int id = 0; id < count; ++id) {
    std::vector<int> sources;
    for (int i = below(4); i > 0 && id > 0; --i)
      sources.push_back(seed % 4 == 3 ? id - 1 - below(id > 1 ? 2 : 1)  // a chain of segments
                                      : below(static_cast<unsigned>(id)));
    add(sources);
    drawn.again.push_back(below(4) != 0);
    const StashList from(sources.data(), sources.size());
    if (seed % 2 == 1 && drawn.again.back() && id + 1 < count) {
      // Some are made by one callable.
      std::vector<int> ids = {id};
      for (int i = below(3); i > 0 && id + 1 < count; --i) {
        ids.push_back(add(sources));
        drawn.again.push_back(true);
        ++id;
      }
      MixTogether& function = drawn.together.emplace_back();
      for (const int made : ids)
        function.mixes.push_back(drawn.functions[static_cast<std::size_t>(made)]);
      if (below(2) == 0) function.workspace_bytes = 1 + random() % 900;
      drawn.model.recompute_together({ids.data(), ids.size()}, from, function,
                                     {.workspace_bytes = function.workspace_bytes});
    } else if (drawn.again.back()) {
      drawn.model.recompute(id, from, drawn.functions.back());
    }
  }
  for (int id = 0; id < count; ++id) {
    const auto k = static_cast<std::size_t>(id);
    drawn.held.push_back(seed % 3 == 2 && below(4) != 0);
    if (drawn.held[k]) drawn.model.hold(id);
    if (!drawn.again[k] && seed % 3 == 2)
      drawn.model.made_from(id, {drawn.sources[k].data(), drawn.sources[k].size()});
  }
  for (int stage = 0; stage < drawn.stage_count && seed % 5 < 2; ++stage) {
    drawn.stage_bytes.push_back(below(3) == 0 ? 0 : random() % 700);
    drawn.model.stage_bytes(stage, drawn.stage_bytes.back());
  }
  for (int i = seed % 7 < 4 ? below(4) : 0; i > 0; --i) {
    Carried one;
    one.raw = below(2) == 0;
    one.bytes = one.raw ? 1 + random() % 900 : 4 * (1 + random() % 200);
    one.first = below(static_cast<unsigned>(drawn.stage_count));
    one.last = below(static_cast<unsigned>(one.first) + 1);
    carry(drawn.model, one);
    drawn.carried.push_back(one);
  }
}

/// Costs of its kernels and codecs.
inline CostProfile draw_profile(const Graph& graph, std::mt19937& random) {
  const auto unit = [&] { return static_cast<double>(random() % 1000 + 1) / 1000; };
  CostProfile profile = empty_profile(graph);
  for (std::size_t k = 0; k < profile.nodes.size(); ++k)
    if (graph.nodes[k].made_by < 0) profile.nodes[k].forward = unit();
  for (CodecCost& cost : profile.codec_costs)
    cost = {unit() / 4, unit() / 4, unit() / 100, unit() / 30};
  profile.rest = 3;
  return profile;
}

}  // namespace random_trainer
