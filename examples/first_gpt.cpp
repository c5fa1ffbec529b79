// SPDX-License-Identifier: MIT
/// A GPT in one sitting: trains on text within a memory budget, evaluates, saves, resumes, and writes text of its own.
/// The model is quickstart's: 6 layers of 192 channels that read bytes. train_gpt is the tool with all options.
///
///     first_gpt TEXT [STEPS [PERCENT [CHECKPOINT]]]
///
/// TEXT is a file or a folder. PERCENT is the budget, as a share of the memory that keeping everything takes.
#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/steady_clock.hpp>
#include <adacc/io/file.hpp>
#include <adacc/io/text.hpp>
#include <adacc/models/gpt.hpp>
#include <adacc/train.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

using namespace adacc;

namespace {

constexpr std::size_t batch = 8, time_steps = 128;
constexpr gpt::Config config{.layers = 6, .heads = 6, .channels = 192, .context = time_steps};

/// A batch of token ids: each target is the token behind its input.
struct Batch {
  std::vector<std::int32_t> inputs = std::vector<std::int32_t>(batch * time_steps),
                            targets = inputs;

  Error fill(const Tokens& text, std::uint64_t index) {
    return text.batch(index, batch, time_steps, {inputs.data(), Shape(batch * time_steps)},
                      {targets.data(), Shape(batch * time_steps)});
  }
  AnyView input() const {
    return View<const std::int32_t>(inputs.data(), Shape(batch, time_steps));
  }
  AnyView target() const {
    return View<const std::int32_t>(targets.data(), Shape(batch, time_steps));
  }
};

/// `count` bytes that the network writes, each drawn from its predictions for the next one.
template <class Network>
Result<std::string> sample(const Network& network, const Training<>& training, std::size_t count) {
  auto inference = Inference<>::make(network, Shape(1, time_steps));
  if (!inference) return inference.error;
  if (Error why = inference->take_memory()) return why;
  if (Error why = inference->copy_parameters(training.params())) return why;
  const float* const table =
      training.params().data();  // of tokens, the first parameter, and the head's as well
  Cpu cpu;
  std::string text = "\n";
  std::int32_t window[time_steps] = {};
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t seen = text.size() < time_steps ? text.size() : time_steps;
    for (std::size_t t = 0; t < seen; ++t)
      window[t] = static_cast<unsigned char>(text[text.size() - seen + t]);
    const auto hidden =
        inference->infer(cpu, View<const std::int32_t>(window, Shape(1, time_steps)));
    if (!hidden) return hidden.error;
    double weight[256], sum = 0;
    for (std::size_t v = 0; v < config.vocab; ++v) {
      float logit = 0;
      for (std::size_t c = 0; c < config.channels; ++c)
        logit += hidden->data()[(seen - 1) * config.channels + c] * table[v * config.channels + c];
      sum += weight[v] = std::exp(static_cast<double>(logit));
    }
    double left = sum * static_cast<double>(unit_float(random_word({.seed = 1}, i)));
    std::size_t drawn = 0;
    while (drawn + 1 < config.vocab && (left -= weight[drawn]) >= 0) ++drawn;
    text += static_cast<char>(drawn);
  }
  return text.substr(1);
}

int fail(const Error& why) { return std::fprintf(stderr, "%s\n", why.text()), 1; }

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int unless) {  // 0: argument i is none
    char* end = nullptr;
    const long read = argc > i ? std::strtol(argv[i], &end, 10) : unless;
    return (argc > i && *end != 0) || read > 1'000'000'000 ? 0 : static_cast<int>(read);
  };
  const int steps = number(2, 300), percent = number(3, 30);
  const std::string checkpoint = argc > 4 ? argv[4] : "";
  if (argc < 2 || argc > 5 || argv[1][0] == '-' || steps < 1 || percent < 1 || percent > 100)
    return std::fprintf(stderr,
                        "usage: %s TEXT [STEPS [PERCENT of memory, 1 to 100 [CHECKPOINT]]]\n",
                        argv[0]),
           2;
  if (!checkpoint.empty())  // before any work that could not be saved
    if (const auto file = AtomicFile::create(checkpoint); !file) return fail(file.error);
  const Result<Tokens> text = read_text(argv[1]);
  if (!text) return fail(text.error);
  if (Error why = text->check_batch(batch, time_steps)) return fail(why);
  const std::uint64_t batches = text->batches(batch, time_steps);  // the last one is held out

  // The network, and the memory of keeping every activation.
  const auto network = gpt::make<gpt::PlannedSet>(config);
  EigenPool pool(2);
  const Shape shape(batch, time_steps);
  const auto graph = make_graph(network, shape, {.workers = 2});
  if (!graph) return fail(graph.error);
  const std::size_t whole = peak_bytes(*graph, retain_all(*graph));

  // A training within the budget. Layers are timed on the first batch, and the plan is made from their times.
  auto training = Training<>::make(network, shape,
                                   {.budget_bytes = whole / 100 * static_cast<std::size_t>(percent),
                                    .clock = steady_seconds,
                                    .context = Cpu(ExecutorRef(pool)),
                                    .seed = 42,
                                    .clip = 1,
                                    .model = gpt::describe(config)});
  if (!training) return fail(training.error);
  if (!checkpoint.empty() && std::filesystem::exists(checkpoint)) {
    if (const auto info = training->load(checkpoint); !info) return fail(info.error);
    std::printf("goes on from %s, after %llu steps\n", checkpoint.c_str(),
                static_cast<unsigned long long>(training->updates()));
  }

  Batch now, held_out;
  if (Error why = held_out.fill(*text, batches - 1)) return fail(why);
  double mean = 0;
  for (int i = 1; i <= steps; ++i) {
    const std::uint64_t step = training->updates();
    if (Error why = now.fill(*text, batches > 1 ? step % (batches - 1) : 0)) return fail(why);
    const double warm = step < 20 ? static_cast<double>(step + 1) / 20 : 1;
    const auto done = training->step(now.input(), now.target(), 1e-3 * warm);
    if (!done) return fail(done.error);
    mean += done->loss;
    if (i % 50 != 0 && i != steps) continue;
    const auto loss = training->evaluate(held_out.input(), held_out.target());
    if (!loss) return fail(loss.error);
    std::printf("step %4llu  loss %.4f  held out %.4f\n",
                static_cast<unsigned long long>(training->updates()),
                mean / (i % 50 == 0 ? 50 : i % 50), *loss);
    mean = 0;
  }
  std::printf("activations %zu bytes, and %zu if everything were kept\n", training->peak_bytes(),
              whole);
  if (!checkpoint.empty())
    if (Error why = training->save(checkpoint)) return fail(why);

  const auto written = sample(network, *training, 200);
  if (!written) return fail(written.error);
  std::printf("%s\n", written->c_str());
}
