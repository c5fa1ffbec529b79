// SPDX-License-Identifier: MIT
/// Text token by token: logits of a whole pass, memory known beforehand, full contexts, drawn tokens.
#include <doctest/doctest.h>

#include <adacc/layer/attention.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/models/llama.hpp>
#include <adacc/train/generate.hpp>
#include <adacc/train/make.hpp>
#include <adacc/train/sampler.hpp>

#include <cstring>
#include <set>
#include <vector>

#include "support.hpp"

namespace generate_test { namespace {

using namespace adacc;
using train_test::says;

const llama::Config small{.layers = 2,
                          .heads = 6,
                          .kv_heads = 2,
                          .channels = 48,
                          .hidden = 64,
                          .context = 160,
                          .vocab = 80};

Block<float> drawn(std::size_t count) {
  Block<float> params = *Block<float>::make(count, "parameters");
  for (std::size_t i = 0; i < count; ++i)
    params[i] = unit_float(random_word({.seed = 7}, i)) - 0.5F;
  return params;
}
std::vector<std::int32_t> text(std::size_t count, std::size_t vocab) {
  std::vector<std::int32_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i)
    tokens[i] = static_cast<std::int32_t>(random_word({.seed = 9}, i) % vocab);
  return tokens;
}
View<const std::int32_t> view(const std::vector<std::int32_t>& tokens, std::size_t first,
                              std::size_t end) {
  return {tokens.data() + first, Shape(end - first)};
}

/// Feeds pieces that end at `ends`; after each, logits are those of one pass over all tokens so far.
template <class Net>
void check_logits(const Net& network, std::size_t vocab, std::size_t context,
                  const std::vector<std::size_t>& ends) {
  auto generator = Generator::make(network, {.context = context});
  REQUIRE_MESSAGE(generator, generator.error.text());
  auto params = drawn(generator->graph().parameter_elems);
  const View<float> block = params.view();
  const View<const float> lent(block.data(), block.shape());
  REQUIRE_FALSE(generator->take_memory());
  REQUIRE_FALSE(generator->bind(block));
  Cpu cpu;
  const auto tokens = text(ends.back(), vocab);
  std::size_t from = 0;
  for (const std::size_t end : ends) {
    CAPTURE(end);
    const auto logits = generator->feed(cpu, view(tokens, from, end));
    REQUIRE_MESSAGE(logits, logits.error.text());
    CHECK(generator->position() == end);
    from = end;
    auto whole = Inference<>::make(network, Shape(1, end));
    REQUIRE(whole);
    REQUIRE_FALSE(whole->take_memory());
    REQUIRE_FALSE(whole->copy_parameters(lent));
    const auto all = whole->infer(cpu, View<const std::int32_t>(tokens.data(), Shape(1, end)));
    REQUIRE(all);
    REQUIRE(logits->size() == vocab);
    CHECK(std::memcmp(logits->data(), all->data(), vocab * sizeof(float)) == 0);
  }
}

const std::vector<std::size_t> pieces{1, 2, 7, 63, 64, 65, 66, 90, 128, 129, 150};

TEST_CASE("logits of a continued text have the bits of one pass over all of it") {
  SUBCASE("Llama, heads in groups") {
    const auto network = generator_of(llama::make(small));
    check_logits(network, small.vocab, small.context, pieces);
  }
  SUBCASE("Llama, tied head, adapters") {
    llama::Config config = small;
    config.tied_head = true;
    const auto network = generator_of(llama::make_lora(config, {.rank = 3}));
    check_logits(network, small.vocab, 150, pieces);
  }
  SUBCASE("GPT, learned positions, a context of no whole blocks") {
    const gpt::Config config{.layers = 2, .heads = 3, .channels = 48, .context = 150, .vocab = 70};
    const auto network = generator_of(gpt::make(config));
    check_logits(network, config.vocab, config.context, pieces);
  }
  SUBCASE("a context shorter than a block") {
    const auto network = generator_of(llama::make(small));
    check_logits(network, small.vocab, 20, {3, 20});
  }
}

TEST_CASE("a generator's network has the parameters of the one with a loss") {
  for (const bool tied : {false, true}) {
    llama::Config config = small;
    config.tied_head = tied;
    const auto trained = llama::make_lora(config, {.rank = 3});
    const auto network = generator_of(trained);
    const auto with_loss = make_graph(trained, Shape(2, 8)),
               without = make_graph(network, Shape(1, 8));
    REQUIRE(with_loss);
    REQUIRE(without);
    CHECK(with_loss->parameter_elems == without->parameter_elems);
    REQUIRE(with_loss->parameters.size() == without->parameters.size());
    for (std::size_t i = 0; i < with_loss->parameters.size(); ++i) {
      CHECK(with_loss->parameters[i].offset == without->parameters[i].offset);
      CHECK(with_loss->parameters[i].shape == without->parameters[i].shape);
    }
    // Adapters alone are trained.
    std::size_t trains = 0;
    for (const Parameter& parameter : with_loss->parameters) trains += !parameter.frozen;
    CHECK(trains == 2 * 4 * 2);
  }
}

void decode_floats(const std::byte* from, std::size_t blocks, float* to) {
  std::memcpy(to, from, blocks * sizeof(float));
}

TEST_CASE("the head of a generator may stay in a file, as the loss may") {
  const BlockFormat floats{"F32", 1, sizeof(float), &decode_floats};
  const auto network = generator_of(llama::make_lora(small, {.rank = 3}));
  auto plain = Generator::make(network, {.context = 64});
  REQUIRE(plain);
  auto params = drawn(plain->graph().parameter_elems);
  const Graph& graph = plain->graph();
  const Parameter& head = graph.parameters[graph.parameters.size() - 1];
  StoredParameter in_file;
  in_file.shape = head.shape;
  const void* const bytes = params.data() + head.offset;
  in_file.pieces[0] = {&floats, static_cast<const std::byte*>(bytes), head.shape[0], 0};
  in_file.count = 1;
  StoredParameters stored;
  stored.add({-1, 0, 0}, in_file);
  auto mapped = Generator::make(network, {.context = 64, .stored = &stored});
  REQUIRE_MESSAGE(mapped, mapped.error.text());
  REQUIRE(mapped->graph().parameter_elems == head.offset);
  REQUIRE_FALSE(plain->take_memory());
  REQUIRE_FALSE(plain->bind(params.view()));
  REQUIRE_FALSE(mapped->take_memory());
  REQUIRE_FALSE(mapped->bind(View<float>(params.data(), Shape(head.offset))));
  Cpu cpu;
  const auto tokens = text(50, small.vocab);
  const auto a = plain->feed(cpu, view(tokens, 0, 50)), b = mapped->feed(cpu, view(tokens, 0, 50));
  REQUIRE(a);
  REQUIRE(b);
  CHECK(std::memcmp(a->data(), b->data(), small.vocab * sizeof(float)) == 0);
}

TEST_CASE("a generator's memory is known, and no pass takes more") {
  const auto network = generator_of(llama::make(small));
  const auto generator = Generator::make(network, {.context = 100});
  REQUIRE(generator);
  // Keys and values of 2 heads of 8 channels, in 2 layers.
  CHECK(generator->state_bytes() == 100 * 2 * 2 * 2 * 8 * sizeof(float));
  CHECK(generator->memory_bytes() ==
        generator->arena_bytes() + generator->state_bytes() + 164 * sizeof(std::int32_t));
}

TEST_CASE("a full context is an error, or forgets the older half") {
  const auto network = generator_of(llama::make(small));
  const auto tokens = text(200, small.vocab);
  Cpu cpu;
  for (const WhenFull when : {WhenFull::refuse, WhenFull::forget}) {
    auto generator = Generator::make(network, {.context = 150, .when_full = when});
    REQUIRE(generator);
    auto params = drawn(generator->graph().parameter_elems);
    const View<float> block = params.view();
    CHECK(says(generator->feed(cpu, view(tokens, 0, 3)).error.text(), "take_memory()"));
    REQUIRE_FALSE(generator->take_memory());
    REQUIRE_FALSE(generator->bind(block));
    CHECK(says(generator->feed(cpu, {}).error.text(), "at least 1"));
    REQUIRE(generator->feed(cpu, view(tokens, 0, 149)));
    const auto more = generator->feed(cpu, view(tokens, 149, 155));
    if (when == WhenFull::refuse) {
      CHECK(says(more.error.text(), "context of 150 tokens has 149 of them already: 6 more"));
      CHECK(generator->position() == 149);
      REQUIRE(generator->feed(cpu, view(tokens, 149, 150)));
      continue;
    }
    REQUIRE(more);
    CHECK(generator->position() == 75 + 6);
    CHECK(generator->forgotten() == 74);
    const std::vector<float> logits(more->begin(), more->end());
    auto fresh = Generator::make(network, {.context = 150});
    REQUIRE(fresh);
    REQUIRE_FALSE(fresh->take_memory());
    REQUIRE_FALSE(fresh->bind(block));
    const auto again = fresh->feed(cpu, view(tokens, 74, 155));
    REQUIRE(again);
    CHECK(std::memcmp(again->data(), logits.data(), logits.size() * sizeof(float)) == 0);
    CHECK(says(generator->feed(cpu, view(tokens, 100, 180)).error.text(), "do not fit"));
    // What was fed by mistake is fed again in other words.
    generator->rewind(70);
    fresh->rewind();
    REQUIRE(fresh->feed(cpu, view(tokens, 74, 144)));
    const auto here = generator->feed(cpu, view(tokens, 100, 103));
    const auto there = fresh->feed(cpu, view(tokens, 100, 103));
    REQUIRE(here);
    REQUIRE(there);
    CHECK(std::memcmp(here->data(), there->data(), logits.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("networks that cannot continue a text are refused in words") {
  const auto both_ways =
      Network{Sequential{layer(Embedding{.vocab = 20, .context = 32, .channels = 16}),
                         layer(Linear{.out = 48}), layer(BidirectionalAttention{.heads = 2})},
              CrossEntropyHead{.vocab = 20}};
  const auto network = generator_of(both_ways);
  CHECK(
      says(Generator::make(network, {.context = 8}).error.text(), "\"attention\" cannot continue"));
  const auto decoder = generator_of(llama::make(small));
  CHECK(says(Generator::make(decoder, {.context = 161}).error.text(), "exceeds the context 160"));
  CHECK(says(Generator::make(decoder, {}).error.text(), "at least 1 token"));
}

TEST_CASE("a carried state has no place in other passes") {
  const auto network = llama::make(small);
  const Shape shape(1, 8);
  auto training = Training<>::make(network, shape, {});
  REQUIRE(training);
  const auto tokens = text(8, small.vocab);
  const View<const std::int32_t> input(tokens.data(), shape);
  const CarriedState state{};
  training->context().carried = &state;
  CHECK(says(training->step(input, input, 1e-3).error.text(), "Mode::infer"));
  CHECK(training->context().carried == nullptr);
  CHECK(training->step(input, input, 1e-3));
  const auto writer = generator_of(network);
  auto pass = Inference<>::make(writer, shape);
  REQUIRE(pass);
  REQUIRE_FALSE(pass->take_memory());
  Cpu cpu;
  const std::vector<std::size_t> places(pass->graph().nodes.size());
  const CarriedState of_another{nullptr, places.data(), 3, 100, 0, 8},
      full{nullptr, places.data(), places.size(), 100, 93, 8};
  cpu.carried = &of_another;
  CHECK(says(pass->infer(cpu, input).error.text(), "a network with 3 layers"));
  cpu.carried = &full;
  CHECK(says(pass->infer(cpu, input).error.text(), "8 more do not fit behind the first 93"));
}

TEST_CASE("tokens are the likeliest, or drawn from those that are likely enough") {
  const float logits[] = {1, 3, 3, -2, 2.5F};
  const View<const float> all(logits, Shape(5));
  Sampler greedy;
  CHECK(*greedy.next(all) == 1);
  Sampler one({.temperature = 1, .seed = 5}), same({.temperature = 1, .seed = 5}),
      other({.temperature = 1, .seed = 6}), likely({.temperature = 1, .top_p = 0.5, .seed = 5});
  std::vector<int> a, b, c;
  std::set<int> few;
  std::size_t count[5] = {};
  for (int i = 0; i < 4000; ++i) {
    a.push_back(*one.next(all));
    b.push_back(*same.next(all));
    c.push_back(*other.next(all));
    few.insert(*likely.next(all));
    ++count[a.back()];
  }
  CHECK(a == b);
  CHECK(a != c);
  CHECK(few == std::set<int>{1, 2});  // 0.36 each
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  for (std::size_t i = 0; i < 5; ++i)
    CHECK(static_cast<double>(count[i]) / 4000 ==
          doctest::Approx(std::exp(static_cast<double>(logits[i])) / sum)
              .epsilon(0.1 + 0.5 * (i == 3)));
  const float bad[] = {1, std::numeric_limits<float>::quiet_NaN()};
  CHECK(says(greedy.next(View<const float>(bad, Shape(2))).error.text(), "logit of token 1"));
  CHECK(says(Sampler({.temperature = -1}).next(all).error.text(), "temperature"));
  CHECK(says(Sampler({.temperature = 1, .top_p = 0}).next(all).error.text(), "top_p"));
}

}}  // namespace generate_test
