// SPDX-License-Identifier: MIT
/// A Llama that trains on a CUDA device, from a file's weights or from random ones, whole or by adapters: llama_cuda
/// [options]. Activations are in bfloat16.
///
///   --model PATH        a folder with config.json and safetensors, or a GGUF file, whose blocks are decoded; without it a
///                       Llama of 1.24 G random weights, or of these sizes:
///   --layers N --channels N --heads N --kv-heads N --hidden N --vocab N
///   --text FILE         to train on, by the tokenizer of the GGUF file; without it tokens are drawn
///   --lora RANK         trains adapters alone, above frozen weights
///   --parameters FORM   bf16 (by default), rounded stochastically by updates, or fp32, with copies for products
///   --optimizer NAME    adamw (by default), sgd, lion or adafactor
///   --moments FORM      bf16 (by default), fp32 or int8
///   --policy P          retain (by default), recompute, or what activations may take of retain's peak, as 50%
///   --batch N --seq N --steps N --lr X
///   --save FILE         a checkpoint at the end
///   --json FILE         a line for bench/gpu_page.py, added to the file
///
/// The first two steps are no part of the time: the second is captured.
#include <adacc/train.cuh>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 2810  // nvcc takes the assignment of a Result for one that is ignored
#pragma nv_diag_suppress 186   // a generic lambda compares numbers of all types with 0
#include <adacc/core/steady_clock.hpp>
#include <adacc/io/budget.hpp>
#include <adacc/io/tokenizer/gguf_tokenizer.hpp>
#include <adacc/io/weights/gguf_llama.hpp>
#include <adacc/io/weights/llama.hpp>
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>
#pragma nv_diagnostic pop

namespace {

using namespace adacc;

[[noreturn]] void stop(const Error& why) {
  std::fprintf(stderr, "llama_cuda: %s\n", why.text());
  std::exit(2);
}
void check(const Error& why) {
  if (why) stop(why);
}
template <class T>
T taken(Result<T> made) {
  check(made.error);
  return static_cast<T&&>(*made);
}

struct Options {
  std::string model, text, parameters = "bf16", optimizer = "adamw", moments = "bf16",
                           policy = "retain", save, json;
  llama::Config sizes{.layers = 16,
                      .heads = 32,
                      .kv_heads = 8,
                      .channels = 2048,
                      .hidden = 8192,
                      .context = 0,
                      .vocab = 128256,
                      .base = 500000,
                      .tied_head = true};
  std::size_t batch = 4, seq = 1024, steps = 12, lora = 0;
  double lr = 1e-5;
};

std::size_t number_of(const char* option, const char* text) {
  char* end = nullptr;
  const unsigned long long number = std::strtoull(text, &end, 10);
  if (end == text || *end != 0 || number > 1ULL << 40 || *text == '-')
    stop(Error::say(option, " takes a whole number, and got ", text));
  return static_cast<std::size_t>(number);
}

Options read_options(int count, char** words) {
  Options all;
  for (int i = 1; i < count; i += 2) {
    const std::string option = words[i];
    const struct {
      const char* name;
      std::size_t* to;
    } numbers[] = {{"--channels", &all.sizes.channels},
                   {"--heads", &all.sizes.heads},
                   {"--kv-heads", &all.sizes.kv_heads},
                   {"--hidden", &all.sizes.hidden},
                   {"--vocab", &all.sizes.vocab},
                   {"--batch", &all.batch},
                   {"--seq", &all.seq},
                   {"--steps", &all.steps},
                   {"--lora", &all.lora}};
    const struct {
      const char* name;
      std::string* to;
    } texts[] = {{"--model", &all.model},
                 {"--text", &all.text},
                 {"--parameters", &all.parameters},
                 {"--optimizer", &all.optimizer},
                 {"--moments", &all.moments},
                 {"--policy", &all.policy},
                 {"--save", &all.save},
                 {"--json", &all.json}};
    if (i + 1 == count)
      stop(Error::say(option.c_str(),
                      " takes a value: the head of bench/llama_cuda.cu lists options"));
    bool known = false;
    for (const auto& [name, to] : numbers)
      if (option == name) *to = number_of(name, words[i + 1]), known = true;
    for (const auto& [name, to] : texts)
      if (option == name) *to = words[i + 1], known = true;
    if (option == "--layers")
      all.sizes.layers = static_cast<int>(number_of("--layers", words[i + 1])), known = true;
    if (option == "--lr") all.lr = std::atof(words[i + 1]), known = true;
    if (!known)
      stop(Error::say("there is no ", option.c_str(),
                      ": the head of bench/llama_cuda.cu lists options"));
  }
  if (all.batch == 0 || all.seq == 0 || all.steps < 3)
    stop(Error::say("--batch and --seq are at least 1, and --steps at least 3"));
  if (!all.text.empty() && !all.model.ends_with(".gguf"))
    stop(Error::say("--text is read by the tokenizer of a GGUF file: give --model FILE.gguf"));
  return all;
}

template <class Moments>
AnyOptimizer optimizer_in(const std::string& name) {
  if (name == "sgd") return SgdWith<Moments>{};
  if (name == "lion") return LionWith<Moments>{};
  if (name == "adafactor") return Adafactor{};
  if (name != "adamw")
    stop(Error::say("--optimizer is adamw, sgd, lion or adafactor, and got ", name.c_str()));
  return AdamWWith<Moments>{};
}
AnyOptimizer optimizer_of(const Options& options) {
  if (options.moments == "bf16") return optimizer_in<Bf16Moments>(options.optimizer);
  if (options.moments == "int8") return optimizer_in<Int8Moments>(options.optimizer);
  if (options.moments != "fp32")
    stop(Error::say("--moments is fp32, bf16 or int8, and got ", options.moments.c_str()));
  return optimizer_in<FullMoments>(options.optimizer);
}

/// Tokens of the text, or drawn ones that repeat, one more than the steps take.
std::vector<std::int32_t> tokens_of(const Options& options, const llama::Config& config) {
  const std::size_t wanted = options.batch * options.seq * options.steps + 1;
  std::vector<std::int32_t> list;
  if (options.text.empty()) {
    for (std::size_t i = 0; i < wanted; ++i)
      list.push_back(static_cast<std::int32_t>(random_word({.seed = 3}, i / 3) % config.vocab));
    return list;
  }
  const Gguf file = taken(Gguf::open(options.model));
  const Tokenizer tokenizer = taken(read_gguf_tokenizer(file));
  std::ifstream text(options.text, std::ios::binary);
  if (!text) stop(Error::say("--text ", options.text.c_str(), ": cannot be read"));
  list = tokenizer.encode(std::string(std::istreambuf_iterator<char>(text), {}));
  if (list.size() < 2) stop(Error::say("--text has ", list.size(), " tokens"));
  for (std::size_t i = 0; list.size() < wanted; ++i) list.push_back(list[i]);
  return list;
}

template <class Network>
void train(const Options& options, const llama::Config& config, const Network& net) {
  using Trained = Training<bfloat16, Cuda, AnyOptimizer>;
  detail::CudaHandle<cudaStream_t, &cudaStreamDestroy> stream;
  if (cudaStreamCreateWithFlags(stream.place(), cudaStreamNonBlocking) != cudaSuccess)
    check(Cuda::make(nullptr).error), stop(Error::say("CUDA makes no stream"));
  CudaProducts products = taken(CudaProducts::make());
  const Cuda cuda = taken(Cuda::make(stream.get(), &products));
  StreamClock clock(stream.get());
  const Shape shape(options.batch, options.seq);
  if (options.parameters != "bf16" && options.parameters != "fp32")
    stop(Error::say("--parameters is bf16 or fp32, and got ", options.parameters.c_str()));
  const ParameterForm form = held_form<bfloat16, Cuda>(
      options.parameters == "bf16" ? ParameterForm::bf16 : ParameterForm::full);
  Graph graph = taken(make_graph<Cuda>(net, shape, {.scalar = Dtype::bf16, .parameters = form}));
  auto dispatch = make_dispatch<bfloat16, Cuda>(net);
  dispatch.template add_codec<Int8Outlier>();
  dispatch.template add_codec<Int4Outlier>();
  Trained training;
  if (options.policy == "retain" || options.policy == "recompute") {
    const Plan plan = plan_from_types(graph, options.policy == "retain" ? retain() : recompute());
    training = taken(Trained::make(std::move(dispatch), taken(make_program(std::move(graph), plan)),
                                   cuda, 0, optimizer_of(options)));
  } else {
    typename Trained::Options how;
    how.budget_bytes = taken(parse_budget(options.policy)).of(peak_bytes(graph, retain_all(graph)));
    how.clock = clock;
    how.context = cuda;
    how.optimizer = optimizer_of(options);
    training = taken(Trained::make(std::move(dispatch), std::move(graph), std::move(how)));
  }
  if (!options.model.empty()) {
    std::vector<std::string> problems;
    const Error why = training.write_parameters([&](View<float> to) {
      const Graph& of = training.compiled_step().graph();
      return options.model.ends_with(".gguf")
                 ? llama::read_gguf_parameters(options.model, config, of, to, &problems)
                 : llama::read_parameters(options.model, config, of, to, &problems);
    });
    for (const std::string& problem : problems)
      std::fprintf(stderr, "llama_cuda: %s\n", problem.c_str());
    check(why);
  }
  const std::vector<std::int32_t> tokens = tokens_of(options, config);
  DeviceBlock<std::int32_t> x = taken(DeviceBlock<std::int32_t>::make(shape.elems(), "inputs")),
                            y = taken(DeviceBlock<std::int32_t>::make(shape.elems(), "targets"));
  std::vector<double> losses, seconds;
  for (std::size_t step = 0; step < options.steps; ++step) {
    const std::int32_t* const from = tokens.data() + step * shape.elems();
    const Shape all(shape.elems());
    Cuda copies = cuda;
    check(copy_to_device(copies, View<const std::int32_t>(from, all), x.view()));
    check(copy_to_device(copies, View<const std::int32_t>(from + 1, all), y.view()));
    const View<const std::int32_t> input(x.data(), shape), targets(y.data(), shape);
    if (step == 0 && training.evolution() != nullptr) check(training.prepare(input, targets));
    const double start = clock();
    const TrainingOutcome outcome = taken(training.step(input, targets, options.lr));
    seconds.push_back(clock() - start);
    losses.push_back(outcome.loss);
    std::printf("step %3zu   loss %.5f   norm %.4f   %.2f ms\n", step + 1, outcome.loss,
                outcome.grad_norm, 1e3 * seconds.back());
    std::fflush(stdout);
  }
  if (!options.save.empty()) check(training.save(options.save));

  std::sort(seconds.begin() + 2, seconds.end());
  const double median = seconds[2 + (seconds.size() - 2) / 2];
  const TrainingMemoryUse use = training.memory_use();
  const double weights = static_cast<double>(training.compiled_step().graph().parameter_elems),
               in_step = static_cast<double>(shape.elems());
  // A product of forward and two of backward for each weight, one of backward for frozen ones; causal attention.
  const double scores = 6.0 * config.layers * static_cast<double>(config.channels * options.seq);
  const double flop = in_step * ((options.lora == 0 ? 6.0 : 4.0) * weights + scores);
  const std::string size = config.layers == Options().sizes.layers && options.model.empty()
                               ? "Llama 1B"
                               : "Llama of " + std::to_string(config.layers) + " layers";
  const std::string row = options.policy + (options.lora == 0 ? "" : ", lora") + ", " +
                          options.optimizer + " in " + options.moments + ", parameters in " +
                          options.parameters;
  std::printf(
      "%s, B %zu, T %zu: %s: %.2f ms, %.0f tokens/s, %.1f TFLOP/s; in all %.2f GiB, of which "
      "activations %.2f, "
      "%llu steps as graphs\n",
      size.c_str(), options.batch, options.seq, row.c_str(), 1e3 * median, in_step / median,
      flop / median / 1e12, static_cast<double>(use.total()) / GiB,
      static_cast<double>(use.arena) / GiB,
      static_cast<unsigned long long>(training.captured_steps()));
  if (options.json.empty()) return;
  std::FILE* const file = std::fopen(options.json.c_str(), "a");
  if (file == nullptr) stop(Error::say("--json ", options.json.c_str(), ": cannot be written"));
  std::fprintf(
      file,
      "{\"row\": \"%s\", \"size\": \"%s\", \"batch\": %zu, \"ms\": %.4f, \"tokens_per_s\": %.1f, "
      "\"tflops\": %.3f, \"peak\": %zu, \"activations\": %zu, \"losses\": [%.6f, %.6f], \"waits\": "
      "true}\n",
      row.c_str(), size.c_str(), options.batch, 1e3 * median, in_step / median,
      flop / median / 1e12, use.total(), use.arena, losses.front(), losses.back());
  if (std::fclose(file) != 0)
    stop(Error::say("--json ", options.json.c_str(), ": cannot be written"));
}

}  // namespace

int main(int count, char** words) {
  const Options options = read_options(count, words);
  llama::Config config = options.sizes;
  if (!options.model.empty()) {
    std::vector<std::string> problems;
    auto read = options.model.ends_with(".gguf") ? llama::read_gguf_config(options.model, &problems)
                                                 : llama::read_config(options.model, &problems);
    for (const std::string& problem : problems)
      std::fprintf(stderr, "llama_cuda: %s\n", problem.c_str());
    config = taken(std::move(read));
  }
  if (options.model.empty()) config.context = options.seq;
  if (options.seq > config.context)
    stop(Error::say("--seq ", options.seq, " exceeds the model's context of ", config.context));
  if (options.lora > 0)
    train(options, config,
          llama::make_lora(config,
                           {.rank = options.lora, .alpha = 2 * static_cast<float>(options.lora)}));
  else train(options, config, llama::make(config));
  return 0;
}
