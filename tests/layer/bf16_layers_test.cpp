// SPDX-License-Identifier: MIT
// Layers on bfloat16: outputs, gradients and sums are those of float on the same numbers within the rounding of what is
// stored, for any number of threads, and no byte beside the tensors changes.
#include <doctest/doctest.h>

#include <adacc/layer/attention.hpp>
#include <adacc/layer/causal_attention.hpp>
#include <adacc/layer/dropout.hpp>
#include <adacc/layer/embedding.hpp>
#include <adacc/layer/erf_gelu.hpp>
#include <adacc/layer/gelu.hpp>
#include <adacc/layer/layer_norm.hpp>
#include <adacc/layer/linear.hpp>
#include <adacc/layer/lora_linear.hpp>
#include <adacc/layer/pooling.hpp>
#include <adacc/layer/relu.hpp>
#include <adacc/layer/rms_norm.hpp>
#include <adacc/layer/rotary_embedding.hpp>
#include <adacc/layer/silu.hpp>
#include <adacc/layer/swiglu.hpp>

#include "layer_run.hpp"

namespace bf16_layers_test {

using namespace adacc;

namespace {

/// `most`: of the relative error of outputs and gradients. Rounding to bfloat16 alone is about 1.7e-3.
template <class F>
void check(const F& f, Shape in, double most = 3e-3, std::size_t vocab = 1) {
  CAPTURE(f.name);
  CAPTURE(in.elems());
  const auto full = layer_tests::run<float>(f, in, 0, vocab, true);
  const auto half = layer_tests::run<bfloat16>(f, in, 0, vocab, true);
  CHECK(layer_tests::relative_distance(half.y, full.y) < most);
  CHECK(layer_tests::relative_distance(half.dx, full.dx) < most);
  CHECK(layer_tests::relative_distance(half.gradients, full.gradients) < most);
  for (const int workers : {2, 3})
    CHECK(layer_tests::run<bfloat16>(f, in, workers, vocab, true) == half);
}

}  // namespace

TEST_CASE("Elementwise layers compute in float and round what they store") {
  for (const Shape in : {Shape(3, 7), Shape(5, 600), Shape(70, 512)}) {
    check(Gelu{}, in);
    check(ErfGelu{}, in);
    check(Silu{}, in);
    check(Relu{}, in);
    check(Dropout{.rate = 0.2F}, in);
  }
  check(SwiGlu{}, Shape(3, 14));
  check(SwiGlu{}, Shape(40, 1200));
  check(RotaryEmbedding{.heads = 3, .kv_heads = 1}, Shape(2, 9, 5 * 14));
  check(RotaryEmbedding{.heads = 3, .kv_heads = 1, .norms = true}, Shape(2, 9, 5 * 14));
  check(MeanOverTime{}, Shape(3, 9, 700));
  check(FirstPosition{}, Shape(3, 9, 70));
}

TEST_CASE("Norms, tables and products sum in float") {
  for (const Shape in : {Shape(3, 7), Shape(35, 600), Shape(70, 512)}) {
    check(LayerNorm{}, in);
    check(RmsNorm{}, in);
    check(Linear{.out = 50}, in);
    check(Linear{.out = 16, .bias = false}, in);
    // Its sum is of two numbers, each rounded, and so is its inner one.
    check(LoraLinear{.out = 50, .rank = 5}, in, 8e-3);
  }
  check(Embedding{.vocab = 31, .context = 20, .channels = 530}, Shape(3, 20), 3e-3, 31);
  check(Embedding{.vocab = 31, .context = 20, .channels = 30, .types = 2}, Shape(3, 9), 3e-3, 62);
}

TEST_CASE("Attention rounds weights for its products") {
  for (const std::size_t time :
       {std::size_t{1}, std::size_t{5}, std::size_t{64}, std::size_t{100}, std::size_t{130}}) {
    check(CausalAttention{.heads = 2}, Shape(2, time, 2 * 3 * 12), 1e-2);
    check(CausalAttention{.heads = 4, .kv_heads = 2}, Shape(2, time, 8 * 16), 1e-2);
    check(BidirectionalAttention{.heads = 2}, Shape(2, time, 2 * 3 * 9), 1e-2);
  }
  check(CausalAttention{.heads = 1}, Shape(1, 70, 3 * 600), 1e-2);
}

}  // namespace bf16_layers_test
