/// Trains a GPT-2 on text on the CPU, with a policy for every activation.
///
/// Exit status: 0 done; 1 the loss stopped being finite; 2 bad input, with one line that says what
/// was expected; 130 interrupted (a checkpoint is written first, where --save asks for one).
#include <csignal>
#include <cstdio>

#include <adacc/io/llmc_tokens.hpp>
#include <adacc/io/text.hpp>

#include "train_gpt/command_line.hpp"
#include "train_gpt/report.hpp"
#include "train_gpt/run_report.hpp"
#include "train_gpt/trainer.hpp"

namespace {

volatile std::sig_atomic_t interrupted = 0;

int fail(const adacc::Error& why) {
  std::fprintf(stderr, "train_gpt: %s\n", why.text());
  return 2;
}

/// The tokens to train on: --tokens, --text, or the headers of Eigen.
adacc::Result<adacc::Tokens> training_tokens(const Options& options) {
  if (!options.tokens.empty())
    return adacc::read_llmc_tokens(options.tokens, options.network.vocab);
  auto text = adacc::read_text(options.text.empty() ? ADACC_EIGEN_INCLUDE_DIR : options.text);
  if (!text) return text;
  if (adacc::Error why = text->check_vocabulary(options.network.vocab)) return why;
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
  if (adacc::Error why = text->check_vocabulary(options.network.vocab)) return why;
  return text;
}

/// The shape that --model or --resume fixes goes into the options. A shape that was given all the
/// same must agree; the readers see to that.
adacc::Error adopt_shape(Options& options, const std::string& resumed_model) {
  if (!options.model.empty() && options.shape_given)
    return adacc::Error::say(
        "--model fixes the model's shape: leave out --layers, --heads, "
        "--channels and --context");
  if (!resumed_model.empty() && !options.shape_given) {
    if (const auto config = gpt::parse_description(resumed_model)) options.network = *config;
  }
  if (!options.model.empty()) {
    const auto header = adacc::read_llmc_header(options.model);
    if (!header) return header.error;
    options.network = {static_cast<int>(header->layers), header->heads, header->channels,
                       header->max_seq_len, header->vocab_size};
  }
  if (options.seq == 0) options.seq = options.network.context;
  if (options.seq > options.network.context)
    return adacc::Error::say("--seq ", options.seq, " exceeds the context of ",
                             options.network.context, " tokens");
  if (options.network.channels % options.network.heads != 0)
    return adacc::Error::say("--heads ", options.network.heads, " does not divide --channels ",
                             options.network.channels);
  return {};
}

void print_setup(const Options& options, const Trainer& trainer, const adacc::Tokens& tokens) {
  std::printf("model       %s\n", gpt::describe(options.network).c_str());
  std::printf("parameters  %.2f M, %s, as much for gradients, twice that for AdamW\n",
              static_cast<double>(trainer.parameter_bytes()) / 4e6,
              mebibytes(trainer.parameter_bytes()).c_str());
  std::printf("text        %s, %.2f M tokens\n", tokens.source().c_str(),
              static_cast<double>(tokens.size()) / 1e6);
  std::printf("step        %zu x %zu tokens, %d thread%s\n", options.batch, options.seq,
              options.threads, options.threads == 1 ? "" : "s");
  if (const adacc::PlanOutcome* plan = trainer.outcome()) {
    if (!trainer.cost_source().empty())
      std::printf("costs       %s\n", trainer.cost_source().c_str());
    std::printf(
        "plan        budget %s, %s; step %.1f ms predicted, retain %.1f ms; gradient error "
        "%.1e of %.0e\n",
        mebibytes(trainer.budget_bytes()).c_str(), policy_counts(trainer.program().plan).c_str(),
        1e3 * plan->seconds, 1e3 * plan->retain_seconds, plan->error, options.tolerance);
    std::printf("            %s, gap %.2f %%, planned in %.0f ms\n", plan->solver, 100 * plan->gap,
                1e3 * plan->solve_seconds);
    if (plan->note) std::printf("            %s\n", plan->note.text());
  }
  const adacc::Layout& layout = trainer.program().layout;
  std::printf("activations %s predicted peak (%.3f of the largest sum of live bytes); retain: %s\n",
              mebibytes(trainer.predicted_peak()).c_str(),
              static_cast<double>(layout.arena_bytes) / static_cast<double>(layout.live_bytes),
              mebibytes(trainer.retain_peak()).c_str());
  std::fflush(stdout);
}

void print_summary(Trainer& trainer) {
  const auto line = [](const char* what, std::size_t bytes) {
    std::printf("%-28s %14zu bytes  %s\n", what, bytes, mebibytes(bytes).c_str());
  };
  line("activation peak, measured", trainer.measured_peak());
  line("activation peak, predicted", trainer.predicted_peak());
  line("retain would have needed", trainer.retain_peak());
}

/// Bytes as a terminal may show them.
std::string printable(std::string text) {
  for (char& c : text)
    if ((static_cast<unsigned char>(c) < 32 && c != '\n' && c != '\t') || c == 127) c = '?';
  return text;
}

int train(Options options) {
  using adacc::Error;
  adacc::CheckpointInfo resumed;
  if (!options.resume.empty() && !options.model.empty())
    return fail(Error::say("--resume and --model both say where to start; give one of them"));
  if (!options.resume.empty()) {
    auto info = adacc::read_checkpoint_info(options.resume);
    if (!info) return fail(info.error);
    resumed = *info;
  }
  if (Error why = adopt_shape(options, resumed.model)) return fail(why);
  if (!options.resume.empty() && resumed.model != gpt::describe(options.network))
    return fail(Error::say(adacc::one_line(options.resume, 80).c_str(), ": is a checkpoint of \"",
                           adacc::one_line(resumed.model).c_str(), "\"; this model is \"",
                           gpt::describe(options.network).c_str(), "\""));
  const adacc::LearningRate rate{options.lr, options.min_lr, options.warmup, options.steps};
  if (Error why = rate.validate()) return fail(why);

  auto data = training_tokens(options);
  if (!data) return fail(data.error);
  if (Error why = data->check_batch(options.batch, options.seq)) return fail(why);
  adacc::Tokens validation;
  if (!options.val.empty()) {
    auto tokens = validation_tokens(options);
    if (!tokens) return fail(tokens.error);
    if (Error why = tokens->check_batch(options.batch, options.seq)) return fail(why);
    validation = std::move(*tokens);
  }

  Trainer trainer(options);
  if (Error why = trainer.set_up(resumed.plan, *data)) return fail(why);
  if (!options.resume.empty())
    if (Error why = trainer.load(options.resume)) return fail(why);
  if (!options.resume.empty() && !options.policy.empty() && resumed.plan != trainer.plan())
    std::printf("policy      %s replaces the plan of the checkpoint\n", options.policy.c_str());
  for (const std::string& name : {options.save, options.report}) {
    if (name.empty()) continue;  // one that cannot be written is better known now than at the end
    const auto probe = adacc::AtomicFile::create(name);
    if (!probe) return fail(probe.error);
  }
  Log log;
  if (Error why = log.open(options.log, trainer.done())) return fail(why);
  print_setup(options, trainer, *data);
  if (trainer.done() > 0)
    std::printf("resumed     after step %llu\n", static_cast<unsigned long long>(trainer.done()));

  RunHistory history;
  Progress progress(trainer.done(), options.steps);
  std::uint64_t saved = options.resume.empty() ? ~std::uint64_t{0} : trainer.done();
  while (trainer.done() < options.steps && interrupted == 0) {
    const double start = wall_seconds();
    const auto outcome = trainer.step(*data, rate);
    if (!outcome) return fail(outcome.error);
    StepRecord record;
    record.step = outcome->finite ? trainer.done() - 1 : trainer.done();
    record.loss = outcome->loss;
    record.grad_norm = outcome->grad_norm;
    record.ms = 1e3 * (wall_seconds() - start);
    record.tokens_per_s = 1000.0 * static_cast<double>(options.batch * options.seq) / record.ms;
    record.activation_peak_bytes = trainer.measured_peak();
    record.plan_version = trainer.plan_version();
    for (const std::string& change : trainer.changes()) progress.say("plan        " + change);
    if (trainer.refused())
      progress.say(std::string("plan        kept: ") + trainer.refused().text());
    if (!outcome->finite) {
      progress.finish();
      std::fprintf(stderr,
                   "train_gpt: step %llu: the loss is %g and the gradient norm %g; "
                   "stopped before the update%s\n",
                   static_cast<unsigned long long>(record.step), record.loss, record.grad_norm,
                   options.save.empty() ? "" : ", the last checkpoint stays as it is");
      return 1;
    }
    const bool last = trainer.done() == options.steps;
    const bool validates =
        !options.val.empty() &&
        (last || (options.val_every > 0 && trainer.done() % options.val_every == 0));
    if (validates) {
      const auto loss = trainer.evaluate(validation);
      if (!loss) return fail(loss.error);
      record.val_loss = *loss;
    }
    if (Error why = log.write(record)) return fail(why);
    history.add(record, trainer.changes());
    progress.show(record);
    if (options.save_every > 0 && trainer.done() % options.save_every == 0) {
      if (Error why = trainer.save(options.save)) return progress.finish(), fail(why);
      saved = trainer.done();
    }
  }
  progress.finish();
  if (!options.save.empty() && saved != trainer.done())
    if (Error why = trainer.save(options.save)) return fail(why);
  if (interrupted != 0) {
    std::fprintf(stderr, "train_gpt: interrupted after step %llu%s\n",
                 static_cast<unsigned long long>(trainer.done()),
                 options.save.empty() ? "" : ", checkpoint saved");
    return 130;
  }
  print_summary(trainer);
  if (!options.report.empty())
    if (Error why = write_report(options.report, run_report(options, trainer, history)))
      return fail(why);
  if (options.sample > 0) {
    std::printf("\nsample:\n%s\n", printable(trainer.generate(options.sample)).c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  int status = 0;
  if (!parse(argc, argv, options, status)) return status;
  std::signal(SIGINT, [](int) { interrupted = 1; });
  return train(options);
}
