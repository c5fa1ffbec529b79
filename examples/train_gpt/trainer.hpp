/// A GPT, its memory, and one training step after the other.
#pragma once

#include <adacc/core/eigen_pool.hpp>
#include <adacc/train/checkpoint.hpp>
#include <adacc/train/learning_rate.hpp>
#include <adacc/train/llmc.hpp>
#include <adacc/train/plan_text.hpp>
#include <adacc/train/tokens.hpp>
#include <adacc/train/training.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include <unistd.h>

#include "options.hpp"

class Trainer {
 public:
  explicit Trainer(const Options& options)
      : options_(options), network_(gpt::make(options.network)), pool_(options.threads),
        cpu_(adacc::ExecutorRef(pool_)) {
    cpu_.key.seed = options.seed;
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Compiles the steps for `plan_name` or, where that is empty, for the plan in `saved_plan`,
  /// takes the memory they need and draws the parameters or reads --model.
  adacc::Error set_up(const std::string& plan_name, const std::string& saved_plan) {
    using namespace adacc;
    Result<Graph> graph = make(options_.batch, options_.seq);
    if (!graph) return graph.error;
    Plan plan;
    if (!plan_name.empty() || saved_plan.empty()) {
      plan = gpt::named_plan(plan_name.empty() ? "retain" : plan_name, options_.network,
                             options_.batch, options_.seq);
    } else {
      Array<const CodecInfo*> codecs;
      for (const auto& codec : dispatch().codecs) codecs.push_back(codec.info);
      Result<Plan> parsed = parse_plan(saved_plan, *graph, codecs);
      if (!parsed) return parsed.error;
      plan = std::move(*parsed);
    }
    Result<Program> retain = make_program(*graph, retain_all(*graph));
    Result<Program> train = make_program(*graph, plan);
    if (!retain || !train) return retain ? train.error : retain.error;
    retain_peak_ = retain->peak_bytes();
    plan_text_ = plan_text(*graph, plan);

    if (Error why = compile(evaluate_, *graph, Mode::evaluate)) return why;
    if (options_.sample > 0) {
      Result<Graph> one = make(1, options_.seq);
      if (!one) return one.error;
      if (Error why = compile(infer_, *one, Mode::infer)) return why;
    }
    const std::size_t arena =
        std::max({train->peak_bytes(), evaluate_.arena_bytes(), infer_.arena_bytes()});
    if (Error why = check_memory(arena, graph->parameter_elems * sizeof(float))) return why;
    Result<Training<>> training = Training<>::make(dispatch(), std::move(*train), cpu_, arena);
    if (!training) return training.error;
    training_ = std::move(*training);
    training_.optimizer.weight_decay = static_cast<float>(options_.weight_decay);
    training_.clip = options_.clip;
    const std::size_t tokens = options_.batch * options_.seq;
    Result<Block<std::int32_t>> inputs = Block<std::int32_t>::make(tokens, "inputs");
    Result<Block<std::int32_t>> targets = Block<std::int32_t>::make(tokens, "targets");
    if (!inputs || !targets) return inputs ? targets.error : inputs.error;
    inputs_ = std::move(*inputs);
    targets_ = std::move(*targets);
    std::memset(training_.arena().data(), static_cast<int>(pattern), training_.arena().size());
    for (Step<>* step : {&evaluate_, &infer_}) {
      if (step == &infer_ && options_.sample == 0) continue;
      if (Error why = step->bind(training_.arena(), training_.params())) return why;
    }
    if (options_.model.empty()) return {};
    return read_llmc_parameters(options_.model, *graph, training_.params());
  }

  adacc::Error load(const std::string& path) {
    auto info = adacc::load_checkpoint(path, gpt::describe(options_.network), training_.params(),
                                       training_.m(), training_.v());
    if (!info) return info.error;
    cpu_.key.seed = training_.cpu().key.seed = info->key.seed;
    training_.updates = info->optimizer_steps;
    return {};
  }

  adacc::Error save(const std::string& path) {
    adacc::CheckpointInfo info;
    info.model = gpt::describe(options_.network);
    info.plan = plan_text_;
    info.optimizer_steps = info.data_position = done();
    info.key.seed = cpu_.key.seed;
    info.key.step = static_cast<std::uint32_t>(done());
    return adacc::save_checkpoint(path, info, training_.params(), training_.m(), training_.v());
  }

  /// Forward, backward and update on the next batch.
  adacc::Result<adacc::Training<>::Outcome> step(const adacc::Tokens& data,
                                                 const adacc::LearningRate& rate) {
    if (adacc::Error why = next_batch(data, done())) return why;
    return training_.step(inputs(), targets(), rate.at(done()));
  }

  /// The mean loss over the first batches of `data`, at most 20 of them.
  adacc::Result<double> evaluate(const adacc::Tokens& data) {
    const std::size_t all = data.batches(options_.batch, options_.seq);
    const std::size_t count = all < 20 ? all : 20;
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (adacc::Error why = next_batch(data, i)) return why;
      auto loss = evaluate_.run(cpu_, inputs(), targets());
      if (!loss) return loss.error;
      sum += *loss;
    }
    return sum / static_cast<double>(count);
  }

  /// `count` bytes after a line break, each drawn from the model's distribution.
  std::string generate(std::size_t count) {
    using namespace adacc;
    const std::size_t context = options_.seq, c = options_.network.channels;
    std::string text = "\n";
    std::string out;
    const std::size_t vocab = options_.network.vocab;
    auto logits = Block<float>::make(vocab, "logits");
    auto scratch = Block<std::byte>::make(
        network_.loss.logits_workspace_bytes(Shape(1, c), Dtype::f32, cpu_.workers()), "scratch");
    if (!logits || !scratch) return out;
    RandomKey key = cpu_.key.with_purpose(Purpose::sampling);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t seen = text.size() < context ? text.size() : context;
      for (std::size_t t = 0; t < context; ++t)
        inputs_[t] = t < seen ? static_cast<unsigned char>(text[text.size() - seen + t]) : 0;
      const View<const std::int32_t> window(inputs_.data(), Shape(1, context));
      if (!infer_.run(cpu_, window, window)) return out;
      const LossNode& head = infer_.graph().loss;
      network_.loss.logits<float>(
          cpu_,
          {training_.params().data(), infer_.graph().parameters.data() + head.first_parameter, 1},
          View<const float>(infer_.output().data() + (seen - 1) * c, Shape(1, c)),
          View<float>(logits->data(), Shape(1, vocab)), {scratch->data(), Shape(scratch->size())});
      text += static_cast<char>(draw(logits->data(), vocab, random_word(key, i)));
      out += text.back();
    }
    return out;
  }

  std::uint64_t done() const { return training_.updates; }
  const adacc::Program& program() const { return training_.compiled().program(); }
  std::size_t predicted_peak() const { return program().peak_bytes(); }
  std::size_t retain_peak() const { return retain_peak_; }
  std::size_t parameter_bytes() const { return program().graph.parameter_elems * sizeof(float); }
  const std::string& plan() const { return plan_text_; }

  /// Arena bytes that training steps have touched: the end of the last cache line that differs
  /// from the pattern it was filled with.
  std::size_t measured_peak() {
    const adacc::Bytes arena = training_.arena();
    std::size_t end = predicted_peak();
    while (end > 0) {
      const std::size_t line = (end - 1) / adacc::alignment * adacc::alignment;
      for (std::size_t i = line; i < end; ++i)
        if (arena[i] != pattern) return end;
      end = line;
    }
    return 0;
  }

 private:
  static constexpr std::byte pattern{0xA5};

  adacc::Result<adacc::Graph> make(std::size_t batch, std::size_t seq) const {
    return adacc::make_graph(network_, adacc::Shape(batch, seq), adacc::Dtype::f32,
                             options_.threads);
  }

  adacc::Dispatch<float, adacc::Cpu> dispatch() const {
    auto dispatch = adacc::make_dispatch<float, adacc::Cpu>(network_);
    dispatch.add_codec<adacc::Int8Outlier>();
    dispatch.add_codec<adacc::Int4Outlier>();
    return dispatch;
  }

  /// A forward-only step; it needs no plan, because nothing is kept for backward.
  adacc::Error compile(adacc::Step<>& step, const adacc::Graph& graph, adacc::Mode mode) const {
    auto program = adacc::make_program(graph, adacc::retain_all(graph), mode);
    if (!program) return program.error;
    auto made = adacc::Step<>::make(dispatch(), std::move(*program));
    if (made) step = std::move(*made);
    return made.error;
  }

  static adacc::Error check_memory(std::size_t arena, std::size_t params) {
    const auto machine =
        static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    if (static_cast<double>(arena) + 4.0 * static_cast<double>(params) <= machine) return {};
    return adacc::Error::say("this takes ", adacc::shown(arena), " for activations and 4 x ",
                             adacc::shown(params), " for parameters, more than the machine's ",
                             adacc::shown(static_cast<std::size_t>(machine)),
                             "; try fewer --layers, --channels, --batch or --seq");
  }

  adacc::Error next_batch(const adacc::Tokens& data, std::uint64_t index) {
    return data.batch(index, options_.batch, options_.seq, inputs_.view(), targets_.view());
  }
  adacc::View<const std::int32_t> inputs() const {
    return {inputs_.data(), adacc::Shape(options_.batch, options_.seq)};
  }
  adacc::View<const std::int32_t> targets() const {
    return {targets_.data(), adacc::Shape(options_.batch, options_.seq)};
  }

  /// An index drawn from softmax(logits) by the random word.
  static std::size_t draw(const float* logits, std::size_t count, std::uint32_t word) {
    double largest = logits[0], sum = 0;
    for (std::size_t i = 1; i < count; ++i) largest = std::max<double>(largest, logits[i]);
    for (std::size_t i = 0; i < count; ++i) sum += std::exp(logits[i] - largest);
    double left = sum * static_cast<double>(adacc::unit_float(word));
    for (std::size_t i = 0; i < count; ++i) {
      left -= std::exp(logits[i] - largest);
      if (left < 0) return i;
    }
    return count - 1;
  }

  const Options& options_;
  gpt::Gpt<gpt::RetainSet> network_;
  adacc::EigenPool pool_;
  adacc::Cpu cpu_;
  adacc::Training<> training_;
  adacc::Step<> evaluate_, infer_;
  std::size_t retain_peak_ = 0;
  std::string plan_text_;
  adacc::Block<std::int32_t> inputs_, targets_;
};
