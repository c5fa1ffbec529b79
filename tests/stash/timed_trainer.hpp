// SPDX-License-Identifier: MIT
/// A trainer whose kernels take their time on a clock of the test's. Layers h = h / 2 + a b of a =
/// w h / (1 + h^2) and b = h - w h^3 / 8; all three are read in backward, a and b can be made again.
#pragma once

#include <doctest/doctest.h>

#include <adacc/codec/codec_list.hpp>
#include <adacc/core/random.hpp>
#include <adacc/stash/model.hpp>

#include <deque>
#include <vector>

#include "../step/random_model.hpp"
#include "../store/made_up_clock.hpp"

namespace timed_trainer {

using namespace adacc;
using sample::MadeUpClock;

/// A codec that says that it saw as much noise, over the signal, as the test wants.
struct Upper : random_model::Truncate {
  static constexpr const char* name = "upper_two";
  static inline double seen_noise = 1e-4;
  static CodecStatistics statistics(ConstBytes, std::size_t rows, std::size_t cols, Dtype) {
    CodecStatistics seen;
    seen.elements = rows * cols;
    seen.samples = 4096;
    seen.bulk_signal = 4096;
    seen.bulk_noise = 4096 * seen_noise;
    return seen;
  }
};

inline constexpr std::size_t rows = 32, channels = 64, size = rows * channels;

struct Trainer {
  static constexpr int layers = 8;

  struct MakeA {
    const float* w;
    Trainer* of;
    [[gnu::noinline]] void operator()(const View<const float>* h, View<float> a) const {
      for (std::size_t i = 0; i < size; ++i) a[i] = *w * h[0][i] / (1 + h[0][i] * h[0][i]);
      of->clock.time += of->a_seconds;
    }
  };
  struct MakeB {
    const float* w;
    Trainer* of;
    [[gnu::noinline]] void operator()(const View<const float>* h, View<float> b) const {
      for (std::size_t i = 0; i < size; ++i) b[i] = h[0][i] - *w * h[0][i] * h[0][i] * h[0][i] / 8;
      of->clock.time += of->b_seconds;
    }
  };
  struct MakeUnread {
    void operator()(const View<const float>*, View<float> y) const { y[0] = 1; }
  } make_unread;
  struct Ids {
    int h, a, b;
  };

  MadeUpClock clock;
  double a_seconds = 1e-3, b_seconds = 2e-3;
  StashModel<> model;
  std::vector<Ids> ids;
  std::deque<MakeA> make_a;
  std::deque<MakeB> make_b;
  std::vector<float> w, input, unread;
  Cpu cpu;

  /// `Codecs` of a and b have the gradient error `error` each.
  template <class... Codecs>
  explicit Trainer(CodecList<Codecs...>, [[maybe_unused]] double error = 0) {
    for (int l = 0; l < layers; ++l) w.push_back(0.5F + 0.05F * static_cast<float>(l));
    for (std::size_t i = 0; i < size; ++i)
      input.push_back(2 * unit_float(random_word({.seed = 3}, i)) - 1);
    for (int l = 0; l < layers; ++l) {
      const auto at = static_cast<std::size_t>(l);
      Ids id{};
      id.h = model.add("h", Shape(rows, channels), {l});
      id.a = model.add("a", Shape(rows, channels), {l});
      id.b = model.add("b", Shape(rows, channels), {l});
      make_a.push_back({&w[at], this});
      make_b.push_back({&w[at], this});
      model.recompute(id.a, {id.h}, make_a.back(), {.operations = 1e5});
      model.recompute(id.b, {id.h}, make_b.back(), {.operations = 2e5});
      for ([[maybe_unused]] const int codable : {id.a, id.b})
        (model.allow<Codecs>(codable, error), ...);
      ids.push_back(id);
    }
  }
  /// Something that forward makes of the last h, and backward does not read: it is larger than all else.
  void add_unread() {
    unread.resize(100 * size);
    const int id = model.add("unread", Shape(100 * rows, channels), {});
    model.recompute(id, {ids.back().h}, make_unread, {.operations = 1});
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// What the clock says of a and b, and nothing else: codecs take `codec_seconds`.
  CostProfile profile(double codec_seconds = 1e-4) const {
    const Graph graph = *model.graph();
    CostProfile made = empty_profile(graph);
    for (const Ids& id : ids) {
      made.nodes[static_cast<std::size_t>(id.a)].forward = a_seconds;
      made.nodes[static_cast<std::size_t>(id.b)].forward = b_seconds;
      for (std::size_t c = 0; c < made.codecs.size(); ++c)
        for (const int k : {id.a, id.b}) {
          CodecCost& cost = made.codec_cost(k, static_cast<int>(c));
          cost.encode = cost.decode = codec_seconds;
          cost.error = model.error_of(k, made.codecs[c]);
        }
    }
    if (!unread.empty()) made.nodes[3 * layers].forward = 1e-6;
    made.rest = layers * (a_seconds + b_seconds);
    return made;
  }

  /// One step with an update; `between()` is called between forward and backward.
  template <class AnyStash, class Between>
  Error step(AnyStash& stash, const Between& between) {
    const Shape shape(rows, channels);
    std::vector<float> h = input, a(size), b(size), dh(size, 1e-3F), dw(layers);
    if (const Error why = stash.begin(cpu)) return why;
    for (std::size_t l = 0; l < layers; ++l) {
      const View<const float> from[] = {{h.data(), shape}};
      make_a[l](from, {a.data(), shape});
      make_b[l](from, {b.data(), shape});
      if (const Error why = stash.put(ids[l].h, {h.data(), shape})) return why;
      if (const Error why = stash.put(ids[l].a, {a.data(), shape})) return why;
      if (const Error why = stash.put(ids[l].b, {b.data(), shape})) return why;
      for (std::size_t i = 0; i < size; ++i) h[i] = h[i] / 2 + a[i] * b[i];
    }
    if (!unread.empty())
      if (const Error why = stash.put(3 * layers, {unread.data(), Shape(100 * rows, channels)}))
        return why;
    between();
    for (int l = layers; l-- > 0;) {
      const Ids& id = ids[static_cast<std::size_t>(l)];
      if (const Error why = stash.enter(l)) return why;
      const auto hs = stash.get(id.h), as = stash.get(id.a), bs = stash.get(id.b);
      for (const auto* got : {&hs, &as, &bs})
        if (!*got) return got->error;
      for (std::size_t i = 0; i < size; ++i) {
        dw[static_cast<std::size_t>(l)] += dh[i] * ((*as)[i] * (*bs)[i] + (*hs)[i]);
        dh[i] *= 0.5F + (*as)[i] + (*bs)[i];
      }
      if (const Error why = stash.leave(l)) return why;
    }
    for (std::size_t l = 0; l < layers; ++l) w[l] -= 1e-3F * dw[l];
    return {};
  }
  template <class AnyStash>
  Error step(AnyStash& stash) {
    return step(stash, [] {});
  }
};

}  // namespace timed_trainer
