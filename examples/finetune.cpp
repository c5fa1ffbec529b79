// SPDX-License-Identifier: MIT
/// Fine-tunes a pretrained sentence encoder within a budget of memory, on the CPU.
///
/// The encoder is a BERT in a folder as Hugging Face has it: config.json, model.safetensors, vocab.txt.
/// It learns from pairs of texts to give them like vectors, and is judged on pairs that it has not
/// seen, before and after: for each first text, is its second one found among all?
///
///     bash cmake/quickstart.sh finetune       # fetches a model, makes pairs of Python's own library
///
/// Exit status: 0 done; 1 the loss stopped being finite; 2 bad input, with a line for each fault.
#include <CLI/CLI.hpp>

#include <adacc/core/bytes.hpp>
#include <adacc/io/file.hpp>
#include <adacc/optimizer/learning_rate.hpp>
#include <support/command_line.hpp>
#include <support/draw/plan.hpp>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "finetune/tuner.hpp"

namespace {

using adacc::Error;
using finetune::Options;
using finetune::Quality;

int fail(const Error& why) {
  std::fprintf(stderr, "finetune: %s\n", why.text());
  return 2;
}

int fail(const Error& why, const std::vector<std::string>& problems) {
  for (const std::string& problem : problems)
    std::fprintf(stderr, "finetune: %s\n", problem.c_str());
  return fail(why);
}

double mebi(std::size_t bytes) { return static_cast<double>(bytes) / adacc::MiB; }

void print_quality(const char* when, const Quality& quality, std::size_t count) {
  std::printf("%-8s    answer first of %zu: %5.1f %%, mean reciprocal rank %.4f\n", when, count,
              100 * quality.first, quality.reciprocal);
  std::fflush(stdout);
}

template <class T>
void print_setup(const Options& options, const adacc::bert::Config& config,
                 const finetune::Tuner<T>& tuner, const finetune::Pairs& pairs) {
  std::printf(
      "model       BERT, layers %d, heads %zu, channels %zu, vocabulary %zu; %.1f M weights\n",
      config.layers, config.heads, config.channels, config.vocab,
      static_cast<double>(tuner.parameter_bytes()) / 4e6);
  std::printf("pairs       %zu to learn from, %zu held out\n", pairs.train.size(),
              pairs.held_out.size());
  std::printf("step        %zu pairs of texts of up to %zu tokens, %d thread%s\n", options.batch,
              options.seq, options.threads, options.threads == 1 ? "" : "s");
  std::string policies;
  for (const auto& [name, count] : draw::policy_counts(tuner.plan()))
    policies += (policies.empty() ? "" : ", ") + name + " " + std::to_string(count);
  const adacc::PlanOutcome& plan = tuner.outcome();
  std::printf("plan        budget %.1f MiB of %.1f that retain needs: %s\n",
              mebi(tuner.budget_bytes()), mebi(tuner.retain_peak()), policies.c_str());
  std::printf("            step %.0f ms predicted, retain %.0f ms; gradient error %.1e of %.0e\n",
              1e3 * plan.seconds, 1e3 * plan.retain_seconds, plan.error, options.tolerance);
  std::fflush(stdout);
}

nlohmann::json as_json(const Quality& quality) {
  return {{"first", quality.first}, {"reciprocal_rank", quality.reciprocal}};
}

/// The folder of --save: weights, and beside them what they were read with.
template <class T>
Error save(const Options& options, const finetune::Tuner<T>& tuner) {
  std::error_code wrong;
  std::filesystem::create_directories(options.save, wrong);
  if (wrong)
    return Error::say("--save ", adacc::one_line(options.save, 80).c_str(), ": ",
                      wrong.message().c_str());
  for (const char* name : {"/config.json", "/vocab.txt"}) {
    std::filesystem::copy_file(options.model + name, options.save + name,
                               std::filesystem::copy_options::overwrite_existing, wrong);
    if (wrong)
      return Error::say("--save ", adacc::one_line(options.save, 80).c_str(), name, ": ",
                        wrong.message().c_str());
  }
  return tuner.save(options.save + "/model.safetensors");
}

Error check(const Options& options, const adacc::bert::Config& config,
            const support::WordPiece& tokenizer, const finetune::Pairs& pairs) {
  if (options.seq > config.context)
    return Error::say("--seq ", options.seq, " exceeds the model's ", config.context, " positions");
  if (tokenizer.size() > config.vocab)
    return Error::say("vocab.txt has ", tokenizer.size(), " pieces, the model ", config.vocab);
  if (pairs.train.size() < options.batch)
    return Error::say("--pairs: ", pairs.train.size(), " to learn from, of which a step takes ",
                      options.batch);
  if (pairs.held_out.size() < 2)
    return Error::say("--pairs: ", pairs.held_out.size(),
                      " are held out; there have to be several groups, in the first column");
  std::error_code wrong;
  if (!options.save.empty() && std::filesystem::equivalent(options.save, options.model, wrong))
    return Error::say("--save names the folder of --model, whose weights it would replace");
  return {};
}

/// Tunes with activations of T, and judges before and after. The exit status.
template <class T>
int tune(const Options& options, const adacc::bert::Config& config, const finetune::Pairs& pairs,
         const adacc::LearningRate& rate, std::ofstream& log, std::vector<std::string>& problems) {
  finetune::Tuner<T> tuner(options, config);
  if (const Error why = tuner.set_up(pairs, problems)) return fail(why, problems);
  print_setup(options, config, tuner, pairs);
  const std::size_t count = std::min(options.held_out, pairs.held_out.size());
  const auto before = tuner.judge(pairs.held_out, count);
  if (!before) return fail(before.error);
  print_quality("before", *before, count);

  double losses = 0, seconds = 0;
  for (std::uint64_t step = 1, since = 0; step <= options.steps; ++step) {
    const double start = adacc::steady_seconds();
    const auto outcome = tuner.step(pairs, rate.at(step - 1));
    if (!outcome) return fail(outcome.error);
    if (!outcome->finite) {
      std::fprintf(stderr, "finetune: step %llu: the loss is %g and the gradient norm %g\n",
                   static_cast<unsigned long long>(step), outcome->loss, outcome->grad_norm);
      return 1;
    }
    const double took = adacc::steady_seconds() - start;
    losses += outcome->loss;
    seconds += took;
    ++since;
    if (log.is_open())
      log << nlohmann::json{{"step", step},
                            {"loss", outcome->loss},
                            {"ms", 1e3 * took},
                            {"activation_peak_bytes", tuner.peak()}}
                 .dump()
          << std::endl;
    if (step % options.every != 0 && step != options.steps) continue;
    const auto n = static_cast<double>(since);
    std::printf("step %4llu   loss %.4f   %.0f ms   %.1f MiB\n",
                static_cast<unsigned long long>(step), losses / n, 1e3 * seconds / n,
                mebi(tuner.peak()));
    std::fflush(stdout);
    losses = seconds = 0;
    since = 0;
  }

  const auto after = tuner.judge(pairs.held_out, count);
  if (!after) return fail(after.error);
  print_quality("after", *after, count);
  std::printf("activations %.1f MiB at their peak, %.1f %% of the %.1f MiB that retain needs\n",
              mebi(tuner.peak()),
              100 * static_cast<double>(tuner.peak()) / static_cast<double>(tuner.retain_peak()),
              mebi(tuner.retain_peak()));
  if (log.is_open())
    log << nlohmann::json{{"before", as_json(*before)},
                          {"after", as_json(*after)},
                          {"peak_bytes", tuner.peak()},
                          {"retain_peak_bytes", tuner.retain_peak()}}
               .dump()
        << std::endl;
  if (!options.save.empty())
    if (const Error why = save(options, tuner)) return fail(why);
  return options.log.empty() || log.good()
             ? 0
             : fail(Error::say("--log ", adacc::one_line(options.log, 80).c_str(),
                               ": could not be written to its end"));
}

int run(const Options& options) {
  if (!adacc::is_folder(options.model))
    return fail(Error::say("--model ", adacc::one_line(options.model, 80).c_str(),
                           ": is no folder with config.json, model.safetensors and vocab.txt"));
  std::vector<std::string> problems;
  const auto config = adacc::bert::read_config(options.model, &problems);
  if (!config) return fail(config.error, problems);
  const auto tokenizer = support::WordPiece::open(options.model + "/vocab.txt");
  if (!tokenizer) return fail(tokenizer.error);
  constexpr std::uint32_t one_of = 5;
  const auto pairs = finetune::Pairs::read(options.pairs, *tokenizer, options.seq, one_of);
  if (!pairs) return fail(pairs.error);
  if (const Error why = check(options, *config, *tokenizer, *pairs)) return fail(why);
  const adacc::LearningRate rate{options.lr, 0, options.steps / 10, options.steps};
  if (const Error why = rate.validate()) return fail(why);
  std::ofstream log;
  if (!options.log.empty()) {
    log.open(options.log);
    if (!log)
      return fail(
          Error::say("--log ", adacc::one_line(options.log, 80).c_str(), ": cannot be written"));
  }
  return options.precision == "bf16"
             ? tune<adacc::bfloat16>(options, *config, *pairs, rate, log, problems)
             : tune<float>(options, *config, *pairs, rate, log, problems);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  CLI::App app("Fine-tunes a BERT sentence encoder on pairs of texts within a budget of memory.",
               "finetune");
  app.option_defaults()->always_capture_default();
  app.add_option("--model", options.model,
                 "folder with config.json, model.safetensors and vocab.txt")
      ->required();
  app.add_option("--pairs", options.pairs,
                 "lines of GROUP, TEXT and TEXT between tabs; a fifth of the groups is held out")
      ->required();
  app.add_option(
      "--budget", options.budget,
      "most that the activations of a step may take: 40MiB, 50% of what retain needs, or "
      "smallest");
  const CLI::Range size(1, 1 << 16), count(std::uint64_t{1}, std::uint64_t{1} << 31);
  app.add_option("--batch", options.batch, "pairs in a step")->check(size);
  app.add_option("--seq", options.seq, "most tokens of a text")->check(CLI::Range(3, 1 << 16));
  app.add_option("--steps", options.steps, "updates")->check(count);
  app.add_option("--lr", options.lr, "learning rate, warmed up and brought to 0 along a cosine")
      ->check(support::between(0, 1));
  app.add_option("--weight-decay", options.weight_decay, "AdamW's decoupled weight decay")
      ->check(support::between(0, 1e6));
  app.add_option("--clip", options.clip, "clip the gradient to this L2 norm; 0 is off")
      ->check(support::between(0, 1e6));
  app.add_option("--scale", options.scale, "of cosines in the loss, one over its temperature")
      ->check(support::between(1e-3, 1e3));
  app.add_option("--tolerance", options.tolerance,
                 "largest relative squared error of the gradient that codecs may cause")
      ->check(support::between(0, 1e6));
  app.add_option("--parts", options.parts, "cut layers into so many parts, for loops over rows")
      ->check(size);
  app.add_option("--held-out", options.held_out, "held-out pairs to judge by")->check(size);
  app.add_option("--precision", options.precision,
                 "how activations and their gradients are held: fp32; bf16, in half the memory")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--threads", options.threads, "threads")->check(CLI::Range(1, 256));
  app.add_option("--seed", options.seed, "of the order of the pairs")
      ->check(support::whole_number());
  app.add_option("--every", options.every, "steps from one line to the next")->check(count);
  app.add_option("--log", options.log, "write a line of JSON for each step, and one at the end");
  app.add_option("--save", options.save, "folder for the tuned model");
  if (const auto status = support::parse(app, argc, argv)) return *status;
  return run(options);
}
