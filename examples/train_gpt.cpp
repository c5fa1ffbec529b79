// SPDX-License-Identifier: MIT
/// Trains a GPT-2 on text, on the CPU or on a CUDA device, with a policy for every activation.
///
/// Exit status: 0 done; 1 the loss stopped being finite; 2 bad input, or something asked for could
/// not be written, with one line that says what, and before it a line for each fault of a --model that
/// has several; 128 and the number of the signal (SIGINT, SIGTERM,
/// SIGHUP, SIGPIPE) that interrupted it. Where --save asks for a checkpoint, one is written in all
/// cases but bad input.
#include <csignal>
#include <cstdio>

#include <fcntl.h>
#include <unistd.h>

#include <adacc/io/text.hpp>
#include <adacc/io/weights/llmc_tokens.hpp>

#include "train_gpt/agree.hpp"
#include "train_gpt/command_line.hpp"
#include "train_gpt/device_trainer.hpp"
#include "train_gpt/may_freeze.hpp"
#include "train_gpt/model_file.hpp"
#include "train_gpt/pipeline.hpp"
#include "train_gpt/ranks.hpp"
#include "train_gpt/report.hpp"
#include "train_gpt/run_report.hpp"
#include "train_gpt/summary.hpp"
#include "train_gpt/trainer.hpp"

namespace {

using adacc::Error;
namespace gpt = adacc::gpt;

volatile std::sig_atomic_t signalled = 0;

Ranks ranks;

void complain(const Error& why) {
  if (ranks.rank() == 0) std::fprintf(stderr, "train_gpt: %s\n", why.text());
  else std::fprintf(stderr, "train_gpt, rank %d: %s\n", ranks.rank(), why.text());
}

int fail(const Error& why) {
  complain(why);
  return 2;
}

unsigned long long number(std::uint64_t value) { return value; }

/// Of the standard streams, one that is closed would be the first file that is opened. Reads and
/// writes of what stands in for it fail.
void occupy_standard_streams() {
  for (const int fd : {0, 1, 2})
    if (::fcntl(fd, F_GETFD) < 0)
      static_cast<void>(::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY));
}

/// The first of these signals ends the training after its step; the second ends the program, but for
/// a pipe that nobody reads, which says so at every write.
void catch_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct sigaction action {};
    action.sa_handler = [](int which) { signalled = which; };
    action.sa_flags = number == SIGPIPE ? SA_RESTART : SA_RESTART | static_cast<int>(SA_RESETHAND);
    ::sigaction(number, &action, nullptr);
  }
}

/// The tokens to train on: --tokens, --text, or the headers of Eigen.
adacc::Result<adacc::Tokens> training_tokens(const Options& options) {
  if (!options.tokens.empty())
    return adacc::read_llmc_tokens(options.tokens, options.network.vocab);
  auto text = adacc::read_text(options.text.empty() ? ADACC_EIGEN_INCLUDE_DIR : options.text);
  if (!text) return text;
  if (Error why = text->check_vocabulary(options.network.vocab)) return why;
  return text;
}

/// --val is a token file if it starts like one, and text otherwise.
adacc::Result<adacc::Tokens> validation_tokens(const Options& options) {
  std::int32_t magic = 0;
  if (auto file = adacc::InputFile::open(options.val, "an llm.c token file or text");
      file && file->size() >= sizeof magic && !file->read(&magic, sizeof magic) &&
      magic == adacc::llmc_tokens_magic)
    return adacc::read_llmc_tokens(options.val, options.network.vocab);
  auto text = adacc::read_text(options.val);
  if (!text) return text;
  if (Error why = text->check_vocabulary(options.network.vocab)) return why;
  return text;
}

/// The shape that --model or --resume fixes goes into the options. A shape that was given all the
/// same must agree.
Error adopt_shape(Options& options, const adacc::CheckpointInfo& resumed) {
  const auto take = [&](gpt::Config shape) {
    shape.device_tile_rows = options.network.device_tile_rows;
    options.network = shape;
  };
  if (!options.model.empty() && options.shape_given)
    return Error::say(
        "--model fixes the model's shape: leave out --layers, --heads, "
        "--channels and --context");
  if (!options.model.empty() && adacc::is_checkpoint(options.model)) {
    const auto info = adacc::read_checkpoint_info(options.model);
    if (!info) return info.error;
    const auto config = gpt::parse_description(info->model);
    if (!config || gpt::describe(*config) != info->model)
      return Error::say("--model ", adacc::one_line(options.model, 80).c_str(),
                        ": is a checkpoint of \"", adacc::one_line(info->model, 100).c_str(),
                        "\"; a GPT-2 alone can be started from (--merge writes one)");
    if (const Error why = check_described(*config, *info))
      return Error::say("--model ", adacc::one_line(options.model, 80).c_str(), ": ", why.text());
    take(*config);
  } else if (!options.model.empty()) {
    const auto header = read_model_shape(options, ranks.rank() == 0);
    if (!header) return header.error;
    take({static_cast<int>(header->layers), header->heads, header->channels, header->max_seq_len,
          header->vocab_size});
  }
  if (!resumed.model.empty() && !options.shape_given) {
    if (const auto config = gpt::parse_description(resumed.model)) {
      if (const Error why = check_described(*config, resumed))
        return Error::say(adacc::one_line(options.resume, 80).c_str(), ": ", why.text());
      take(*config);
    }
  }
  if (!options.resume.empty() && resumed.model != options.model_text())
    return Error::say(adacc::one_line(options.resume, 80).c_str(), ": is a checkpoint of \"",
                      adacc::one_line(resumed.model).c_str(), "\"; this model is \"",
                      options.model_text().c_str(), "\"");
  if (options.seq == 0) options.seq = options.network.context;
  if (options.seq > options.network.context)
    return Error::say("--seq ", options.seq, " exceeds the context of ", options.network.context,
                      " tokens");
  if (options.network.channels % options.network.heads != 0)
    return Error::say("--heads ", options.network.heads, " does not divide --channels ",
                      options.network.channels);
  return {};
}

template <class AnyTrainer>
void print_setup(const CommandLine& line, const AnyTrainer& trainer, const adacc::Tokens& tokens) {
  const Options& options = line.options;
  std::printf("model       %s\n", options.model_text().c_str());
  const adacc::TrainingMemoryUse memory = trainer.memory_use();
  const std::string moments = mebibytes(memory.moments) + " for the moments of " +
                              options.optimizer + " in " + options.moments;
  const std::size_t trained = trainer.program().graph.gradient_elems * sizeof(float);
  const std::size_t elems = trainer.program().graph.parameter_elems;
  const bool all = trained == elems * sizeof(float);
  const std::string gradients =
      options.fused             ? "gradients in the arena"
      : options.shard_gradients ? mebibytes(memory.gradients) + " for gradients of its own"
      : all && trained == memory.parameters ? "as much for gradients"
                                            : mebibytes(trained) + " for gradients";
  std::printf("parameters  %.2f M, %s%s", static_cast<double>(elems) / 1e6,
              mebibytes(memory.parameters).c_str(), options.parameters == "bf16" ? " in bf16" : "");
  if (!all && !options.forward_only)
    std::printf("; %.3f M are trained:", static_cast<double>(trained) / 4e6);
  if (options.forward_only)
    std::printf("; no gradients and no moments: %d direction%s an update\n", options.directions,
                options.directions == 1 ? "" : "s");
  else std::printf("%s %s, %s\n", all ? "," : "", gradients.c_str(), moments.c_str());
  std::printf("text        %s, %.2f M tokens\n", tokens.source().c_str(),
              static_cast<double>(tokens.size()) / 1e6);
  if constexpr (requires { trainer.ranks_text(); })
    if (const std::string text = trainer.ranks_text(); !text.empty())
      std::printf("ranks       %s\n", text.c_str());
  const std::string micro = options.update_batches() > 1
                                ? std::to_string(options.update_batches()) + " micro-batches of "
                                : std::string();
  std::printf("step        %s%zu x %zu tokens, %s\n", micro.c_str(), options.batch, options.seq,
              trainer.place_text().c_str());
  if constexpr (requires { trainer.head_text(); })
    std::printf("head        %s\n", trainer.head_text().c_str());
  for (std::size_t i = 0; i < line.frozen.size(); ++i)
    std::printf("%-11s %s\n", i == 0 ? "frozen" : "", line.frozen[i].c_str());
  if (const adacc::PlanOutcome* plan = trainer.outcome()) {
    if (!trainer.cost_source().empty())
      std::printf("costs       %s\n", trainer.cost_source().c_str());
    std::printf(
        "plan        budget %s, %s; step %.1f ms predicted, retain %.1f ms; gradient error "
        "%.1e of %.0e\n",
        mebibytes(trainer.budget_bytes()).c_str(), policy_counts(trainer.program().plan).c_str(),
        1e3 * plan->seconds, 1e3 * plan->retain_seconds, plan->error, options.tolerance);
    std::printf("            found by %s, bound by %s, gap %.2f %%, planned in %.0f ms\n",
                plan->solver, plan->bound_by, 100 * plan->gap, 1e3 * plan->solve_seconds);
    if (plan->note) std::printf("            %s\n", plan->note.text());
    if (const std::string store = trainer.store_text(); !store.empty())
      std::printf("offload     %s; %s out and back a step, %.1f ms of waiting predicted\n",
                  store.c_str(), mebibytes(trainer.offloaded_bytes()).c_str(),
                  1e3 * plan->stall_seconds);
  }
  if constexpr (requires { trainer.moments_text(); })
    if (const std::string stored = trainer.moments_text(); !stored.empty())
      std::printf("moments     %s\n", stored.c_str());
  if (options.parallel() && trainer.outcome() == nullptr)
    std::printf("plan        %s; one for all ranks\n",
                policy_counts(trainer.program().plan).c_str());
  else if (options.parallel()) std::printf("            one for all ranks\n");
  const adacc::Layout& layout = trainer.program().layout;
  std::printf("activations %s predicted peak (%.3f of the largest sum of live bytes); retain: %s\n",
              mebibytes(trainer.predicted_peak()).c_str(),
              static_cast<double>(layout.arena_bytes) / static_cast<double>(layout.live_bytes),
              mebibytes(trainer.retain_peak()).c_str());
  if (!options.resume.empty()) print_resumed(line, trainer.done());
  std::fflush(stdout);
}

/// Bytes as a terminal may show them.
std::string printable(std::string text) {
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < 32 && c != '\n' && c != '\t') || c == 127) c = '?';
  return text;
}

/// Whether a signal ended the training, of this rank or of another: all end behind the same step. An error if
/// one of them is not heard of.
adacc::Result<bool> interrupted() {
  if (ranks.size() == 1) return signalled != 0;
  std::vector<std::uint64_t> all;
  if (const Error why =
          adacc::all_gather(ranks.group(), static_cast<std::uint64_t>(signalled), all))
    return why;
  for (const std::uint64_t one : all)
    if (one != 0) signalled = static_cast<int>(one);
  return signalled != 0;
}

/// How a run ended, whatever became of what it wrote.
enum class Ending { done, interrupted, diverged, failed };

/// Trains with a Trainer or a DeviceTrainer, and keeps what was learned: whatever else cannot be
/// written, the checkpoint comes first.
template <class AnyTrainer>
class Run {
 public:
  Run(const CommandLine& line, AnyTrainer& trainer, const Notes& notes, const adacc::Tokens& data,
      const adacc::Tokens& validation)
      : options_(line.options), trainer_(trainer), notes_(notes), data_(data),
        validation_(validation), progress_(trainer.done(), line.options.steps),
        same_name_(!options_.save.empty() && !options_.resume.empty() &&
                   adacc::same_file(options_.save, options_.resume)),
        saved_(same_name_ ? trainer.done() : never) {}

  Error open_log() { return log_.open(options_.log, trainer_.done()); }

  /// The exit status.
  int train() {
    const adacc::LearningRate rate{options_.lr, options_.min_lr, options_.warmup, options_.steps};
    Ending ending = Ending::done;
    while (ending == Ending::done && trainer_.done() < options_.steps) {
      const auto ends = interrupted();
      if (!ends) report(ends.error);
      ending = !ends ? Ending::failed : *ends ? Ending::interrupted : step(rate);
    }
    progress_.finish();
    if (ending == Ending::diverged) return save_last_finite(), 1;
    save_if_due("");
    if constexpr (requires { trainer_.save_profile(); })
      if (const Error why = trainer_.save_profile()) report(why);
    if (ending == Ending::interrupted) {
      std::fprintf(stderr, "train_gpt: interrupted after step %llu%s\n", number(trainer_.done()),
                   saved_ == trainer_.done() ? ", checkpoint saved" : "");
      return failed_ ? 2 : 128 + signalled;
    }
    if (ending == Ending::failed) return 2;
    if constexpr (requires { trainer_.export_model(); })
      if (!options_.export_to.empty())
        if (const Error why = trainer_.export_model()) report(why);
    if constexpr (requires { trainer_.save_merged(); })
      if (!options_.merge.empty())
        if (const Error why = trainer_.save_merged()) report(why);
    print_summary(trainer_, history_.median_ms(), history_.declined);
    if constexpr (requires { trainer_.program(); })
      if (!options_.report.empty())
        if (const Error why =
                write_report(options_.report, run_report(options_, trainer_, history_)))
          report(why);
    if constexpr (requires { trainer_.generate(1); })
      if (options_.sample > 0) {
        const auto text = trainer_.generate(options_.sample);
        if (text) std::printf("\nsample:\n%s\n", printable(*text).c_str());
        else report(Error::say("--sample: ", text.error.text()));
      }
    return failed_ ? 2 : 0;
  }

 private:
  static constexpr std::uint64_t never = ~std::uint64_t{0};

  /// Something that training does not need went wrong.
  void report(const Error& why) {
    progress_.finish();
    complain(why);
    failed_ = true;
  }

  void save_if_due(const char* then) {
    if (options_.save.empty() || saved_ == trainer_.done()) return;
    if (const Error why = trainer_.save(options_.save, notes_))
      return report(Error::say(why.text(), then));
    saved_ = trainer_.done();
    ever_saved_ = true;
  }

  /// The parameters before an update that would not have been finite. A checkpoint of a better time
  /// stays: they go beside it.
  void save_last_finite() {
    std::string more;
    const std::string name = adacc::one_line(options_.save, 80);
    if (!options_.save.empty() && saved_ == trainer_.done()) {
      more = "; " + name + " is of the step before";
    } else if (!options_.save.empty()) {
      const bool beside = ever_saved_ || same_name_;
      const char* suffix = beside ? ".last-finite" : "";
      if (const Error why = trainer_.save(options_.save + suffix, notes_)) report(why);
      else more = "; the last finite parameters are in " + name + suffix;
      if (beside) more += "; " + name + " stays as it is";
    }
    std::fprintf(
        stderr,
        "train_gpt: step %llu: the loss is %g and the gradient norm %g; stopped before the "
        "update%s%s\n",
        number(trainer_.done()), last_.loss, last_.grad_norm,
        last_.skipped > 0 ? " of what was not finite" : "", more.c_str());
  }

  Ending step(const adacc::LearningRate& rate) {
    const double start = adacc::steady_seconds();
    const std::uint64_t began = trainer_.done();
    const auto outcome = trainer_.step(data_, rate);
    if (!outcome) return report(outcome.error), Ending::failed;
    last_ = *outcome;
    StepRecord record = StepRecord::of(began, *outcome, start,
                                       options_.update_batches() * options_.batch * options_.seq);
    record.activation_peak_bytes = trainer_.measured_peak();
    if constexpr (requires { trainer_.changes(); }) {  // its plan changes
      record.offloaded_bytes = trainer_.offloaded_bytes();
      record.stall_ms = 1e3 * trainer_.stall_seconds();
      record.plan_version = trainer_.plan_version();
      for (const std::string& change : trainer_.changes()) progress_.say("plan        " + change);
      if (trainer_.refused())
        progress_.say(std::string("plan        kept: ") + trainer_.refused().text());
    }
    // The log has each step's counts, the end their sum.
    if (record.declined.total() > 0 && history_.declined.total() == 0)
      progress_.say("codecs      lost rows in step " + std::to_string(began + 1) + ": " +
                    adacc::declined_text(record.declined));
    if (!outcome->finite) return Ending::diverged;
    const bool last = trainer_.done() == options_.steps;
    [[maybe_unused]] const bool validates =
        !options_.val.empty() &&
        (last || (options_.val_every > 0 && trainer_.done() % options_.val_every == 0));
    if constexpr (requires { trainer_.evaluate(validation_); })
      if (validates) {
        const auto loss = trainer_.evaluate(validation_);
        if (loss) record.val_loss = *loss;
        else report(loss.error);
      }
    if (const Error why = log_.write(record)) {
      report(Error::say(why.text(), "; training goes on without it"));
      log_.close();
    }
    if constexpr (requires { trainer_.changes(); }) history_.add(record, trainer_.changes());
    else history_.add(record, {});
    progress_.show(record);
    // Behind the log: a run that is killed and resumed then finds the lines of all steps before.
    if (options_.save_every > 0 && trainer_.done() % options_.save_every == 0 && !last)
      save_if_due("; training goes on");
    return Ending::done;
  }

  const Options& options_;
  AnyTrainer& trainer_;
  const Notes& notes_;
  const adacc::Tokens& data_;
  const adacc::Tokens& validation_;
  Log log_;
  RunHistory history_;
  Progress progress_;
  adacc::TrainingOutcome last_;
  bool same_name_;       ///< --save names what --resume does
  std::uint64_t saved_;  ///< the step that --save is of
  bool ever_saved_ = false;
  bool failed_ = false;
};

/// Everything that can be told from the options and the files that they name: the shape of the model,
/// and the text.
Error look_ahead(CommandLine& line, adacc::Tokens& data, adacc::Tokens& validation) {
  Options& options = line.options;
  if (!options.resume.empty() && !options.model.empty())
    return Error::say("--resume and --model both say where to start; give one of them");
  if (options.most_runs > 1 &&
      (!options.offload.empty() || !options.pinned_text.empty() || options.parts > 1))
    return Error::say("--most-runs ", options.most_runs, ": beside ",
                      options.parts > 1         ? "--parts"
                      : options.offload.empty() ? "--pinned"
                                                : "--offload",
                      " no activation is recomputed more than once");
  if (options.parallel() && !options.offload.empty())
    return Error::say("--offload is for one rank without --shards");
  if (options.parallel() && !options.moments_store.empty())
    return Error::say(
        "--moments-store is for one rank without --shards; several ranks divide the moments with "
        "--shard-moments");
  if (options.parallel() && (options.fused || options.forward_only))
    return Error::say(
        options.fused ? "--fused" : "--forward-only",
        " is for one rank without --shards: ranks sum their gradients before an update");
  if (!options.parallel() && options.pipeline == 0 &&
      (options.shard_moments || options.shard_gradients))
    return Error::say(
        options.shard_moments ? "--shard-moments" : "--shard-gradients",
        " divides them among ranks, and this run is one of one: start several (mpirun "
        "-np N train_gpt ...), or give --shards");
  if (options.parallel() && options.on_device())
    return Error::say("--device ", options.device.c_str(), " is for one rank");
  if (options.parallel() && options.parameters != "fp32")
    return Error::say(
        "--parameters bf16 is for one rank without --shards: ranks sum and gather in fp32");
  if (options.parallel() && options.may_freeze)
    return Error::say("--may-freeze is for one rank without --shards");
  if (Error why = check_files(options)) return why;
  if (Error why = adopt_shape(options, line.resumed)) return why;
  if (!options.network.tied_head && !options.export_to.empty() &&
      !exports_header(options.export_to))
    return Error::say(
        "--export writes a GPT-2 as Hugging Face has it, whose head is the table of tokens, and "
        "this model's head is a table of its own; a C header (--export model.h) can have both");
  const adacc::LearningRate rate{options.lr, options.min_lr, options.warmup, options.steps};
  if (Error why = rate.validate()) return why;

  auto tokens = training_tokens(options);
  if (!tokens) return tokens.error;
  if (Error why = tokens->check_batch(options.batch, options.seq)) return why;
  data = std::move(*tokens);
  if (!options.val.empty()) {
    tokens = validation_tokens(options);
    if (!tokens) return tokens.error;
    if (Error why = tokens->check_batch(options.batch, options.seq)) return why;
    validation = std::move(*tokens);
  }
  const std::string header = exports_header(options.export_to) ? options.export_to : "";
  for (const std::string& name : {options.save, options.report, options.merge, header}) {
    if (name.empty() || ranks.rank() != 0) continue;
    // One that cannot be written is better known now than at the end.
    const auto probe = adacc::AtomicFile::create(name);
    if (!probe) return probe.error;
  }
  return {};
}

}  // namespace

/// Of a program that is linked with train_gpt/cuda.cu, which nvcc compiles, that one is taken.
[[gnu::weak]] adacc::Result<std::unique_ptr<DeviceTraining>> make_device_training(
    const Options& options, const DevicePlanning&) {
  return Error::say(
      "--device ", options.device.c_str(),
      ": this program was built without CUDA; train_gpt_cuda is built with it, which is "
      "a target where CMake finds nvcc");
}

namespace {

/// Sets `trainer` up, or goes on where the checkpoint was, and trains. The exit status.
template <class AnyTrainer>
int run(CommandLine& line, AnyTrainer& trainer, const DataIdentity& text, const adacc::Tokens& data,
        const adacc::Tokens& validation) {
  const Options& options = line.options;
  Error why;
  if (options.resume.empty()) {
    why = trainer.set_up(data);
  } else {
    const bool same = text == line.notes.data;
    if (!same) line.changed.push_back("another text: from its start");
    if (!options.profile.empty() && options.plans() && !line.resumed.evolution.empty())
      line.changed.push_back("--profile is not read: the checkpoint has costs of its own");
    why = trainer.resume(line.resumed, line.notes, data, same);
  }
  if (why) return fail(why);
  if constexpr (requires { trainer.resident(); }) trainer.resident().set_up_ended();
  const Notes notes = Notes::of(options, text);
  Run run(line, trainer, notes, data, validation);
  if ((why = share_error(ranks.group(), run.open_log()))) return fail(why);
  catch_signals();
  print_setup(line, trainer, data);
  return run.train();
}

int train(CommandLine& line) {
  Options& options = line.options;
  if (const Error why = ranks.join(line.argc, line.argv, options.rank_limit)) return fail(why);
  if (options.shards == 0 && ranks.size() > 1 && options.pipeline == 0)
    options.shards = ranks.size();
  if (ranks.rank() != 0) {  // one speaks, and writes, for all
    for (std::string* name :
         {&options.log, &options.report, &options.merge, &options.export_to, &options.val})
      name->clear();
    options.sample = 0;
  }
  adacc::Tokens data, validation;
  Error why = share_error(ranks.group(), look_ahead(line, data, validation));
  if (why) return fail(why);
  const DataIdentity text{data.size(), data.checksum()};
  if ((why = agree(ranks.group(), line, text))) return fail(why);
  if (options.pipeline > 0) {
    if (options.pipeline != ranks.size())
      return fail(Error::say("--pipeline ", options.pipeline, " takes as many ranks (mpirun -np ",
                             options.pipeline, "), and there ", ranks.size() == 1 ? "is " : "are ",
                             ranks.size()));
    const auto group = ranks.another();
    if ((why = share_error(ranks.group(), group.error))) return fail(why);
    if (options.precision == "bf16") {
      StageTrainer<adacc::bfloat16> trainer(options, *group);
      return run(line, trainer, text, data, validation);
    }
    StageTrainer<float> trainer(options, *group);
    return run(line, trainer, text, data, validation);
  }
  if (options.may_freeze)
    if ((why = choose_frozen(options, data, line.frozen))) return fail(why);
  if (options.on_device()) {
    DeviceTrainer trainer(options);
    return run(line, trainer, text, data, validation);
  }
  if (options.precision == "bf16") {
    Trainer<adacc::bfloat16> trainer(options, ranks.group());
    return run(line, trainer, text, data, validation);
  }
  Trainer<float> trainer(options, ranks.group());
  return run(line, trainer, text, data, validation);
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_streams();
  CommandLine line;
  int status = 0;
  if (const auto ended = parse(argc, argv, line)) status = *ended;
  else status = ranks.leave(train(line));
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && status < 128) {
    std::fprintf(stderr, "train_gpt: standard output cannot be written\n");
    if (status == 0) status = 2;
  }
  return status;
}
