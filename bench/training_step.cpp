// SPDX-License-Identifier: MIT
/// A step of the reference GPT in fp32 and in bf16: processor time of one thread, gradients and update apart.
///
/// The precisions take turns. Programs built with other options are compared by runs in turn
/// (docs/bf16.md).
#include <CLI/CLI.hpp>

#include <adacc/models/gpt.hpp>
#include <adacc/train/make.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <vector>

namespace {

using namespace adacc;

double processor_milliseconds() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// A training and its times, in milliseconds.
template <class T, class Network>
struct Contestant {
  Result<Training<T, Cpu>> training;
  std::vector<double> gradients, updates;

  Contestant(const Network& network, Shape shape)
      : training(Training<T, Cpu>::make(network, shape, {.seed = 1})) {}

  Error step(View<const std::int32_t> batch) {
    const double start = processor_milliseconds();
    if (const auto loss = training->accumulate(batch, batch); !loss) return loss.error;
    const double middle = processor_milliseconds();
    if (const auto outcome = training->update(1e-4); !outcome) return outcome.error;
    gradients.push_back(middle - start);
    updates.push_back(processor_milliseconds() - middle);
    return {};
  }
};

}  // namespace

int main(int argc, char** argv) {
  gpt::Config config{.layers = 6, .heads = 6, .channels = 384, .context = 256};
  std::size_t batch = 4;
  int steps = 4;
  CLI::App app("Times a step of a GPT in both precisions, on one thread.", "training_step");
  app.option_defaults()->always_capture_default();
  app.add_option("--layers", config.layers)->check(CLI::Range(1, 1000));
  app.add_option("--heads", config.heads)->check(CLI::Range(1, 1000));
  app.add_option("--channels", config.channels)->check(CLI::Range(1, 1 << 20));
  app.add_option("--context", config.context)->check(CLI::Range(1, 1 << 20));
  app.add_option("--batch", batch)->check(CLI::Range(1, 1 << 20));
  app.add_option("--steps", steps, "steps counted, after one that is not")
      ->check(CLI::Range(1, 10000));
  CLI11_PARSE(app, argc, argv);

  const auto network = gpt::make(config);
  const Shape shape(batch, config.context);
  std::vector<std::int32_t> tokens(shape.elems());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(random_word({.seed = 1}, i) % config.vocab);
  Contestant<float, decltype(network)> fp32(network, shape);
  Contestant<bfloat16, decltype(network)> bf16(network, shape);
  Error why = fp32.training.error ? fp32.training.error : bf16.training.error;
  const View<const std::int32_t> input(tokens.data(), shape);
  for (int i = 0; i <= steps && !why; ++i) {
    why = fp32.step(input);
    if (!why) why = bf16.step(input);
    if (i == 0)
      fp32.gradients.clear(), fp32.updates.clear(), bf16.gradients.clear(), bf16.updates.clear();
  }
  if (why) return std::fprintf(stderr, "training_step: %s\n", why.text()), 2;
  std::printf("fp32 %.1f + %.1f ms, bf16 %.1f + %.1f ms\n", median(fp32.gradients),
              median(fp32.updates), median(bf16.gradients), median(bf16.updates));
}
