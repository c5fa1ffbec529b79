// SPDX-License-Identifier: MIT
/// Packed documents: a batch holds them whole, and each has the bits of the document alone.
#include <doctest/doctest.h>

#include <adacc/io/packing.hpp>
#include <adacc/layer/attention.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/models/llama.hpp>
#include <adacc/testing/permuted_executor.hpp>
#include <adacc/train/make.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace packing_test { namespace {

using namespace adacc;

bool says(const Error& error, const char* what) {
  return std::strstr(error.text(), what) != nullptr;
}

constexpr std::size_t vocab = 50, time = 160;
/// Positions of documents, in the order in which they are packed into two sequences of 160.
const std::size_t lengths[] = {70, 65, 1, 128, 17, 7, 20};

std::vector<std::int32_t> document(std::size_t d) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i <= lengths[d]; ++i)
    tokens.push_back(static_cast<std::int32_t>(
        random_word({.seed = 4, .step = static_cast<std::uint32_t>(d)}, i) % vocab));
  return tokens;
}
View<const std::int32_t> view(const std::vector<std::int32_t>& tokens) {
  return {tokens.data(), Shape(tokens.size())};
}

/// All documents; only tokens of document `learnt` are learned.
PackedBatch packed(std::size_t learnt) {
  PackedBatch batch(Shape(2, time));
  for (std::size_t d = 0; d < std::size(lengths); ++d) {
    const std::vector<std::int32_t> tokens = document(d);
    const auto added = batch.add(view(tokens), std::vector<bool>(tokens.size(), d == learnt));
    REQUIRE(added);
    CHECK(*added);
  }
  return batch;
}

TEST_CASE("documents are packed whole, with targets and positions of their own") {
  PackedBatch batch(Shape(2, 6), 9);
  CHECK(*batch.add(view({1, 2, 3})));
  CHECK(*batch.add(view({4, 5, 6, 7, 8}), {false, false, true, false, true}));
  CHECK(*batch.add(view({10, 11, 12, 13, 14})));
  CHECK_FALSE(*batch.add(view({20, 21, 22, 23})));
  CHECK(batch.documents() == 3);
  const auto same = [](View<const std::int32_t> is, const std::vector<std::int32_t>& expected) {
    return std::equal(is.begin(), is.end(), expected.begin(), expected.end());
  };
  CHECK(same(batch.tokens(), {1, 2, 4, 5, 6, 7, 10, 11, 12, 13, 9, 9}));
  constexpr std::int32_t no = ignored_target;
  CHECK(same(batch.targets(), {2, 3, no, 6, no, 8, 11, 12, 13, 14, no, no}));
  CHECK(same(batch.positions(), {0, 1, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1}));
  batch.clear();
  CHECK(batch.documents() == 0);
  CHECK(count_targets(batch.targets()).counted == 0);
  CHECK(*batch.add(view({20, 21, 22, 23})));
  CHECK(says(batch.add(view({1})).error, "at least 2"));
  CHECK(says(batch.add(view({1, 2, 3, 4, 5, 6, 7, 8})).error, "longer than a sequence of 6"));
  CHECK(says(batch.add(view({1, 2, 3}), {true}).error, "3 tokens"));
  CHECK(says(PackedBatch(Shape(6)).add(view({1, 2})).error, "(batch, time)"));
}

template <class Net>
void documents_have_their_own_bits(const Net& net) {
  auto together = *Training<>::make(net, Shape(2, time), {.seed = 3});
  for (std::size_t d = 0; d < std::size(lengths); ++d) {
    CAPTURE(d);
    const PackedBatch batch = packed(d);
    together.context().positions = batch.positions();
    auto alone = *Training<>::make(net, Shape(1, lengths[d]), {.seed = 3});
    const std::vector<std::int32_t> tokens = document(d);
    const Shape shape(1, lengths[d]);
    const View<const std::int32_t> x(tokens.data(), shape), y(tokens.data() + 1, shape);
    const auto loss = together.evaluate(batch.tokens(), batch.targets());
    REQUIRE_MESSAGE(loss, std::string(loss.error.text()));
    CHECK(*loss == *alone.evaluate(x, y));
    // Gradients are sums over rows in another order.
    REQUIRE(together.accumulate(batch.tokens(), batch.targets()));
    REQUIRE(alone.accumulate(x, y));
    const double share = static_cast<double>(lengths[d]) / static_cast<double>(2 * time);
    double off = 0, most = 0;
    for (std::size_t i = 0; i < alone.gradients().size(); ++i) {
      const double g = static_cast<double>(alone.gradients()[i]);
      most = (std::fmax)(most, std::fabs(g));
      off = (std::fmax)(off, std::fabs(static_cast<double>(together.gradients()[i]) / share - g));
    }
    CHECK(off < 2e-5 * most);
    REQUIRE(together.update(0));
  }
  // Without positions, documents of a sequence see each other.
  const PackedBatch batch = packed(1);
  together.context().positions = batch.positions();
  const double apart = *together.evaluate(batch.tokens(), batch.targets());
  together.context().positions = {};
  CHECK(*together.evaluate(batch.tokens(), batch.targets()) != apart);

  // Positions that are none are an error, and nothing is updated.
  std::vector<std::int32_t> wrong(batch.positions().begin(), batch.positions().end());
  wrong[time + 3] = 7;
  together.context().positions = {wrong.data(), Shape(2, time)};
  const auto refused = together.step(batch.tokens(), batch.targets(), 1);
  CHECK_MESSAGE(says(refused.error, "the position 7 of token 3 of sequence 1"),
                std::string(refused.error.text()));
  together.context().positions = {wrong.data(), Shape(time)};
  CHECK(says(together.evaluate(batch.tokens(), batch.targets()).error, "has 160 positions"));
}

/// Rows of all activations are a multiple of 64 bytes: bits of some layers depend on how rows are aligned.
TEST_CASE("documents of a packed batch have the loss bits of the documents alone") {
  documents_have_their_own_bits(llama::make({.layers = 2,
                                             .heads = 4,
                                             .kv_heads = 2,
                                             .channels = 32,
                                             .hidden = 48,
                                             .context = time,
                                             .vocab = vocab}));
  documents_have_their_own_bits(gpt::make({2, 2, 32, time, vocab}));
}

template <class T>
struct Ran {
  std::vector<T> y, dx;
};

template <class T, Mask mask>
Ran<T> attend(const Attention<mask>& f, Shape in, const std::vector<T>& x, const std::vector<T>& dy,
              Cpu cpu, std::size_t parts = 1, bool exact = true) {
  const Shape out = f.output_shape(in);
  const T untouched = detail::rounded<T>(7.0F);
  Ran<T> ran{std::vector<T>(out.elems(), untouched), std::vector<T>(in.elems(), untouched)};
  const LayerNeeds forward = f.needs(in, {dtype_of<T>, cpu.workers(), Pass::forward}),
                   backward = f.needs(in, {dtype_of<T>, cpu.workers(), Pass::backward});
  const auto bytes = [](std::size_t n) { return *Block<std::byte>::make(n + 1, "scratch"); };
  auto aux = bytes(forward.aux), first = bytes(forward.workspace),
       second = bytes(backward.workspace);
  const std::size_t items = forward.split_items, each = div_up(items, parts);
  const auto part = [&](std::size_t at) {
    return Part{at, items - at < each ? items - at : each, items};
  };
  for (std::size_t at = 0; at < items; at += each)
    f.forward(cpu, ForwardCall<T>{.x = {x.data(), in},
                                  .y = {ran.y.data(), out},
                                  .aux = aux.view(),
                                  .workspace = first.view(),
                                  .part = part(at)});
  for (std::size_t at = 0; at < items; at += each)
    f.backward(cpu, BackwardCall<T>{.x = {x.data(), in},
                                    .y = {ran.y.data(), out},
                                    .dy = {dy.data(), out},
                                    .dx = {ran.dx.data(), in},
                                    .aux = aux.view(),
                                    .workspace = second.view(),
                                    .exact_input = exact,
                                    .exact_output = exact,
                                    .part = part(at)});
  return ran;
}

template <class T, Mask mask>
void documents_attend_alone() {
  const Attention<mask> f{.heads = 4, .kv_heads = 2};
  constexpr std::size_t width = 8 * 5, channels = 4 * 5;
  const PackedBatch batch = packed(0);
  const auto numbers = [](std::size_t count, std::uint32_t seed) {
    std::vector<T> list;
    for (std::size_t i = 0; i < count; ++i)
      list.push_back(detail::rounded<T>(4 * unit_float(random_word({.seed = seed}, i)) - 2));
    return list;
  };
  const std::vector<T> x = numbers(2 * time * width, 1), dy = numbers(2 * time * channels, 2);
  for (const bool exact : {true, false})
    for (const std::size_t parts : {std::size_t{1}, std::size_t{3}})
      for (const int workers : {1, 3}) {
        CAPTURE(exact);
        CAPTURE(parts);
        CAPTURE(workers);
        testing::PermutedExecutor executor(workers, 5);
        Cpu cpu{ExecutorRef(executor)};
        cpu.positions = batch.positions();
        const Ran<T> all = attend(f, Shape(2, time, width), x, dy, cpu, parts, exact);
        for (std::size_t start = 0; start < 2 * time;) {
          std::size_t end = start + 1;
          while (end < 2 * time && batch.positions().data()[end] != 0) ++end;
          const auto rows = [&](const std::vector<T>& from, std::size_t cols) {
            return std::vector<T>(from.data() + start * cols, from.data() + end * cols);
          };
          const Ran<T> alone = attend(f, Shape(1, end - start, width), rows(x, width),
                                      rows(dy, channels), Cpu{}, 1, exact);
          CHECK(alone.y == rows(all.y, channels));
          CHECK(alone.dx == rows(all.dx, width));
          start = end;
        }
      }
  // A sequence may end within a document.
  const std::int32_t ends[] = {100, 160};
  Cpu cpu;
  cpu.positions = batch.positions();
  cpu.lengths = {ends, Shape(2)};
  const Ran<T> all = attend(f, Shape(2, time, width), x, dy, cpu);
  if (mask == Mask::causal) return;
  const auto rows = [](const std::vector<T>& from, std::size_t cols) {
    return std::vector<T>(from.data() + 70 * cols, from.data() + 100 * cols);
  };
  const Ran<T> alone = attend(f, Shape(1, 30, width), rows(x, width), rows(dy, channels), Cpu{});
  CHECK(alone.y == rows(all.y, channels));
  CHECK(alone.dx == rows(all.dx, width));
  for (std::size_t i = 100 * channels; i < time * channels; ++i) CHECK(all.y[i] == T{});
}

TEST_CASE("attention keeps documents apart, causal and in both directions") {
  documents_attend_alone<float, Mask::causal>();
  documents_attend_alone<float, Mask::length>();
}
TEST_CASE("attention in bfloat16 keeps documents apart, causal and in both directions") {
  documents_attend_alone<bfloat16, Mask::causal>();
  documents_attend_alone<bfloat16, Mask::length>();
}

}}  // namespace packing_test
