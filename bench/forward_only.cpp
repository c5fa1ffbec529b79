// SPDX-License-Identifier: MIT
/// Forward passes alone, or backpropagation? Loss against seconds at equal total memory.
///
/// A small GPT learns one text, and is then tuned to another by each of: backpropagation under its
/// smallest plan, with moments in 8 bits; forward-only training in the same total, with the same
/// batch and with one that fills the memory; and both with adapters. Every one gets the same seconds
/// of training, in turns of a share, because machines are shared; validation is not counted. Each
/// starts with a trial of several rates, and goes on, from the start, with the one that was best; rates
/// fall to zero by the end.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <adacc/io/file.hpp>
#include <adacc/io/weights/adapters.hpp>
#include <adacc/train/forward_only.hpp>
#include <support/draw/curve.hpp>
#include <support/optimizer.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpt_run.hpp"

namespace {

namespace gpt = adacc::gpt;
using namespace adacc;

struct Options {
  gpt::Config network{4, 4, 128, 64, 256};
  std::size_t batch = 8, seq = 64, rank = 8;
  std::uint64_t first_steps = 600;
  int threads = 2, directions = 1;
  double epsilon = 1e-3, seconds = 60, trial = 6, share = 2;
  std::string first = ADACC_EIGEN_INCLUDE_DIR, text, val, json, svg;
};

/// Someone who tunes the network: its memory, its batches, its loss.
class Tuner {
 public:
  std::string name;
  std::vector<double> rates;
  double rate = 0, seconds = 0;
  draw::Points losses;  ///< on the validation text, by seconds of training
  std::uint64_t updates = 0;

  Tuner(std::string called, const Options& options, const Cpu& cpu, std::size_t batch,
        std::vector<double> tried)
      : name(std::move(called)), rates(std::move(tried)), o_(options), cpu_(cpu), batch_(batch) {}
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;
  virtual ~Tuner() = default;

  virtual TrainingMemoryUse memory() const = 0;
  std::size_t batch() const { return batch_; }

  /// From `plain`, the parameters of the network without adapters, that `graph` lays out.
  Error restart(const Graph& graph, const std::vector<float>& plain) {
    if (const Error why = fresh()) return why;
    const Graph mine = without_adapters(this->graph());
    adacc::detail::each_parameter(graph, mine,
                                  [&](std::size_t from, std::size_t to, std::size_t elems) {
                                    std::copy_n(plain.data() + from, elems, params().data() + to);
                                  });
    seconds = 0;
    updates = 0;
    losses.clear();
    return validate_setup();
  }

  /// Trains for `share` seconds. The loss that comes out is on `validation`.
  Error turn(const Tokens& text, const Tokens& validation, double share) {
    const Shape shape(batch_, o_.seq);
    std::vector<std::int32_t> x(shape.elems()), y(shape.elems());
    const double end = seconds + share;
    while (seconds < end) {
      const double start = steady_seconds();
      const Error filled = text.batch(updates, batch_, o_.seq, {x.data(), Shape(x.size())},
                                      {y.data(), Shape(y.size())});
      if (filled) return filled;
      const auto outcome = step(View<const std::int32_t>(x.data(), shape),
                                View<const std::int32_t>(y.data(), shape));
      if (!outcome) return outcome.error;
      ++updates;
      seconds += steady_seconds() - start;
      if (!outcome->finite) break;
    }
    seconds = std::max(seconds, end);
    const auto loss = validate(validation);
    if (!loss) return loss.error;
    losses.push_back({seconds, *loss});
    return {};
  }

  /// The mean loss over at most 20 batches of `text`, in memory of its own.
  Result<double> validate(const Tokens& text) {
    const Shape shape(o_.batch, o_.seq);
    std::vector<std::int32_t> x(shape.elems()), y(shape.elems());
    const std::size_t count = std::min<std::size_t>(20, text.batches(o_.batch, o_.seq));
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (const Error why = text.batch(i, o_.batch, o_.seq, {x.data(), Shape(x.size())},
                                       {y.data(), Shape(y.size())}))
        return why;
      const auto loss = validation_.run(cpu_, View<const std::int32_t>(x.data(), shape),
                                        View<const std::int32_t>(y.data(), shape));
      if (!loss) return loss.error;
      sum += *loss;
    }
    return sum / static_cast<double>(count);
  }

 protected:
  /// The rate falls to zero along a line by the end of the seconds.
  double decayed() const { return rate * std::max(0.0, 1 - seconds / o_.seconds); }

  virtual Error fresh() = 0;  ///< as it was before it had learned anything
  virtual Result<TrainingOutcome> step(AnyView x, AnyView y) = 0;
  virtual const Graph& graph() const = 0;
  virtual View<float> params() = 0;
  virtual Dispatch<float, Cpu> dispatch() const = 0;
  virtual Result<Graph> graph_for(std::size_t batch) const = 0;

  Error validate_setup() {
    auto graph = graph_for(o_.batch);
    if (!graph) return graph.error;
    Plan plan = retain_all(*graph);
    auto program = make_program(std::move(*graph), std::move(plan), Mode::evaluate);
    if (!program) return program.error;
    auto made = Step<>::make(dispatch(), std::move(*program));
    if (!made) return made.error;
    validation_ = std::move(*made);
    auto arena = Block<std::byte>::make(validation_.arena_bytes(), "validation");
    if (!arena) return arena.error;
    arena_ = std::move(*arena);
    return validation_.bind(arena_.view(), params());
  }

  const Options& o_;
  Cpu cpu_;
  std::size_t batch_;

 private:
  Block<std::byte> arena_;
  Step<> validation_;
};

/// The network with adapters, or without.
class Nets {
 public:
  Nets(const Options& o, bool adapted)
      : o_(o), lora_{adapted ? o.rank : 0, 2 * static_cast<float>(o.rank)},
        plain_(gpt::make(o.network)), adapted_(gpt::make_lora(o.network, lora_)) {}

  Dispatch<float, Cpu> dispatch() const {
    auto dispatch =
        lora_.rank == 0 ? make_dispatch<float, Cpu>(plain_) : make_dispatch<float, Cpu>(adapted_);
    dispatch.add_codec<Int8Outlier>();
    dispatch.add_codec<Int4Outlier>();
    return dispatch;
  }
  /// Sequences are parts, so that what lives only between layers takes one sequence's bytes.
  Result<Graph> graph(std::size_t batch) const {
    return gpt::graph<gpt::PlannedSet>(o_.network, batch, o_.seq, o_.threads,
                                       static_cast<int>(batch), {lora_});
  }

 private:
  const Options& o_;
  gpt::Lora lora_;
  gpt::Gpt<gpt::RetainSet> plain_;
  gpt::LoraGpt<gpt::RetainSet> adapted_;
};

/// A tuner by a training of that type.
template <class Training>
class With : public Tuner {
 public:
  With(const char* called, const Options& o, const Cpu& cpu, bool adapted, std::size_t sequences,
       std::vector<double> tried)
      : Tuner(called, o, cpu, sequences, std::move(tried)), nets_(o, adapted) {}

  TrainingMemoryUse memory() const override { return training_.memory_use(); }

 protected:
  virtual Result<Training> make(Graph graph) = 0;
  Dispatch<float, Cpu> dispatch() const override { return nets_.dispatch(); }

 private:
  Error fresh() override {
    auto graph = nets_.graph(batch());
    if (!graph) return graph.error;
    auto made = make(std::move(*graph));
    if (!made) return made.error;
    training_ = std::move(*made);
    return {};
  }
  Result<TrainingOutcome> step(AnyView x, AnyView y) override {
    return training_.step(x, y, decayed());
  }
  const Graph& graph() const override { return training_.compiled_step().graph(); }
  View<float> params() override { return training_.params(); }
  Result<Graph> graph_for(std::size_t batch) const override { return nets_.graph(batch); }

  Nets nets_;
  Training training_;
};

class Backward final : public With<study::Training> {
  using With::With;

  Result<study::Training> make(Graph graph) override {
    PlanRequest request;
    request.budget_bytes = 1;
    const auto smallest = smallest_peak(graph, estimated_profile(graph), request);
    if (!smallest) return smallest.error;
    auto optimizer = support::make_optimizer("adamw", "int8", 0);
    if (!optimizer) return optimizer.error;
    return study::Training::make(dispatch(), std::move(graph),
                                 {.budget_bytes = *smallest,
                                  .context = cpu_,
                                  .seed = 1,
                                  .optimizer = *optimizer,
                                  .planning = {.evolving = false}});
  }
};

class Forward final : public With<ForwardOnly<>> {
  using With::With;

  Result<ForwardOnly<>> make(Graph graph) override {
    return ForwardOnly<>::make(
        dispatch(), std::move(graph),
        {.epsilon = o_.epsilon, .directions = o_.directions, .context = cpu_, .seed = 1});
  }
};

/// What all start from: the parameters after a time on the first text.
Result<std::vector<float>> learn(const Options& o, const Cpu& cpu, const Graph& graph,
                                 const Tokens& text) {
  const auto net = gpt::make(o.network);
  auto program = make_program(graph, retain_all(graph));
  if (!program) return program.error;
  auto training = study::Training::make(net, std::move(*program), cpu);
  if (!training) return training.error;
  const Shape shape(o.batch, o.seq);
  std::vector<std::int32_t> x(shape.elems()), y(shape.elems());
  const LearningRate rate{1e-3, 1e-4, 50, o.first_steps};
  for (std::uint64_t i = 0; i < o.first_steps; ++i) {
    if (const Error why =
            text.batch(i, o.batch, o.seq, {x.data(), Shape(x.size())}, {y.data(), Shape(y.size())}))
      return why;
    const auto outcome = training->step(View<const std::int32_t>(x.data(), shape),
                                        View<const std::int32_t>(y.data(), shape), rate.at(i));
    if (!outcome) return outcome.error;
  }
  const View<const float> params = std::as_const(*training).params();
  return std::vector<float>(params.begin(), params.end());
}

/// The largest batch whose forward-only training takes at most `total`.
Result<std::size_t> batch_within(const Options& o, std::size_t total) {
  const Nets nets(o, false);
  std::size_t best = 0;
  for (std::size_t batch = o.batch; batch <= 64 * o.batch; batch += o.batch) {
    auto graph = nets.graph(batch);
    if (!graph) return graph.error;
    const std::size_t params = graph->parameter_elems * sizeof(float);
    Plan plan = retain_all(*graph);
    const auto program = make_program(std::move(*graph), std::move(plan), Mode::evaluate);
    if (!program) return program.error;
    if (params + program->peak_bytes() > total) break;
    best = batch;
  }
  return best;
}

int fail(const Error& why) {
  std::fprintf(stderr, "forward_only: %s\n", why.text());
  return 2;
}

std::string picture(const std::vector<std::unique_ptr<Tuner>>& tuners) {
  const char* colors[] = {"#4e79a7", "#76b7b2", "#e15759", "#f28e2b", "#b07aa1"};
  std::vector<draw::Curve> all;
  for (std::size_t i = 0; i < tuners.size(); ++i)
    all.push_back({tuners[i]->name, colors[i % 5], tuners[i]->losses, false, {}});
  std::string svg = draw::open_svg(980, 420);
  svg +=
      "<text x='60' y='22' font-size='14'>Validation loss against seconds of training, at the "
      "total "
      "memory of backpropagation under its smallest plan, or less</text>\n";
  svg += draw::curves(all, {60, 60, 880, 300}, "seconds of training");
  return svg + "</svg>\n";
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Tunes a network by forward passes and by backpropagation at equal total memory.",
               "forward_only");
  app.option_defaults()->always_capture_default();
  app.add_option("--layers", o.network.layers)->check(CLI::Range(1, 4096));
  app.add_option("--heads", o.network.heads)->check(CLI::PositiveNumber);
  app.add_option("--channels", o.network.channels)->check(CLI::PositiveNumber);
  app.add_option("--seq", o.seq)->check(CLI::PositiveNumber);
  app.add_option("--batch", o.batch)->check(CLI::PositiveNumber);
  app.add_option("--lora", o.rank, "rank of adapters")->check(CLI::PositiveNumber);
  app.add_option("--threads", o.threads)->check(CLI::Range(1, 256));
  app.add_option("--directions", o.directions, "of a forward-only update")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--epsilon", o.epsilon, "how far forward-only training moves parameters");
  app.add_option("--first", o.first, "text, or folder of texts, to learn first");
  app.add_option("--first-steps", o.first_steps, "... for so many steps");
  app.add_option("--text", o.text, "text to tune to")->required();
  app.add_option("--val", o.val, "text to measure the loss on")->required();
  app.add_option("--seconds", o.seconds, "of training, for each")->check(CLI::PositiveNumber);
  app.add_option("--trial", o.trial, "seconds of training with each rate, before")
      ->check(CLI::PositiveNumber);
  app.add_option("--share", o.share, "seconds of a turn")->check(CLI::PositiveNumber);
  app.add_option("--json", o.json, "write the figures to this file as well");
  app.add_option("--svg", o.svg, "draw them into this file");
  CLI11_PARSE(app, argc, argv);
  o.network.context = o.seq;

  EigenPool pool(o.threads);
  Cpu cpu{ExecutorRef(pool)};
  cpu.key.seed = 1;
  const auto first = study::read_tokens(o.first, 256), text = study::read_tokens(o.text, 256),
             validation = study::read_tokens(o.val, 256);
  for (const auto* tokens : {&first, &text, &validation})
    if (!*tokens) return fail(tokens->error);
  if (const Error why = validation->check_batch(o.batch, o.seq)) return fail(why);
  const auto graph = gpt::graph(o.network, o.batch, o.seq, o.threads);
  if (!graph) return fail(graph.error);
  const auto start = learn(o, cpu, *graph, *first);
  if (!start) return fail(start.error);

  const std::vector<double> adam{3e-4, 1e-3, 3e-3}, mezo{1e-4, 3e-4, 1e-3},
      mezo_lora{1e-3, 3e-3, 1e-2};
  std::vector<std::unique_ptr<Tuner>> tuners;
  tuners.push_back(std::make_unique<Backward>("backpropagation", o, cpu, false, o.batch, adam));
  tuners.push_back(std::make_unique<Backward>("the same, LoRA", o, cpu, true, o.batch, adam));
  if (const Error why = tuners[0]->restart(*graph, *start)) return fail(why);
  const std::size_t total = tuners[0]->memory().total();
  const auto larger = batch_within(o, total);
  if (!larger) return fail(larger.error);
  tuners.push_back(std::make_unique<Forward>("forward only", o, cpu, false, o.batch, mezo));
  tuners.push_back(
      std::make_unique<Forward>("the same, larger batch", o, cpu, false, *larger, mezo));
  tuners.push_back(
      std::make_unique<Forward>("forward only, LoRA", o, cpu, true, o.batch, mezo_lora));

  double before = 0;
  for (auto& tuner : tuners) {
    double best = HUGE_VAL, chosen = 0;
    for (const double rate : tuner->rates) {
      tuner->rate = rate;
      if (const Error why = tuner->restart(*graph, *start)) return fail(why);
      if (const Error why = tuner->turn(*text, *validation, o.trial)) return fail(why);
      const double loss = tuner->losses.back().second;
      std::printf("trial: %-24s rate %-8g loss %.4f\n", tuner->name.c_str(), rate, loss);
      std::fflush(stdout);
      if (loss < best) best = loss, chosen = rate;
    }
    if (chosen == 0)
      return fail(Error::say(tuner->name.c_str(), ": no rate gives a loss that is finite"));
    tuner->rate = chosen;
    if (const Error why = tuner->restart(*graph, *start)) return fail(why);
    const auto loss = tuner->validate(*validation);
    if (!loss) return fail(loss.error);
    before = *loss;
    tuner->losses.push_back({0, before});
  }
  for (double done = 0; done < o.seconds; done += o.share)
    for (auto& tuner : tuners)
      if (const Error why = tuner->turn(*text, *validation, o.share)) return fail(why);

  std::printf(
      "%d layers, %zu heads, %zu channels, T %zu, %d threads, %d directions, rank %zu; loss "
      "before %.4f; %.0f seconds each\n",
      o.network.layers, o.network.heads, o.network.channels, o.seq, o.threads, o.directions, o.rank,
      before, o.seconds);
  std::printf("%-24s %6s %10s %10s %8s %8s %8s\n", "", "batch", "total", "arena", "rate", "updates",
              "loss");
  nlohmann::ordered_json figures = nlohmann::ordered_json::array();
  for (const auto& tuner : tuners) {
    const TrainingMemoryUse memory = tuner->memory();
    std::printf("%-24s %6zu %6.2f MiB %6.2f MiB %8g %8llu %8.4f\n", tuner->name.c_str(),
                tuner->batch(), static_cast<double>(memory.total()) / MiB,
                static_cast<double>(memory.arena) / MiB, tuner->rate,
                static_cast<unsigned long long>(tuner->updates), tuner->losses.back().second);
    figures.push_back({{"name", tuner->name},
                       {"batch", tuner->batch()},
                       {"total_bytes", memory.total()},
                       {"arena_bytes", memory.arena},
                       {"rate", tuner->rate},
                       {"updates", tuner->updates},
                       {"losses", tuner->losses}});
  }
  if (!o.json.empty())
    if (const Error why = write_file(o.json, figures.dump(2) + "\n")) return fail(why);
  if (!o.svg.empty())
    if (const Error why = write_file(o.svg, picture(tuners))) return fail(why);
  return 0;
}
