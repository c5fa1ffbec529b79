// SPDX-License-Identifier: MIT
/// What compressing one kind of activation does to the gradient of a trained GPT.
///
/// Signal-to-noise ratios of a codec say little about training: queries and keys lose the gradient
/// where linear layers shrug. So this trains the reference's shape, then repeats steps with one
/// class of activations compressed and all others retained, and prints the relative squared error
///
///     v = sum over batches |g' - g|^2 / sum over batches |g|^2
///
/// of the gradient g' of all parameters against the exact g of the same batch. The lists of codecs
/// that layers declare rest on these figures. Squared errors of independent classes add up: the
/// last rows show how nearly.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "gpt_run.hpp"

namespace {

namespace gpt = adacc::gpt;

using study::Statistics;

struct Column {
  const char* name;
  adacc::Policy policy;
  Statistics statistics;
};

template <class Codec>
constexpr adacc::Policy compress = adacc::Compress<Codec>::value;

const Column columns[] = {
    {"bf16", compress<adacc::Bf16>, Statistics::again},
    {"int8", compress<adacc::Int8Outlier>, Statistics::again},
    {"int4", compress<adacc::Int4Outlier>, Statistics::again},
    {"int4 stoch.", compress<study::Int4Stochastic>, Statistics::again},
    {"int8, saved", compress<adacc::Int8Outlier>, Statistics::saved},
    {"int4 st., saved", compress<study::Int4Stochastic>, Statistics::saved},
    {"coarse4, saved", compress<study::Int4Coarse>, Statistics::saved},
};

const char* const classes[] = {"residual stream",  "norm output", "q, k, v",
                               "attention output", "GELU input",  "GELU output"};
constexpr std::size_t class_count = sizeof classes / sizeof *classes;

/// Index into `classes` of what node k of a GPT produces; class_count for what backward never
/// reads.
std::size_t class_of(const adacc::Graph& graph, int k) {
  const auto is = [&](int node, const char* name) {
    return node < graph.node_count() && std::string(graph.node(node).name) == name;
  };
  if (is(k, "layer_norm")) return k + 1 == graph.node_count() ? class_count : 1;
  if (is(k, "causal_attention")) return 3;
  if (is(k, "gelu")) return 5;
  if (is(k + 1, "causal_attention")) return 2;
  if (is(k + 1, "gelu")) return 4;
  return 0;
}

/// The gradient of all parameters, for each of some batches.
struct Gradients {
  std::vector<std::vector<float>> of_batch;

  double squared() const {
    double sum = 0;
    for (const auto& g : of_batch)
      for (const float x : g) sum += double{x} * double{x};
    return sum;
  }
  double squared_distance(const Gradients& other) const {
    double sum = 0;
    for (std::size_t b = 0; b < of_batch.size(); ++b)
      for (std::size_t i = 0; i < of_batch[b].size(); ++i) {
        const double d = double{of_batch[b][i]} - double{other.of_batch[b][i]};
        sum += d * d;
      }
    return sum;
  }
};

/// Gradients of batches that training has not seen yet, under `plan`.
adacc::Result<Gradients> gradients(study::Run& run, const adacc::Plan& plan, Statistics statistics,
                                   const adacc::Tokens& data, int batches) {
  using namespace adacc;
  auto step = run.step_under(plan, statistics);
  if (!step) return step.error;
  auto arena = Block<std::byte>::make(step->arena_bytes(), "activations");
  auto grads = Block<float>::make(step->graph().parameter_elems, "gradients");
  if (!arena || !grads) return arena ? grads.error : arena.error;
  if (Error why =
          step->bind({arena->data(), Shape(arena->size())}, run.training().params(), grads->view()))
    return why;
  Gradients made;
  for (int b = 0; b < batches; ++b) {
    const std::uint64_t index = run.training().updates() + static_cast<std::uint64_t>(b);
    if (Error why = run.fill(data, index)) return why;
    std::memset(grads->data(), 0, grads->size() * sizeof(float));
    Cpu& cpu = run.training().context();
    cpu.key.step = static_cast<std::uint32_t>(index);
    const auto loss = step->run(cpu, run.inputs(), run.targets());
    if (!loss) return loss.error;
    made.of_batch.emplace_back(grads->data(), grads->data() + grads->size());
  }
  return made;
}

int fail(const adacc::Error& why) {
  std::fprintf(stderr, "gradient_error: %s\n", why.text());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  study::Setting setting;
  std::string tokens = ADACC_EIGEN_INCLUDE_DIR, json;
  std::uint64_t seed = 1;
  int batches = 8;
  CLI::App app("Measures what compressing activations does to a trained GPT's gradient.",
               "gradient_error");
  app.option_defaults()->always_capture_default();
  app.add_option("--tokens", tokens, "llm.c token file, or text: a file or a folder");
  app.add_option("--steps", setting.steps, "training steps before measuring")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--warmup", setting.warmup);
  app.add_option("--layers", setting.network.layers)->check(CLI::Range(1, 4096));
  app.add_option("--heads", setting.network.heads)->check(CLI::PositiveNumber);
  app.add_option("--channels", setting.network.channels)->check(CLI::PositiveNumber);
  app.add_option("--batch", setting.batch)->check(CLI::PositiveNumber);
  app.add_option("--seq", setting.seq)->check(CLI::PositiveNumber);
  app.add_option("--batches", batches, "batches to measure on")->check(CLI::Range(1, 1000));
  app.add_option("--seed", seed);
  app.add_option("--threads", setting.threads)->check(CLI::Range(1, 256));
  app.add_option("--json", json, "write the figures to this file as well");
  CLI11_PARSE(app, argc, argv);
  setting.network.context = setting.seq;

  if (adacc::Error why = setting.rate().validate()) return fail(why);
  const auto data = study::read_tokens(tokens, setting.network.vocab);
  if (!data) return fail(data.error);
  if (adacc::Error why = data->check_batch(setting.batch, setting.seq)) return fail(why);
  adacc::EigenPool pool(setting.threads);
  study::Run run(setting, adacc::Cpu{adacc::ExecutorRef(pool)});
  const auto graph = run.graph();
  if (!graph) return fail(graph.error);
  const adacc::Plan retain = adacc::retain_all(*graph);
  if (adacc::Error why = run.set_up(retain, seed, Statistics::again)) return fail(why);
  double loss = 0;
  for (std::uint64_t step = 0; step < setting.steps; ++step) {
    const auto outcome = run.train(*data);
    if (!outcome) return fail(outcome.error);
    loss = outcome->loss;
    if ((step + 1) % 100 == 0)
      std::fprintf(stderr, "\rstep %llu, loss %.4f ", static_cast<unsigned long long>(step + 1),
                   loss);
  }
  std::fprintf(stderr, "\n");

  const auto exact = gradients(run, retain, Statistics::again, *data, batches);
  if (!exact) return fail(exact.error);
  const double scale = exact->squared();
  const auto error_of = [&](const adacc::Plan& plan, Statistics statistics, double& v) {
    const auto lossy = gradients(run, plan, statistics, *data, batches);
    if (lossy) v = lossy->squared_distance(*exact) / scale;
    return lossy.error;
  };

  std::printf("%s; B %zu, T %zu, after %llu steps (loss %.3f), %d batches of %s\n",
              gpt::describe(setting.network).c_str(), setting.batch, setting.seq,
              static_cast<unsigned long long>(setting.steps), loss, batches,
              data->source().c_str());
  std::printf("%-17s", "compressed");
  for (const Column& column : columns) std::printf("%16s", column.name);
  std::printf("\n");
  nlohmann::ordered_json figures = nlohmann::ordered_json::object();
  constexpr std::size_t column_count = sizeof columns / sizeof *columns;
  double sums[column_count] = {};
  for (std::size_t c = 0; c <= class_count; ++c) {
    const char* const row = c < class_count ? classes[c] : "all at once";
    if (c == class_count) {
      std::printf("%-17s", "sum of the above");
      for (const double sum : sums) std::printf("%16.2e", sum);
      std::printf("\n");
    }
    std::printf("%-17s", row);
    for (std::size_t i = 0; i < column_count; ++i) {
      adacc::Plan plan = retain;
      for (int k = 0; k < graph->node_count(); ++k)
        if (class_of(*graph, k) == c || (c == class_count && class_of(*graph, k) < c))
          plan.policies[static_cast<std::size_t>(k)] = columns[i].policy;
      double v = 0;
      if (adacc::Error why = error_of(plan, columns[i].statistics, v)) return fail(why);
      sums[i] += v;
      std::printf("%16.2e", v);
      std::fflush(stdout);
      figures[row][columns[i].name] = v;
    }
    std::printf("\n");
  }
  double v = 0;
  const adacc::Plan tolerated =
      gpt::plan_of<gpt::ToleratedSet>(setting.network, setting.batch, setting.seq);
  if (adacc::Error why = error_of(tolerated, Statistics::again, v)) return fail(why);
  std::printf("all, each with the codec that its readers prefer: %.2e\n", v);
  figures["tolerated"] = v;
  if (json.empty()) return 0;
  std::FILE* file = std::fopen(json.c_str(), "w");
  if (file == nullptr)
    return fail(adacc::Error::say("--json ", json.c_str(), " cannot be written"));
  std::fprintf(file, "%s\n", figures.dump(2).c_str());
  return std::fclose(file) == 0 ? 0 : 2;
}
