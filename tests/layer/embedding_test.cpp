// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <adacc/layer/embedding.hpp>
#include <adacc/testing/gradient_check.hpp>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "layer_run.hpp"

namespace embedding_test {

using namespace adacc;

TEST_CASE("embedding: gradients, float against double, bits on any number of threads") {
  for (const std::size_t channels : {1U, 3U, 7U, 64U, 100U}) {
    const Embedding embedding{.vocab = 5, .context = 9, .channels = channels};
    const auto result = testing::gradient_check(embedding, Shape{3, 8}, {.max_elements = 100});
    CHECK_MESSAGE(result.passed, result.text());
    for (const std::size_t time : {1U, 9U}) {
      const Shape in{13, time};
      const auto serial = layer_tests::run<float>(embedding, in, 0, 5);
      const auto exact = layer_tests::run<double>(embedding, in, 0, 5);
      CHECK(layer_tests::distance(serial.y, exact.y) < 1e-6);
      CHECK(serial.y.size() == 13 * time * channels);
      for (int workers = 1; workers <= 3; ++workers)
        CHECK(serial == layer_tests::run<float>(embedding, in, workers, 5));
    }
  }
}

TEST_CASE("embedding: rows are token plus position; repeated tokens add up in the gradient") {
  const Embedding embedding{.vocab = 3, .context = 4, .channels = 2};
  alignas(64) float params[32] = {10, 11, 20, 21, 30, 31}, gradients[32] = {};
  for (int t = 0; t < 4; ++t) params[16 + 2 * t] = 1 + static_cast<float>(t);
  Parameter list[2];
  list[0].shape = Shape{3, 2};
  list[1].shape = Shape{4, 2};
  list[1].offset = 16;
  const std::int32_t tokens[] = {2, 0, 2, 1, 2, 2};
  const Shape in{2, 3}, out = embedding.output_shape(in);
  REQUIRE(out == Shape{2, 3, 2});
  testing::GuardedBlock y_block(12 * sizeof(float)), dy_block(12 * sizeof(float));
  float* const y = y_block.as<float>();
  float* const dy = dy_block.as<float>();
  for (int i = 0; i < 12; ++i) dy[i] = static_cast<float>(1 + i);
  Cpu cpu;
  embedding.forward(
      cpu, ForwardCall<float, std::int32_t>{.x = View<const std::int32_t>(tokens, in),
                                            .y = View<float>(y, out),
                                            .params = Params<const float>(params, list, 2)});
  const float expected[] = {31, 31, 12, 11, 33, 31, 21, 21, 32, 31, 33, 31};
  for (int i = 0; i < 12; ++i) CHECK(y[i] == expected[i]);
  gradients[4] = 100;
  embedding.backward(
      cpu, BackwardCall<float, std::int32_t>{.x = View<const std::int32_t>(tokens, in),
                                             .dy = View<const float>(dy, out),
                                             .params = Params<const float>(params, list, 2),
                                             .dparams = Params<float>(gradients, list, 2)});
  const float tokens_expected[] = {3, 4, 7, 8, 100 + 1 + 5 + 9 + 11, 2 + 6 + 10 + 12};
  for (int i = 0; i < 6; ++i) CHECK(gradients[i] == tokens_expected[i]);
  const float positions_expected[] = {8, 10, 12, 14, 16, 18, 0, 0};
  for (int i = 0; i < 8; ++i) CHECK(gradients[16 + i] == positions_expected[i]);
}

TEST_CASE("embedding: a token outside the vocabulary gives NaN and touches nothing") {
  const Embedding embedding{.vocab = 2, .context = 3, .channels = 5};
  testing::GuardedBlock params(64 * sizeof(float), 0), gradients(64 * sizeof(float), 0);
  testing::GuardedBlock y(15 * sizeof(float), 0);
  Parameter list[2];
  list[0].shape = Shape{2, 5};
  list[1].shape = Shape{3, 5};
  list[1].offset = 16;
  const std::int32_t tokens[] = {-1, 1, 2};
  const Shape in{1, 3}, out{1, 3, 5};
  Cpu cpu;
  embedding.forward(cpu, ForwardCall<float, std::int32_t>{
                             .x = View<const std::int32_t>(tokens, in),
                             .y = View<float>(y.as<float>(), out),
                             .params = Params<const float>(params.as<float>(), list, 2)});
  for (std::size_t i = 0; i < 15; ++i) CHECK(std::isnan(y.as<float>()[i]) == (i / 5 != 1));
  testing::GuardedBlock dy(15 * sizeof(float), 0);
  for (std::size_t i = 0; i < 15; ++i) dy.as<float>()[i] = 1;
  embedding.backward(cpu, BackwardCall<float, std::int32_t>{
                              .x = View<const std::int32_t>(tokens, in),
                              .dy = View<const float>(dy.as<float>(), out),
                              .params = Params<const float>(params.as<float>(), list, 2),
                              .dparams = Params<float>(gradients.as<float>(), list, 2)});
  CHECK(gradients.intact());
  float sum = 0;
  for (std::size_t i = 0; i < 64; ++i) sum += gradients.as<float>()[i];
  CHECK(sum == 10);  // token 1 and its position
}

TEST_CASE("embedding: declarations") {
  constexpr Embedding embedding{.vocab = 256, .context = 128, .channels = 64};
  static_assert(layer_traits<Embedding>::takes_tokens);
  static_assert(embedding.output_shape(Shape{4, 32}) == Shape{4, 32, 64});
  static_assert(!embedding.needs(Shape{4, 128}, {}).error);
  const auto params = embedding.parameters(Shape{4, 128});
  CHECK(params[0].shape == Shape{256, 64});
  CHECK(std::strcmp(params[0].tied, "wte") == 0);
  CHECK(params[1].shape == Shape{128, 64});
  CHECK(params[1].tied == nullptr);
  CHECK(params[0].decay);
  CHECK(params[0].init.kind == Init::Kind::normal);
  CHECK(params[0].init.scale == doctest::Approx(0.02));
}

TEST_CASE("embedding: what cannot work is refused in words") {
  const auto says = [](const Embedding& embedding, Shape in, const char* words) {
    const Error error = embedding.needs(in, {}).error;
    CHECK_MESSAGE(std::string(error.text()).find(words) != std::string::npos, error.text());
  };
  const Embedding good{.vocab = 256, .context = 256, .channels = 64};
  says(good, Shape{4, 512}, "sequence length T 512 exceeds the context 256");
  says(good, Shape(4), "rank 1");
  says(good, Shape{4, 16, 2}, "rank 3");
  says(good, Shape{0, 16}, "at least 1");
  says(good, Shape{4, 0}, "at least 1");
  says({.vocab = 0, .context = 8, .channels = 8}, Shape{1, 8}, "vocab 0");
  says({.vocab = 8, .context = 8}, Shape{1, 8}, "channels 0");
  says({.vocab = std::size_t{1} << 31, .context = 8, .channels = 8}, Shape{1, 8}, "32-bit");
  says({.vocab = 256, .context = 8, .channels = std::size_t{1} << 56}, Shape{1, 8}, "addressed");
  says({.vocab = 2, .context = std::size_t{1} << 40, .channels = 64},
       Shape{std::size_t{1} << 20, std::size_t{1} << 40}, "addressed");
}

TEST_CASE("embedding: with token types, and without positions") {
  for (const std::size_t types : {std::size_t{0}, std::size_t{1}, std::size_t{3}})
    for (const bool positions : {false, true}) {
      const Embedding embedding{
          .vocab = 5, .context = 9, .channels = 7, .types = types, .positions = positions};
      const std::size_t ids = 5 * (types == 0 ? 1 : types);
      const auto result =
          testing::gradient_check(embedding, Shape{3, 8}, {.max_elements = 100, .vocab = ids});
      CHECK_MESSAGE(result.passed, result.text());
      CHECK(embedding.parameters(Shape{3, 8}).size() == 1U + (positions ? 1 : 0) + (types ? 1 : 0));
    }
  const Embedding embedding{.vocab = 3, .context = 2, .channels = 1, .types = 2};
  const float params[] = {10, 20, 30, 1, 2, 100, 200};
  Parameter list[3];
  list[0].shape = Shape{3, 1};
  list[1].shape = Shape{2, 1};
  list[1].offset = 3;
  list[2].shape = Shape{2, 1};
  list[2].offset = 5;
  const std::int32_t tokens[] = {2, 3 + 1, 6, -1};  // the last two are none
  float y[4] = {};
  Cpu cpu;
  embedding.forward(
      cpu, ForwardCall<float, std::int32_t>{.x = View<const std::int32_t>(tokens, Shape{2, 2}),
                                            .y = View<float>(y, Shape{2, 2, 1}),
                                            .params = Params<const float>(params, list, 3)});
  CHECK(y[0] == 30 + 1 + 100);
  CHECK(y[1] == 20 + 2 + 200);
  CHECK(std::isnan(y[2]));
  CHECK(std::isnan(y[3]));
  CHECK(Embedding{.vocab = std::size_t{1} << 30, .context = 2, .channels = 1, .types = 2}
            .needs(Shape{1, 2}, {})
            .error);
}

}  // namespace embedding_test
