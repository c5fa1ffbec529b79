// SPDX-License-Identifier: MIT
/// Random small modules: chains of operators that save all sorts of tensors, the same for a seed.
///
/// A module works on images, (N, C, H, W), or on sequences, (B, T, C). Every step keeps the shape, so
/// any may follow any; among them are views, indexing and operators in place.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "support.hpp"

namespace torch_tests {

class RandomModule {
 public:
  /// `scale` makes images wider, and sequences longer and more.
  explicit RandomModule(unsigned seed, std::int64_t scale = 1) : seed_(seed), random_(seed) {
    images_ = below(2) == 0;
    const std::int64_t sizes[] = {1 + below(3), 8, scale * (4 + below(5)), scale * (4 + below(5))};
    const std::int64_t lengths[] = {scale * (1 + below(3)), scale * (3 + below(14)), 16};
    at::manual_seed(seed);
    input_ =
        images_ ? at::randn(at::IntArrayRef(sizes, 4)) : at::randn(at::IntArrayRef(lengths, 3));
    if (below(2) == 0) input_.requires_grad_(true);
    const int steps = 3 + static_cast<int>(below(8));
    for (int i = 0; i < steps; ++i) steps_.push_back(static_cast<int>(below(images_ ? 28 : 26)));
    breaks_ = below(10) == 0;
    // Parameters are made by a first run.
    const at::NoGradGuard none;
    const at::Tensor out = forward();
    weight_ = at::randn_like(out);
    if (parameters_.empty()) input_.requires_grad_(true);
  }

  /// Draws what it draws from the default generator, seeded.
  at::Tensor loss() {
    at::manual_seed(seed_ + 1000);
    const at::Tensor out = forward();
    return (out * weight_).sum();
  }

  /// Input and parameters that ask for a gradient.
  std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> all = parameters_;
    if (input_.requires_grad()) all.push_back(input_);
    return all;
  }
  /// Whether it changes a tensor in place that autograd may have saved.
  bool may_break() const { return breaks_; }

 private:
  std::int64_t below(unsigned n) { return static_cast<std::int64_t>(random_() % n); }

  at::Tensor draw(at::IntArrayRef sizes, double scale = 0.3) {
    if (next_ == parameters_.size())
      parameters_.push_back((at::randn(sizes) * scale).requires_grad_(true));
    return parameters_[next_++];
  }

  at::Tensor forward() {
    next_ = 0;
    at::Tensor x = input_;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      x = images_ ? image_step(x, steps_[i]) : sequence_step(x, steps_[i]);
      if (breaks_ && i + 1 == steps_.size() / 2 && !x.is_leaf()) {
        const at::Tensor y = x * x;  // saves x
        x.add_(1);
        x = y + x;
      }
    }
    return x;
  }

  at::Tensor linear(const at::Tensor& x) {
    const std::int64_t channels = x.size(-1);
    return at::linear(x, draw({channels, channels}), draw({channels}));
  }

  static at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
#if TORCH_VERSION_MAJOR >= 2
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
#else
    const at::Tensor mask = at::ones({q.size(2), q.size(2)}, at::kBool).triu(1);
    const at::Tensor scores = at::matmul(q, k.transpose(2, 3)) * 0.35;
    return at::matmul(scores.masked_fill(mask, -1e30).softmax(3), v);
#endif
  }

  at::Tensor image_step(const at::Tensor& x, int step) {
    const std::int64_t channels = x.size(1);
    switch (step) {
      case 0: return at::conv2d(x, draw({channels, channels, 3, 3}, 0.15), draw({channels}), 1, 1);
      case 1: return at::conv2d(x, draw({channels, 1, 3, 3}), {}, 1, 1, 1, channels);
      case 2:
        return at::batch_norm(x, draw({channels}), draw({channels}), {}, {}, true, 0.1, 1e-5,
                              false);
      case 3: return at::group_norm(x, 2, draw({channels}), draw({channels}));
      case 4: return at::relu(x * 1.5);
      case 5: return (x * 0.9).relu_();
      case 6: return std::get<0>(at::max_pool2d_with_indices(x, {3, 3}, {1, 1}, {1, 1}));
      case 7: return at::avg_pool2d(x, {3, 3}, {1, 1}, {1, 1});
      case 8: return x + at::gelu(at::conv2d(x, draw({channels, channels, 1, 1})));
      case 9: return x.contiguous(at::MemoryFormat::ChannelsLast);
      case 10: return at::cat({x.slice(1, channels / 2), x.slice(1, 0, channels / 2).square()}, 1);
      case 11: return x.index_select(1, at::randperm(channels)) * x;
      case 12: return x.flip({2}).roll({1}, {3});
      case 13: {
        at::Tensor y = x * 2;
        y.select(1, 0).mul_(0.5);
        return y.sigmoid();
      }
      case 14: return at::leaky_relu(x, 0.1).mul_(0.7);
      default: return common_step(x, step - 15);
    }
  }

  at::Tensor sequence_step(const at::Tensor& x, int step) {
    const std::int64_t channels = x.size(2);
    switch (step) {
      case 0: return linear(x);
      case 1: return at::layer_norm(x, {channels}, draw({channels}), draw({channels}));
      case 2: {
        const auto parts = at::linear(x, draw({3 * channels, channels})).split(channels, 2);
        std::vector<at::Tensor> heads;
        for (const at::Tensor& part : parts)
          heads.push_back(part.view({x.size(0), x.size(1), 2, channels / 2}).transpose(1, 2));
        const at::Tensor y = attention(heads[0], heads[1], heads[2]);
        return x + linear(y.transpose(1, 2).reshape(x.sizes()));
      }
      case 3: return x + linear(at::gelu(linear(x)));
      case 4: {  // a gated unit
        const auto halves = at::linear(x, draw({2 * channels, channels})).chunk(2, 2);
        return at::silu(halves[0]) * halves[1];
      }
      case 5: return at::bmm(x, x.transpose(1, 2)).softmax(2).bmm(x);
      case 6: {
        const at::Tensor tokens = at::randint(0, 30, {x.size(0), x.size(1)}, at::kLong);
        return x + at::embedding(draw({30, channels}), tokens);
      }
      case 7: return x.transpose(0, 1).contiguous().transpose(0, 1) * x;
      case 8: return x * (x.square().mean(-1, true) + 1e-5).rsqrt() * draw({channels});
      case 9: return linear(x.to(at::kDouble).tanh().to(at::kFloat));
      case 10: return at::cumsum(x, 1) * 0.5;
      case 11: {
        const at::Tensor best = std::get<0>(x.max(2, true));
        return (x - best).exp() * 0.5;
      }
      case 12: return x.gather(2, at::randint(0, channels, x.sizes(), at::kLong)) * x;
      default: return common_step(x, step - 13);
    }
  }

  at::Tensor common_step(const at::Tensor& x, int step) {
    switch (step) {
      case 0: return at::dropout(x, 0.3, true);
      case 1: return (x * x).div(x.abs() + 1);
      case 2: return (x.square() + 0.5).sqrt();
      case 3: return (x.abs() + 0.1).log();
      case 4: return x.tanh() * x.sigmoid();
      case 5: return at::where(x > 0.2, x, x * 0.1);
      case 6: return x.masked_fill(x < -0.5, 0.3) * x;
      case 7: return x.clamp(-1, 1) + x.pow(2) * 0.1;
      case 8: return x.to(at::kBFloat16).mul(0.5).sin().to(at::kFloat);
      case 9: return (x.clone().add_(0.1).mul_(1.1)).cos();
      case 10: return x.softmax(-1) * x.size(-1);
      case 11: return at::stack({x, x.square()}, 0).mean(0);
      default: {
        std::vector<std::int64_t> twice = x.sizes().vec();
        twice.insert(twice.begin(), 2);
        return x.unsqueeze(0).expand(twice).sum(0) * x;
      }
    }
  }

  unsigned seed_;
  std::mt19937 random_;
  bool images_ = false, breaks_ = false;
  at::Tensor input_, weight_;
  std::vector<int> steps_;
  std::vector<at::Tensor> parameters_;
  std::size_t next_ = 0;
};

}  // namespace torch_tests
