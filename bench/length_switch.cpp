// SPDX-License-Identifier: MIT
/// How long a step of another length class takes to begin, once the plan of the class exists.
///
///     build/release/bench/length_switch
///
/// A GPT of 12 layers begins steps, and gives them up, in two orders of lengths: always the largest, and one class
/// after the other. Updates are fused, so no block of gradients is cleared.
#include <adacc/core/steady_clock.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/train/lengths.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  using namespace adacc;
  constexpr std::size_t sequences = 4, longest = 256, classes = 8;
  const auto net = gpt::make({.layers = 12, .heads = 4, .channels = 128, .context = longest});
  const Shape largest(sequences, longest);
  auto training = Training<>::make(
      net, Lengths{.largest = largest, .multiples_of = longest / classes, .in_advance = true},
      {.graph = {.updates = Updates::fused}});
  if (!training) return std::fprintf(stderr, "length_switch: %s\n", training.error.text()), 1;
  const std::vector<std::int32_t> tokens(largest.elems(), 1);
  const auto begin_seconds = [&](std::size_t length) {
    const View<const std::int32_t> batch(tokens.data(), Shape(sequences, length));
    const double start = steady_seconds();
    const Error why = training->begin(batch, batch, 1e-3);
    const double took = steady_seconds() - start;
    if (why) std::fprintf(stderr, "length_switch: %s\n", why.text());
    training->compiled_step().abandon();
    return took;
  };
  constexpr std::size_t rounds = 101;
  std::vector<double> same, other;
  for (std::size_t i = 0; i < rounds * classes; ++i) same.push_back(begin_seconds(longest));
  for (std::size_t i = 0; i < rounds * classes; ++i)
    other.push_back(begin_seconds((i % classes + 1) * (longest / classes)));
  for (std::vector<double>* times : {&same, &other}) std::sort(times->begin(), times->end());
  const auto middle = same.size() / 2;
  std::printf("begin of a step   median ms   longest ms\n");
  std::printf("the same class    %9.4f   %10.4f\n", 1e3 * same[middle], 1e3 * same.back());
  std::printf("another class     %9.4f   %10.4f\n", 1e3 * other[middle], 1e3 * other.back());
  return 0;
}
