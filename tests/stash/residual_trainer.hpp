// SPDX-License-Identifier: MIT
/// A plain trainer of residual blocks, r += gelu(norm(r) w1) w2, whose activations a stash keeps.
#pragma once

#include <doctest/doctest.h>

#include <adacc/codec/int8_outlier.hpp>
#include <adacc/core/random.hpp>
#include <adacc/stash/stash.hpp>

#include <cmath>
#include <cstring>
#include <deque>
#include <vector>

namespace residual_trainer {

using namespace adacc;

inline constexpr std::size_t rows = 64, channels = 32, hidden = 64;

inline void product(const float* x, const float* w, float* y, std::size_t in, std::size_t out) {
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t o = 0; o < out; ++o) {
      float sum = 0;
      for (std::size_t i = 0; i < in; ++i) sum += x[r * in + i] * w[i * out + o];
      y[r * out + o] = sum;
    }
}
inline void product_backward(const float* x, const float* w, const float* dy, float* dx, float* dw,
                             std::size_t in, std::size_t out) {
  std::memset(dx, 0, rows * in * sizeof(float));
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t i = 0; i < in; ++i)
      for (std::size_t o = 0; o < out; ++o) {
        dx[r * in + i] += dy[r * out + o] * w[i * out + o];
        dw[i * out + o] += x[r * in + i] * dy[r * out + o];
      }
}
inline void norm(const float* r, float* y, float* mean, float* rstd) {
  for (std::size_t row = 0; row < rows; ++row, r += channels, y += channels) {
    float m = 0, v = 0;
    for (std::size_t c = 0; c < channels; ++c) m += r[c] / channels;
    for (std::size_t c = 0; c < channels; ++c) v += (r[c] - m) * (r[c] - m) / channels;
    mean[row] = m;
    rstd[row] = 1 / std::sqrt(v + 1e-5F);
    for (std::size_t c = 0; c < channels; ++c) y[c] = (r[c] - m) * rstd[row];
  }
}
inline void norm_backward(const float* r, const float* mean, const float* rstd, const float* dy,
                          float* dr) {
  for (std::size_t row = 0; row < rows; ++row) {
    float sum = 0, along = 0;
    const std::size_t at = row * channels;
    for (std::size_t c = 0; c < channels; ++c) {
      sum += dy[at + c] / channels;
      along += dy[at + c] * (r[at + c] - mean[row]) * rstd[row] / channels;
    }
    for (std::size_t c = 0; c < channels; ++c)
      dr[at + c] += rstd[row] * (dy[at + c] - sum - (r[at + c] - mean[row]) * rstd[row] * along);
  }
}
inline void gelu(const float* x, float* y) {
  for (std::size_t i = 0; i < rows * hidden; ++i)
    y[i] = 0.5F * x[i] * (1 + std::tanh(0.8F * (x[i] + 0.04F * x[i] * x[i] * x[i])));
}
inline void gelu_backward(const float* x, const float* dy, float* dx) {
  for (std::size_t i = 0; i < rows * hidden; ++i) {
    const float t = std::tanh(0.8F * (x[i] + 0.04F * x[i] * x[i] * x[i]));
    dx[i] = dy[i] * (0.5F * (1 + t) + 0.4F * x[i] * (1 - t * t) * (1 + 0.12F * x[i] * x[i]));
  }
}

struct alignas(64) Line {
  std::byte bytes[64];
};

/// The trainer: `blocks` blocks, and half the squared distance from a target as its loss.
struct Trainer {
  struct Sum {
    const float* w = nullptr;
    void operator()(const View<const float>* x, View<float> y) const {  // r, act
      product(x[1].data(), w, y.data(), hidden, channels);
      for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[0][i];
    }
  };
  struct Widen {
    const float* w = nullptr;
    void operator()(const View<const float>* x, View<float> y) const {
      product(x[0].data(), w, y.data(), channels, hidden);
    }
  };
  struct Norm {
    void operator()(const View<const float>* x, const View<float>* y) const {
      norm(x[0].data(), y[0].data(), y[1].data(), y[2].data());
    }
  };
  struct Gelu {
    void operator()(const View<const float>* x, View<float> y) const {
      gelu(x[0].data(), y.data());
    }
  };
  struct Ids {
    int r, norm, mean, rstd, fc, act;
  };

  int blocks;
  std::vector<float> w1, w2, dw1, dw2, input, target;
  StashModel<> model;
  std::vector<Ids> ids;
  Norm normalize;
  Gelu activate;
  std::deque<Widen> widen;
  std::deque<Sum> sum;
  Cpu cpu;

  /// allow(model, id) says which codecs an activation of that many elements in a row may have.
  template <class Allow>
  Trainer(int block_count, const Allow& allow)
      : blocks(block_count), w1(weights(1, channels)), w2(weights(2, hidden)), dw1(w1.size()),
        dw2(w2.size()), input(numbers(3, rows * channels, 1)),
        target(numbers(4, rows * channels, 2)) {
    for (int l = 0; l < blocks; ++l) {
      Ids id{};
      id.r = model.add("r", Shape(rows, channels), {l});
      id.norm = model.add("norm", Shape(rows, channels), {l});
      id.mean = model.add("mean", Shape(rows), {l});
      id.rstd = model.add("rstd", Shape(rows), {l});
      id.fc = model.add("fc", Shape(rows, hidden), {l});
      id.act = model.add("act", Shape(rows, hidden), {l});
      const std::size_t at = static_cast<std::size_t>(l) * channels * hidden;
      if (l > 0) {
        sum.push_back({w2.data() + at - channels * hidden});
        model.recompute(id.r, {ids.back().r, ids.back().act}, sum.back(),
                        {.operations = 2 * rows * channels * hidden});
      }
      widen.push_back({w1.data() + at});
      model.recompute_together({id.norm, id.mean, id.rstd}, {id.r}, normalize,
                               {.operations = 8 * rows * channels});
      model.recompute(id.fc, {id.norm}, widen.back(), {.operations = 2 * rows * channels * hidden});
      model.recompute(id.act, {id.fc}, activate, {.operations = 20 * rows * hidden});
      for (const int codable : {id.r, id.norm, id.fc, id.act}) allow(model, codable);
      ids.push_back(id);
    }
  }

  static std::vector<float> numbers(std::uint64_t seed, std::size_t count, float scale) {
    std::vector<float> x(count);
    for (std::size_t i = 0; i < count; ++i)
      x[i] = scale * (2 * unit_float(random_word({.seed = seed}, i)) - 1);
    return x;
  }
  std::vector<float> weights(std::uint64_t seed, std::size_t in) const {
    return numbers(seed, static_cast<std::size_t>(blocks) * channels * hidden,
                   1.5F / std::sqrt(static_cast<float>(in)));
  }

  /// One step without an update, on memory of its own that every block uses again; `stash` is a
  /// Stash, or what checks one.
  template <class AnyStash>
  Result<Array<View<const float>>> step(AnyStash& stash) {
    std::vector<float> r = input, n(rows * channels), mean(rows), rstd(rows), fc(rows * hidden),
                       act(rows * hidden), y(rows * channels);
    std::fill(dw1.begin(), dw1.end(), 0.0F);
    std::fill(dw2.begin(), dw2.end(), 0.0F);
    if (const Error why = stash.begin(cpu)) return why;
    const Shape wide(rows, hidden), narrow(rows, channels), each(rows);
    for (int l = 0; l < blocks; ++l) {
      const Ids& id = ids[static_cast<std::size_t>(l)];
      const float* at_w1 = w1.data() + static_cast<std::size_t>(l) * channels * hidden;
      const float* at_w2 = w2.data() + static_cast<std::size_t>(l) * channels * hidden;
      norm(r.data(), n.data(), mean.data(), rstd.data());
      product(n.data(), at_w1, fc.data(), channels, hidden);
      gelu(fc.data(), act.data());
      const std::pair<int, View<const float>> made[] = {
          {id.r, {r.data(), narrow}},     {id.norm, {n.data(), narrow}},
          {id.mean, {mean.data(), each}}, {id.rstd, {rstd.data(), each}},
          {id.fc, {fc.data(), wide}},     {id.act, {act.data(), wide}}};
      for (const auto& [which, value] : made)
        if (const Error why = stash.put(which, value)) return why;
      product(act.data(), at_w2, y.data(), hidden, channels);
      for (std::size_t i = 0; i < r.size(); ++i) r[i] = y[i] + r[i];
    }
    std::vector<float> dr(r.size()), dact(rows * hidden), dfc(rows * hidden), dn(r.size());
    for (std::size_t i = 0; i < r.size(); ++i) dr[i] = r[i] - target[i];
    for (int l = blocks - 1; l >= 0; --l) {
      const Ids& id = ids[static_cast<std::size_t>(l)];
      const std::size_t at = static_cast<std::size_t>(l) * channels * hidden;
      if (const Error why = stash.enter(l)) return why;
      View<const float> saved[6];
      int i = 0;
      for (const int which : {id.r, id.norm, id.mean, id.rstd, id.fc, id.act}) {
        const Result<View<const float>> got = stash.get(which);
        if (!got) return got.error;
        saved[i++] = *got;
      }
      product_backward(saved[5].data(), w2.data() + at, dr.data(), dact.data(), dw2.data() + at,
                       hidden, channels);
      gelu_backward(saved[4].data(), dact.data(), dfc.data());
      product_backward(saved[1].data(), w1.data() + at, dfc.data(), dn.data(), dw1.data() + at,
                       channels, hidden);
      norm_backward(saved[0].data(), saved[2].data(), saved[3].data(), dn.data(), dr.data());
    }
    Array<View<const float>> gradients;
    gradients.push_back({dw1.data(), Shape(dw1.size())});
    gradients.push_back({dw2.data(), Shape(dw2.size())});
    return gradients;
  }

  /// The gradients of a step under `plan`, one after the other.
  std::vector<float> gradient(const Plan& plan) {
    auto stash = Stash<>::make(model, plan);
    REQUIRE_MESSAGE(stash, stash.error.text());
    std::vector<Line> arena(stash->arena_bytes() / 64 + 1);
    REQUIRE_FALSE(stash->bind({arena[0].bytes, Shape(64 * arena.size())}));
    const auto made = step(*stash);
    REQUIRE_MESSAGE(made, made.error.text());
    std::vector<float> all;
    for (const View<const float>& part : *made) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
};

/// |a - b|^2 / |b|^2.
inline double error_of(const std::vector<float>& a, const std::vector<float>& b) {
  double distance = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    distance += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return distance / norm;
}

}  // namespace residual_trainer
