// SPDX-License-Identifier: MIT
/// Tunes a language model of a GGUF file on conversations within a budget of memory, talks to it, and exports it.
///
///     bash cmake/quickstart.sh tune        # fetches SmolLM2, makes conversations of Python's own library
///
/// The model stays as it is; adapters beside its linear layers learn (LoRA), of the answers alone.
///
/// Exit status: 0 done; 1 the loss stopped being finite; 2 bad input, in one line.
#include <CLI/CLI.hpp>

#include <adacc/core/bytes.hpp>
#include <adacc/io/file.hpp>
#include <adacc/io/weights/gguf_llama_write.hpp>
#include <adacc/train/merge_adapters.hpp>
#include <support/command_line.hpp>
#include <support/draw/plan.hpp>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "chat_tune/tuner.hpp"
#include "train_gpt/html_report.hpp"
#include "train_gpt/report.hpp"
#include "train_gpt/resident.hpp"

namespace {

using adacc::Error;
using chat_tune::Match;
using chat_tune::Model;
using chat_tune::ModelOptions;
using chat_tune::TuneOptions;
using chat_tune::Tuner;

int fail(const Error& why) {
  std::fprintf(stderr, "chat_tune: %s\n", why.text());
  return 2;
}

double mebi(std::size_t bytes) { return static_cast<double>(bytes) / adacc::MiB; }

std::string shown(const std::string& path) { return adacc::one_line(path, 80); }

/// The first letters of a text, on one line.
std::string beginning(std::string text) {
  constexpr std::size_t most = 200;
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.size() > most ? adacc::one_line(text.substr(0, most), most) + "..." : text;
}

// ---- tune

/// What is known before anything is planned.
void print_task(const TuneOptions& options, const Model& model, const Tuner& tuner,
                const chat_tune::Documents& documents) {
  std::printf("model       %s, %zu over %zu heads, vocabulary %zu\n", tuner.describe().c_str(),
              model.config.heads, model.config.kv_heads, model.config.vocab);
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

void print_plan(const TuneOptions& options, const Tuner& tuner) {
  std::string policies;
  for (const auto& [name, count] : draw::policy_counts(tuner.training().plan()))
    policies += (policies.empty() ? "" : ", ") + name + " " + std::to_string(count);
  const adacc::PlanOutcome& plan = tuner.training().evolution()->outcome();
  std::printf("plan        budget %.1f MiB of %.1f that retain needs: %s\n",
              mebi(tuner.training().evolution()->budget_bytes()), mebi(tuner.retain_peak()),
              policies.c_str());
  std::printf("            step %.0f ms predicted, retain %.0f ms; gradient error %.1e of %.0e\n",
              1e3 * plan.seconds, 1e3 * plan.retain_seconds, plan.error, options.tolerance);
  std::printf("adapters    %.2f M numbers are trained\n",
              static_cast<double>(tuner.graph().gradient_elems) / 1e6);
  const adacc::TrainingMemoryUse use = tuner.training().memory_use();
  std::printf(
      "memory      %.1f MiB: weights in the file %.1f, adapters %.1f, activations %.1f, moments "
      "%.1f, gradients %.1f\n",
      mebi(use.total()), mebi(use.mapped), mebi(use.parameters), mebi(use.arena), mebi(use.moments),
      mebi(use.gradients));
  std::fflush(stdout);
}

nlohmann::json as_json(const Match& match) {
  return {{"right", match.right}, {"asked", match.asked}};
}

/// Answers to held-out conversations, if they are asked for.
Error show_match(const char* when, const TuneOptions& options, Tuner& tuner, nlohmann::json& end) {
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

Error write_page(const TuneOptions& options, const Tuner& tuner, const draw::Points& losses,
                 const draw::Points& validation, const std::vector<RunReport::Event>& events,
                 double ms) {
  RunReport report;
  report.title = "chat_tune: " + tuner.describe();
  const adacc::PlanOutcome& plan = tuner.training().evolution()->outcome();
  report.facts = {{"model", adacc::one_line(options.model.model, 200)},
                  {"data", adacc::one_line(options.read.data, 200)},
                  {"updates", std::to_string(tuner.done())},
                  {"tokens in an update", std::to_string(tuner.tokens())},
                  {"memory of the training", mebibytes(tuner.training().memory_use().total())}};
  report.program = &tuner.training().compiled_step().program();
  report.profile = &tuner.training().evolution()->profile();
  report.budget_bytes = static_cast<double>(tuner.training().evolution()->budget_bytes());
  report.retain_peak_bytes = static_cast<double>(tuner.retain_peak());
  report.losses = losses;
  report.validation = validation;
  report.events = events;
  char predicted[64], measured[64], apart[64];
  const double whole = 1e3 * plan.seconds * static_cast<double>(options.micro);
  std::snprintf(predicted, sizeof predicted, "%.0f ms", whole);
  std::snprintf(measured, sizeof measured, "%.0f ms", ms);
  std::snprintf(apart, sizeof apart, "%+.1f %%", 100 * (ms / whole - 1));
  report.comparisons = {{"time of an update", predicted, measured, apart},
                        {"activations at their peak",
                         mebibytes(tuner.training().compiled_step().program().peak_bytes()),
                         mebibytes(tuner.peak()), ""}};
  return write_report(options.report, report);
}

Error check(const TuneOptions& options) {
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
    for (const std::string* const read : {&options.model.model, &options.read.data})
      if (std::filesystem::equivalent(*path, *read, wrong))
        return Error::say(name, " ", shown(*path).c_str(), " would replace what is read");
  }
  return {};
}

int tune(TuneOptions& options) {
  ResidentPeak resident;
  if (const Error why = check(options)) return fail(why);
  if (options.read.context < 2) return fail(Error::say("--context has to be at least 2"));
  options.model.context = options.read.context;
  const adacc::LearningRate rate{options.lr, options.min_lr < 0 ? options.lr / 10 : options.min_lr,
                                 options.warmup, options.steps};
  if (const Error why = rate.validate()) return fail(why);
  if (!options.adapter.empty()) {
    const auto shape = adacc::read_adapter_shape(options.adapter);
    if (!shape) return fail(shape.error);
    options.adapters = *shape;
  }
  const auto model = Model::open(options.model);
  if (!model) return fail(model.error);
  const auto documents = chat_tune::read_documents(*model, options.read);
  if (!documents) return fail(documents.error);
  Tuner tuner(options, *model, *documents);
  print_task(options, *model, tuner, *documents);
  if (const Error why = tuner.set_up()) return fail(why);
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
  // The held-out loss, and the adapters if there were no better ones before.
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
    return options.out.empty() || tuner.done() == 0 ? Error() : tuner.save_adapters(options.out);
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
    if (const Error why = tuner.save_adapters(options.out)) return fail(why);
  if (const Error why = show_match("after", options, tuner, end)) return fail(why);
  std::sort(times.begin(), times.end());
  const double ms = times.empty() ? 0 : times[times.size() / 2];
  const double rate_of_tokens = ms == 0 ? 0 : 1e3 * static_cast<double>(tuner.tokens()) / ms;
  std::printf("activations %.1f MiB at their peak, %.1f %% of the %.1f MiB that retain needs\n",
              mebi(tuner.peak()),
              100 * static_cast<double>(tuner.peak()) / static_cast<double>(tuner.retain_peak()),
              mebi(tuner.retain_peak()));
  std::printf("speed       %.0f tokens/s; the process had %.1f MiB resident at its peak\n",
              rate_of_tokens, mebi(resident.bytes()));
  if (!options.log.empty()) {
    end["tokens_per_s_median"] = rate_of_tokens;
    end["resident_peak_bytes"] = resident.bytes();
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

// ---- talk and export

/// The parameters of a model with its adapters, and the network of both. Weights stay in the file, or are decoded.
struct Loaded {
  Model model;
  chat_tune::Network network;
  adacc::AdapterShape adapters{1, 1};
  adacc::Graph graph;
  adacc::Block<float> params;

  /// Without `adapter` adapters are there, and zero.
  Error open(const ModelOptions& options, const std::string& adapter, bool decoded) {
    using namespace adacc;
    if (!adapter.empty()) {
      const auto shape = read_adapter_shape(adapter);
      if (!shape) return shape.error;
      adapters = *shape;
    }
    auto opened = Model::open(options);
    if (!opened) return opened.error;
    model = std::move(*opened);
    network = network_of(model, adapters);
    auto made =
        make_graph(network, Shape(1, 2), {.stored = decoded ? nullptr : &model.mapped.stored()});
    if (!made) return made.error;
    graph = std::move(*made);
    auto block = Block<float>::make(graph.parameter_elems, "weights");
    if (!block) return block.error;
    params = std::move(*block);
    if (const Error why = model.mapped.read(without_adapters(graph), params.view())) return why;
    return adapter.empty() ? Error() : read_adapters(adapter, graph, params.view());
  }
};

struct TalkCommand {
  ModelOptions model;
  chat_tune::TalkOptions how;
  std::string adapter, system;
  std::vector<std::string> prompts;
  bool forget = false;
};

int talk(TalkCommand& command) {
  Loaded loaded;
  if (const Error why = loaded.open(command.model, command.adapter, false)) return fail(why);
  if (command.model.context == 0)
    command.model.context = std::min<std::size_t>(2048, loaded.model.config.context);
  chat_tune::Talker talker(loaded.model, loaded.network);
  if (const Error why = talker.set_up(
          command.model, command.forget ? adacc::WhenFull::forget : adacc::WhenFull::refuse,
          loaded.params.view()))
    return fail(why);
  std::fprintf(stderr,
               "%.1f MiB for a context of %zu tokens, beside %.1f MiB of weights in the file\n",
               mebi(talker.generator().memory_bytes()), command.model.context,
               mebi(loaded.graph.stored_bytes));
  adacc::EigenPool pool(command.model.threads);
  adacc::Cpu cpu{adacc::ExecutorRef(pool)};
  adacc::Sampler sampler(command.how.sampling);
  std::vector<adacc::ChatMessage> messages;
  if (!command.system.empty()) messages.push_back({"system", command.system});
  const bool asks = command.prompts.empty(), terminal = ::isatty(STDIN_FILENO) != 0;
  for (std::size_t i = 0; asks || i < command.prompts.size(); ++i) {
    std::string line;
    if (!asks) {
      line = command.prompts[i];
    } else {
      if (terminal) std::printf("> "), std::fflush(stdout);
      if (!std::getline(std::cin, line)) break;
      if (line.empty()) continue;
    }
    messages.push_back({"user", line});
    const double start = adacc::steady_seconds();
    const auto answer =
        talker.answer(cpu, messages, sampler, command.how.most_tokens, [](std::string_view piece) {
          std::fwrite(piece.data(), 1, piece.size(), stdout);
          std::fflush(stdout);
        });
    if (!answer) return fail(answer.error);
    const double seconds = adacc::steady_seconds() - start;
    std::printf("\n");
    std::fflush(stdout);
    std::fprintf(stderr, "(%zu tokens read, %zu written, %.1f a second)\n", talker.read(),
                 talker.written(), static_cast<double>(talker.written()) / seconds);
    messages.push_back({"assistant", *answer});
  }
  return 0;
}

struct ExportCommand {
  ModelOptions model;
  std::string adapter, out, type = "F16";
  bool adapters_alone = false;
};

/// A GGUF file of the model with its adapters merged, or of the adapters alone.
Error export_gguf(const ExportCommand& command) {
  Loaded loaded;
  if (const Error why = loaded.open(command.model, command.adapter, false)) return why;
  const adacc::View<const float> params = std::as_const(loaded.params).view();
  const auto* type = std::begin(adacc::detail::gguf_types);
  while (command.type != type->name) ++type;  // one of those that the option takes
  if (command.adapters_alone)
    return adacc::llama::write_gguf_adapters(command.out, loaded.model.config, loaded.graph, params,
                                             loaded.adapters);
  return adacc::llama::write_gguf(command.out, loaded.model.mapped, loaded.graph, params,
                                  loaded.adapters, type->type);
}

/// The configuration of the Hub for the written weights.
std::string config_json(const adacc::llama::Config& config) {
  return nlohmann::ordered_json{{"model_type", "llama"},
                                {"hidden_act", "silu"},
                                {"num_hidden_layers", config.layers},
                                {"num_attention_heads", config.heads},
                                {"num_key_value_heads", config.kv_heads},
                                {"hidden_size", config.channels},
                                {"intermediate_size", config.hidden},
                                {"max_position_embeddings", config.context},
                                {"vocab_size", config.vocab},
                                {"rms_norm_eps", static_cast<double>(config.epsilon)},
                                {"rope_theta", config.base},
                                {"tie_word_embeddings", config.tied_head}}
             .dump(2) +
         "\n";
}

int export_model(const ExportCommand& command) {
  if (command.out.ends_with(".gguf")) {
    if (const Error why = export_gguf(command)) return fail(why);
    std::printf("written to %s\n", shown(command.out).c_str());
    return 0;
  }
  if (command.adapters_alone)
    return fail(Error::say("--adapters writes a GGUF file: let --out end with .gguf"));
  std::error_code wrong;
  std::filesystem::create_directories(command.out, wrong);
  if (wrong)
    return fail(Error::say("--out ", shown(command.out).c_str(), ": ", wrong.message().c_str()));
  Loaded loaded;
  if (const Error why = loaded.open(command.model, command.adapter, true)) return fail(why);
  adacc::merge_adapters(loaded.graph, loaded.params.view(), loaded.adapters);
  const adacc::Graph plain = adacc::without_adapters(loaded.graph);
  if (const Error why = adacc::write_pretrained<float>(command.out + "/model.safetensors", plain,
                                                       std::as_const(loaded.params).view(),
                                                       adacc::llama::Naming(loaded.model.config)))
    return fail(why);
  if (const Error why =
          adacc::write_file(command.out + "/config.json", config_json(loaded.model.config)))
    return fail(why);
  std::printf("written to %s: model.safetensors and config.json\n", shown(command.out).c_str());
  return 0;
}

void add_model(CLI::App& app, ModelOptions& options) {
  app.option_defaults()->always_capture_default();
  app.add_option("--model", options.model, "GGUF file of the architecture llama")->required();
  app.add_option(
      "--template", options.form,
      "form of conversations: chatml, llama3 or plain; without it by the model's tokens");
  app.add_option("--threads", options.threads, "threads")->check(CLI::Range(1, 256));
}

void add_tune(CLI::App& app, TuneOptions& options, std::string& too_long) {
  add_model(app, options.model);
  const CLI::Range size(1, 1 << 16), count(std::uint64_t{0}, std::uint64_t{1} << 31);
  app.add_option("--data", options.read.data,
                 "conversations: a file .jsonl with [{\"role\": ..., \"content\": ...}, ...] or "
                 "{\"messages\": [...]} in each line; any other name is a text")
      ->required();
  app.add_option("--context", options.read.context, "tokens of a sequence")->check(size);
  app.add_option("--long", too_long, "conversations longer than a sequence: cut, or refuse")
      ->check(CLI::IsMember({"cut", "refuse"}));
  app.add_option("--held-out", options.read.held_out, "share of conversations to judge by")
      ->check(support::between(0, 0.9));
  app.add_option("--rank", options.adapters.rank, "rank of the adapters")->check(size);
  app.add_option("--alpha", options.adapters.alpha, "the adapters' factor is alpha / rank");
  app.add_flag(
      "--lora-fa", [&](std::int64_t) { options.train_a = false; },
      "train only the second matrix of each adapter");
  app.add_option("--adapter", options.adapter,
                 "begin with these adapters, of their rank and alpha");
  app.add_option("--batch", options.batch, "sequences in a batch")->check(size);
  app.add_option("--micro", options.micro, "batches whose gradients make an update")->check(size);
  app.add_option("--steps", options.steps, "updates in all")->check(count);
  app.add_option("--lr", options.lr, "learning rate")->check(support::between(0, 1));
  app.add_option("--min-lr", options.min_lr,
                 "learning rate at the end of the cosine; below 0: a tenth of --lr");
  app.add_option("--warmup", options.warmup, "updates until the learning rate is reached")
      ->check(count);
  app.add_option("--weight-decay", options.weight_decay, "AdamW's decoupled weight decay")
      ->check(support::between(0, 1e6));
  app.add_option("--clip", options.clip, "clip the gradient to this L2 norm; 0 is off")
      ->check(support::between(0, 1e6));
  app.add_option("--tolerance", options.tolerance,
                 "largest relative squared error of the gradient that codecs may cause")
      ->check(support::between(0, 1e6));
  app.add_option_function<std::string>(
         "--budget",
         [&](const std::string& text) {
           options.smallest = text == "smallest";
           if (options.smallest) return;
           const auto parsed = adacc::parse_budget(text);
           if (!parsed) throw CLI::ValidationError("--budget", parsed.error.text());
           options.budget = *parsed;
         },
         "most that the activations of a step may take: 200MiB, 50% of what retain needs, or "
         "smallest")
      ->default_str("100%");
  support::add_bytes(
      app, "--total", options.total,
      "most that all of the training may take, weights included: 900MiB, or a share of what "
      "retaining everything needs",
      "none", &options.total_text);
  app.add_option("--seed", options.seed, "of the adapters and of the order of conversations")
      ->check(support::whole_number());
  app.add_option("--evaluate-every", options.evaluate_every,
                 "updates from one held-out loss to the next; 0: only before and after")
      ->check(count);
  app.add_option("--most-batches", options.most_batches, "batches of a held-out loss, at most")
      ->check(size);
  app.add_option(
         "--match", options.match,
         "answer so many held-out conversations before and after, and compare letter by letter")
      ->check(count);
  app.add_option("--out", options.out,
                 "write the adapters with the least held-out loss, as .safetensors");
  app.add_option("--save", options.save, "write a checkpoint at the end, weights included");
  app.add_option("--save-every", options.save_every, "and every so many updates")->check(count);
  app.add_option("--resume", options.resume, "go on from a checkpoint, bit for bit");
  app.add_option("--log", options.log, "write a line of JSON for each update, and one at the end");
  app.add_option("--report", options.report, "write a page of HTML about the run");
}

void add_talk(CLI::App& app, TalkCommand& command) {
  add_model(app, command.model);
  app.add_option("--adapter", command.adapter, "adapters of tune --out");
  app.add_option("--prompt", command.prompts,
                 "say this, one after the other; without it lines are read");
  app.add_option("--system", command.system, "a message of the system before all");
  app.add_option("--context", command.model.context,
                 "most tokens of the talk; 0: 2048, or the model's if that is less");
  app.add_option("--tokens", command.how.most_tokens, "most tokens of an answer")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--temperature", command.how.sampling.temperature,
                 "0: the likeliest token each time")
      ->check(support::between(0, 100));
  app.add_option("--top-p", command.how.sampling.top_p,
                 "draw from the likeliest tokens of this probability together")
      ->check(support::between(1e-6, 1));
  app.add_option("--seed", command.how.sampling.seed, "of the drawn tokens")
      ->check(support::whole_number());
  app.add_flag("--forget", command.forget,
               "a full context forgets its older half; without it, it is an error");
}

}  // namespace

int main(int argc, char** argv) {
  TuneOptions tune_options;
  TalkCommand talk_command;
  ExportCommand export_command;
  std::string too_long = "cut";
  for (ModelOptions* const options :
       {&tune_options.model, &talk_command.model, &export_command.model})
    options->threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  CLI::App app(
      "Tunes a language model on conversations within a budget of memory, and talks to it.",
      "chat_tune");
  app.require_subcommand(1);
  CLI::App* const tunes =
      app.add_subcommand("tune", "train adapters on conversations, or on a text");
  CLI::App* const talks = app.add_subcommand("talk", "talk to a model, with or without adapters");
  CLI::App* const exports = app.add_subcommand("export", "write a model with its adapters merged");
  add_tune(*tunes, tune_options, too_long);
  add_talk(*talks, talk_command);
  add_model(*exports, export_command.model);
  exports->add_option("--adapter", export_command.adapter, "adapters of tune --out")->required();
  exports
      ->add_option(
          "--out", export_command.out,
          "a name that ends with .gguf, or a folder for the decoded model as Hugging Face has it")
      ->required();
  exports->add_option("--type", export_command.type, "type of matrices in a GGUF file")
      ->check(CLI::IsMember({"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"}));
  exports->add_flag("--adapters", export_command.adapters_alone,
                    "write the adapters alone, as llama.cpp's --lora takes them");
  if (const auto status = support::parse(app, argc, argv)) return *status;
  if (talks->parsed()) return talk(talk_command);
  if (exports->parsed()) return export_model(export_command);
  tune_options.read.too_long =
      too_long == "refuse" ? chat_tune::Long::refuse : chat_tune::Long::cut;
  return tune(tune_options);
}
