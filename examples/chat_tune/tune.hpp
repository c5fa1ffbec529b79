// SPDX-License-Identifier: MIT
/// The command tune: adapters, or all weights, learn from conversations, with progress, log and report.
#pragma once

#include <adacc/core/bytes.hpp>
#include <adacc/core/steady_clock.hpp>
#include <support/draw/plan.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../train_gpt/html_report.hpp"
#include "../train_gpt/report.hpp"
#include "../train_gpt/resident.hpp"
#include "run_page.hpp"
#include "tuner.hpp"
#include "words.hpp"

namespace chat_tune {

/// What is known before anything is planned.
template <class T>
void print_task(const TuneOptions& options, const Model& model, const Tuner<T>& tuner,
                const Documents& documents) {
  std::printf("model       %s, %zu over %zu heads, vocabulary %zu\n", tuner.describe().c_str(),
              model.weights.sizes().heads, model.weights.sizes().kv_heads,
              model.weights.sizes().vocab);
  std::printf("documents   %zu to learn from, %zu held out", documents.train.size(),
              documents.held_out.size());
  if (documents.cut > 0) std::printf("; %zu cut to a sequence", documents.cut);
  if (documents.empty > 0)
    std::printf("; %zu left out, with no answer within a sequence", documents.empty);
  if (documents.left_out_bytes > 0)
    std::printf("; %zu bytes without tokens left out", documents.left_out_bytes);
  std::printf("\nstep        %zu x %zu sequences of %zu tokens, %d thread%s\n", options.micro,
              options.batch, options.read.context, options.model.threads,
              options.model.threads == 1 ? "" : "s");
  if (options.resume.empty())
    std::printf(
        "            (costs are measured and the step is planned, in the time of some 20 steps)\n");
  std::fflush(stdout);
}

template <class T>
void print_plan(const TuneOptions& options, const Tuner<T>& tuner) {
  std::string policies;
  for (const auto& [name, count] : draw::policy_counts(tuner.training().plan()))
    policies += (policies.empty() ? "" : ", ") + name + " " + std::to_string(count);
  const adacc::PlanOutcome& plan = tuner.training().evolution()->outcome();
  std::printf("plan        budget %.1f MiB of %.1f that retain needs: %s\n",
              mebi(tuner.training().evolution()->budget_bytes()), mebi(tuner.retain_peak()),
              policies.c_str());
  if (tuner.graph().parts > 1)
    std::printf("            layers are cut into %d parts\n", tuner.graph().parts);
  std::printf("            step %.0f ms predicted, retain %.0f ms; gradient error %.1e of %.0e\n",
              1e3 * plan.seconds, 1e3 * plan.retain_seconds, plan.error, options.tolerance);
  std::printf("%s %.2f M numbers are trained\n", options.full ? "weights    " : "adapters   ",
              static_cast<double>(tuner.graph().gradient_elems) / 1e6);
  const adacc::TrainingMemoryUse use = tuner.training().memory_use();
  std::printf("memory      %.1f MiB: ", mebi(use.total()));
  if (options.full) std::printf("weights %.1f", mebi(use.parameters));
  else
    std::printf("frozen weights %.1f%s, adapters %.1f", mebi(use.mapped),
                options.model.pages == adacc::WeightPages::streamed ? " at a time" : "",
                mebi(use.parameters));
  std::printf(", activations %.1f, moments %.1f, gradients %.1f\n", mebi(use.arena),
              mebi(use.moments), mebi(use.gradients));
  std::fflush(stdout);
}

inline nlohmann::json as_json(const Match& match) {
  return {{"right", match.right}, {"asked", match.asked}};
}

/// Answers to held-out conversations, if they are asked for.
template <class T>
Error show_match(const char* when, const TuneOptions& options, Tuner<T>& tuner,
                 nlohmann::json& end) {
  if (options.match == 0) return {};
  const auto match = tuner.match();
  if (!match) return match.error;
  std::printf("%-8s    %zu of %zu answers to held-out conversations are right, letter by letter\n",
              when, match->right, match->asked);
  if (match->too_long > 0)
    std::printf("            %zu of them had no room for an answer\n", match->too_long);
  if (match->asked > match->too_long) {
    std::printf("            asked   %s\n", beginning(match->question).c_str());
    std::printf("            answer  %s\n", beginning(match->answer).c_str());
  }
  std::fflush(stdout);
  end[std::string("match_") + when] = as_json(*match);
  return {};
}

inline Error check(const TuneOptions& options) {
  const std::pair<const char*, const std::string*> written[] = {{"--out", &options.out},
                                                                {"--save", &options.save},
                                                                {"--log", &options.log},
                                                                {"--report", &options.report}};
  for (const auto& [name, path] : written) {
    if (path->empty()) continue;
    const std::filesystem::path folder = std::filesystem::path(*path).parent_path();
    std::error_code wrong;
    if (!folder.empty() && !std::filesystem::is_directory(folder, wrong))
      return Error::say(name, " ", shown(*path).c_str(), ": there is no folder ",
                        shown(folder.string()).c_str());
    const auto is_read = [&](const std::filesystem::path& read) {
      return std::filesystem::equivalent(*path, read, wrong);
    };
    bool replaces = is_read(options.model.model) || is_read(options.read.data);
    if (std::filesystem::is_directory(options.model.model, wrong))
      for (const auto& entry : std::filesystem::directory_iterator(options.model.model, wrong))
        replaces = replaces || is_read(entry.path());
    if (replaces) return Error::say(name, " ", shown(*path).c_str(), " would replace what is read");
  }
  return {};
}

inline Error read_shape(TuneOptions& options) {
  if (options.adapter.empty()) return {};
  const auto shape = adacc::read_adapter_shape(options.adapter);
  if (!shape) return shape.error;
  options.adapters = *shape;
  return {};
}

/// Activations and their gradients are numbers of T.
template <class T>
int tune(TuneOptions& options) {
  if (const Error why = check(options)) return fail(why);
  if (options.read.context < 2) return fail(Error::say("--context has to be at least 2"));
  options.model.context = options.read.context;
  if (options.smallest && !options.full && options.model.weights == adacc::WeightForm::as_stored &&
      !options.model.pages)
    options.model.pages = adacc::WeightPages::streamed;
  const adacc::LearningRate rate{options.lr, options.min_lr < 0 ? options.lr / 10 : options.min_lr,
                                 options.warmup, options.steps};
  if (options.steps > 0)
    if (const Error why = rate.validate()) return fail(why);
  if (const Error why = read_shape(options)) return fail(why);
  const auto model = Model::open(options.model);
  if (!model) return fail(model.error);
  if (options.full && !options.out.empty())
    if (const Error why = check_tokenizer(options.out, *model)) return fail(why);
  const auto documents = read_documents(*model, options.read);
  if (!documents) return fail(documents.error);
  Tuner<T> tuner(options, *model, *documents);
  print_task(options, *model, tuner, *documents);
  if (const Error why = tuner.set_up()) return fail(why);
  ResidentPeak::give_back();
  print_plan(options, tuner);
  Log log;
  if (const Error why = log.open(options.log, tuner.done())) return fail(why);

  nlohmann::json end;
  double best = 0, first = 0, last = 0;
  bool judged = false;
  draw::Points losses, validation;
  std::vector<RunReport::Event> events;
  std::vector<double> times;
  Progress progress(tuner.done(), options.steps);
  // The held-out loss, and what is learnt if nothing was better before.
  const auto judge = [&](std::optional<double>& loss) -> Error {
    if (documents->held_out.empty()) return {};
    const auto mean = tuner.evaluate();
    if (!mean) return mean.error;
    loss = last = *mean;
    validation.push_back({static_cast<double>(tuner.done()), *mean});
    const bool better = !judged || *mean < best;
    if (!judged) first = *mean;
    judged = true;
    if (!better) return {};
    best = *mean;
    return options.out.empty() || tuner.done() == 0 ? Error() : tuner.save_learnt(options.out);
  };
  std::optional<double> at_first;
  if (const Error why = judge(at_first)) return fail(why);
  if (at_first) std::printf("before      held-out loss %.4f\n", *at_first);
  if (const Error why = show_match("before", options, tuner, end)) return fail(why);

  while (tuner.done() < options.steps) {
    const std::uint64_t number = tuner.done();
    const double start = adacc::steady_seconds();
    const auto outcome = tuner.step(rate);
    if (!outcome) return fail(outcome.error);
    StepRecord record = StepRecord::of(number, *outcome, start, tuner.tokens());
    record.activation_peak_bytes = tuner.peak();
    if (!outcome->finite) {
      progress.finish();
      std::fprintf(stderr, "chat_tune: step %llu: the loss is %g and the gradient norm %g\n",
                   static_cast<unsigned long long>(number + 1), outcome->loss, outcome->grad_norm);
      return 1;
    }
    times.push_back(record.ms);
    losses.push_back({static_cast<double>(number), outcome->loss});
    if (outcome->none_counted)
      progress.say("step " + std::to_string(number + 1) +
                   " has no target that counts: nothing was updated");
    const std::uint64_t done = tuner.done();
    const bool ends = done == options.steps;
    if (ends || (options.evaluate_every > 0 && done % options.evaluate_every == 0))
      if (const Error why = judge(record.val_loss)) return fail(why);
    if (const Error why = log.write(record)) return fail(why);
    progress.show(record);
    if (!options.save.empty() &&
        (ends || (options.save_every > 0 && done % options.save_every == 0)))
      if (const Error why = tuner.save(options.save)) return fail(why);
  }
  progress.finish();
  if (judged)
    std::printf("after       held-out loss %.4f, before %.4f; the best was %.4f\n", last, first,
                best);
  if (!options.out.empty() && !judged)
    if (const Error why = tuner.save_learnt(options.out)) return fail(why);
  if (const Error why = show_match("after", options, tuner, end)) return fail(why);
  std::sort(times.begin(), times.end());
  const double ms = times.empty() ? 0 : times[times.size() / 2];
  const double rate_of_tokens = ms == 0 ? 0 : 1e3 * static_cast<double>(tuner.tokens()) / ms;
  std::printf("activations %.1f MiB at their peak, %.1f %% of the %.1f MiB that retain needs\n",
              mebi(tuner.peak()),
              100 * static_cast<double>(tuner.peak()) / static_cast<double>(tuner.retain_peak()),
              mebi(tuner.retain_peak()));
  std::printf("speed       %.0f tokens/s; the process had %.1f MiB resident at its peak\n",
              rate_of_tokens, mebi(ResidentPeak::of_process()));
  if (!options.log.empty()) {
    end["tokens_per_s_median"] = rate_of_tokens;
    end["resident_peak_bytes"] = ResidentPeak::of_process();
    end["activation_peak_bytes"] = tuner.peak();
    end["held_out_before"] = first;
    end["held_out_after"] = last;
    std::ofstream file(options.log, std::ios::app);
    file << end.dump() << std::endl;
    if (!file) return fail(Error::say("--log ", shown(options.log).c_str(), ": cannot be written"));
  }
  if (!options.report.empty())
    if (const Error why = write_page(options, tuner, losses, validation, events, ms))
      return fail(why);
  return 0;
}

}  // namespace chat_tune
