// SPDX-License-Identifier: MIT
/// Whole training steps on the device: a GPT, a Llama, a BERT and a perceptron, the first three also with activations in
/// bfloat16, against the CPU's fp32, recomputing against retaining bit for bit, bytes used against bytes promised, blobs
/// against the CPU's. Skipped (77) without a device.
#include <adacc/train.cuh>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include <support/cuda/attention.cuh>

#include "copies_checks.hpp"
#include "evolving_checks.hpp"
#include "made_up_attention.cuh"
#include "model_checks.hpp"
#include "on_device.hpp"
#include "steps_cases.hpp"
#include "tile_checks.hpp"

namespace {

using namespace steps;

int failures = 0;
int steps_of_gpt = 10;  ///< fewer in the part `few`: for runs with more checks

template <class... Arguments>
void expect(bool holds, const char* format, const Arguments&... arguments) {
  if (holds) return;
  ++failures;
  std::printf("FAILED: ");
  std::printf(format, arguments...);
  std::printf("\n");
}
bool fine(const Error& error) {
  expect(!error, "%s", error.text());
  return !error;
}
bool fine(cudaError_t status) {
  expect(status == cudaSuccess, "%s", cudaGetErrorString(status));
  return status == cudaSuccess;
}

struct Setting {
  cudaStream_t stream;
  CudaProducts* products;
  CudaAttention* attention = nullptr;
};

/// A step with activations in T and its memory. The arena is nothing but allocated, so that the executor sees who reads
/// what nobody wrote.
template <class Case, class T = float>
class Trainer {
 public:
  using Number = typename Case::Number;
  static constexpr std::size_t guard = 4096;

  Trainer(const Setting& setting, Dispatch<T, Cuda> dispatch, const Program& program,
          StoreRef store = {})
      : cuda_(setting.stream, setting.products, setting.attention) {
    auto made = Step<T, Cuda>::make(static_cast<Dispatch<T, Cuda>&&>(dispatch), program);
    if (!fine(made.error)) return;
    step_ = static_cast<Step<T, Cuda>&&>(*made);
    cuda_.key.seed = seed;
    const std::size_t elems = step_.graph().parameter_elems;
    fine(cudaMalloc(&memory_, step_.arena_bytes() + guard + transfer_alignment));
    const std::size_t past = reinterpret_cast<std::uintptr_t>(memory_) % transfer_alignment;
    arena_ = memory_ + (past == 0 ? 0 : transfer_alignment - past);
    for (DeviceBlock<float>& block : blocks_) take(block, elems);
    take(places_, gradient_norm_places + 1);
    take(input_, Case::inputs(0).size());
    take(targets_, Case::targets(0).size());
    const std::vector<std::int32_t> lengths = lengths_of<Case>();
    take(lengths_, lengths.size());
    const Shape entries(lengths.size());
    if (!lengths.empty())
      fine(copy_to_device(cuda_, View<const std::int32_t>(lengths.data(), entries),
                          lengths_.view()));
    cuda_.lengths = {lengths_.data(), entries};
    const std::vector<float> first = initial_params<Case>();
    fine(copy_to_device(cuda_, View<const float>(first.data(), Shape(elems)), params()));
    fine(step_.bind(arena(), params(), blocks_[1].view(), store));
    fine(step_.bind_loss(Cuda::Loss(places_.data() + gradient_norm_places, setting.stream)));
  }
  ~Trainer() { cudaFree(memory_); }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void load(std::uint32_t s) {
    cuda_.key.step = s;
    const auto x = Case::inputs(s), y = Case::targets(s);
    fine(copy_to_device(cuda_, View<const Number>(x.data(), Shape(x.size())), input_.view()));
    fine(copy_to_device(cuda_, View<const Number>(y.data(), Shape(y.size())), targets_.view()));
  }
  View<const Number> input() { return {input_.data(), Case::shape()}; }
  View<const Number> targets() { return {targets_.data(), step_.graph().loss.targets}; }

  /// Norm, clipping and update, all on the device.
  void update(std::uint64_t number) {
    const View<float> state[] = {blocks_[2].view(), blocks_[3].view()};
    gradient_norm(cuda_, blocks_[1].view(), places_.view());
    CudaUpdateTerms terms;
    terms.number = number, terms.rate = rate;
    terms.norm = places_.data(), terms.clip = clip;
    optimizer_kernel<AdamW, Cuda>::update(adamw, cuda_, step_.graph().parameters,
                                          UpdateBlocks<float>{params(), blocks_[1].view(), state},
                                          terms);
    fine(cuda_.take_error());
  }

  Trained train(int count) {
    Trained trained;
    for (int s = 0; s < count; ++s) {
      load(static_cast<std::uint32_t>(s));
      const Result<double> loss = step_.run(cuda_, input(), targets());
      if (!fine(loss.error)) return trained;
      trained.losses.push_back(*loss);
      update(static_cast<std::uint64_t>(s + 1));
    }
    trained.params = list(params());
    return trained;
  }

  /// The same by launches of a graph that was captured of the first step. Another trainer has run such steps
  /// before, so that cuBLASLt's algorithms are chosen.
  Trained replay(int count) {
    Trained trained;
    load(0);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    fine(cudaStreamBeginCapture(cuda_.stream(), cudaStreamCaptureModeThreadLocal));
    fine(step_.submit(cuda_, input(), targets()));
    fine(cudaStreamEndCapture(cuda_.stream(), &graph));
    if (!fine(cudaGraphInstantiate(&executable, graph, 0))) return trained;
    for (int s = 0; s < count; ++s) {
      load(static_cast<std::uint32_t>(s));
      fine(cudaGraphLaunch(executable, cuda_.stream()));
      trained.losses.push_back(step_.loss());
      update(static_cast<std::uint64_t>(s + 1));
    }
    trained.params = list(params());
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    return trained;
  }

  template <class E>
  std::vector<E> list(View<E> view) {
    std::vector<E> to(view.size());
    fine(copy_to_host(cuda_, view, View<E>(to.data(), view.shape())));
    return to;
  }

  /// For plans that send blobs: what is sent ends with a page, and behind the blob nobody writes.
  void write_all() { fine(cudaMemsetAsync(arena_, 0xA5, step_.arena_bytes(), cuda_.stream())); }

  Step<T, Cuda>& step() { return step_; }
  Cuda& cuda() { return cuda_; }
  View<float> params() { return blocks_[0].view(); }
  View<float> gradients() { return blocks_[1].view(); }
  Bytes arena() { return {arena_, Shape(step_.arena_bytes())}; }
  Bytes guarded() { return {arena_, Shape(step_.arena_bytes() + guard)}; }

 private:
  template <class E>
  static void take(DeviceBlock<E>& block, std::size_t elems) {
    auto made = DeviceBlock<E>::make(elems, "a test's tensor");
    if (fine(made.error)) block = static_cast<DeviceBlock<E>&&>(*made);
  }

  Cuda cuda_;
  Step<T, Cuda> step_;
  std::byte *memory_ = nullptr, *arena_ = nullptr;
  DeviceBlock<float> blocks_[4];  ///< parameters, gradients, moments
  DeviceBlock<double> places_;    ///< norm, loss
  DeviceBlock<Number> input_, targets_;
  DeviceBlock<std::int32_t> lengths_;
};

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return !a.empty() && a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
bool same(const Trained& a, const Trained& b) {
  return same(a.losses, b.losses) && same(a.params, b.params);
}

void expect_near(const char* what, const Trained& gpu, const Trained& cpu, double tolerance) {
  expect(gpu.losses.size() == cpu.losses.size() && !cpu.losses.empty(), "%s: %zu steps of %zu",
         what, gpu.losses.size(), cpu.losses.size());
  if (gpu.losses.empty()) return;
  double worst = 0;
  for (std::size_t s = 0; s < gpu.losses.size() && s < cpu.losses.size(); ++s) {
    const double distance = std::fabs(gpu.losses[s] - cpu.losses[s]);
    if (!(distance <= worst) && !std::isnan(worst)) worst = distance;
  }
  expect(worst <= tolerance, "%s: losses differ by up to %g", what, worst);
  std::printf("%s: losses %.5f to %.5f, at most %.2g from the CPU's\n", what, gpu.losses.front(),
              gpu.losses.back(), worst);
}

/// The step changes the arena's last byte and nothing behind it.
template <class Case, class T>
void check_use(const char* what, Trainer<Case, T>& trainer) {
  const std::size_t promised = trainer.step().arena_bytes();
  std::size_t used = 0;
  trainer.load(0);
  for (const int pattern : {0x5A, 0xC3}) {
    fine(cudaMemsetAsync(trainer.guarded().data(), pattern, trainer.guarded().size(),
                         trainer.cuda().stream()));
    fine(trainer.step().submit(trainer.cuda(), trainer.input(), trainer.targets()));
    const std::vector<std::byte> bytes = trainer.list(trainer.guarded());
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (bytes[i] != static_cast<std::byte>(pattern) && i + 1 > used) used = i + 1;
  }
  // A product of cuBLASLt need not touch all of the workspace that it was lent; the stand-in does.
  const bool all = on_executor();
  expect(used <= promised && (!all || used == promised),
         "%s: %zu bytes were promised, and %zu were used", what, promised, used);
}

struct Gpt {
  decltype(Language::network()) net = Language::network();

  template <class T = float>
  Dispatch<T, Cuda> dispatch() const {
    auto made = make_dispatch<T, Cuda>(net);
    made.template add_codec<Int8Outlier>();
    made.template add_codec<Int4Outlier>();
    return made;
  }
  Result<Program> program(const char* plan, Dtype scalar = Dtype::f32,
                          CudaAttention* attention = nullptr) const {
    auto graph =
        make_graph<Cuda>(net, Language::shape(), {.scalar = scalar, .attention = attention});
    if (!graph) return graph.error;
    return make_program(*graph, gpt::named_plan(plan, Language::config(), Language::batch,
                                                Language::time, {.scalar = scalar}));
  }
};

/// Every blob that a step makes has the bytes that the CPU makes of the same activation.
template <class T>
void check_blobs(const char* plan, Trainer<Language, T>& trainer) {
  Step<T, Cuda>& step = trainer.step();
  const Program& program = step.program();
  trainer.load(0);
  auto watched = DeviceBlock<std::byte>::make(step.watch_bytes(), "what codecs saw");
  if (!fine(watched.error)) return;
  fine(step.watch(watched->view()));
  fine(step.begin(trainer.input(), trainer.targets()));
  std::size_t blobs = 0;
  std::vector<CodecStatistics> seen(program.graph.nodes.size());
  for (Position at; at.instruction < step.instruction_count();) {
    const Instruction& inst = program.schedule.instructions[at.instruction];
    const auto buffer = [&](int id) {
      const auto b = static_cast<std::size_t>(id);
      return Bytes(trainer.arena().data() + program.layout.offsets[b],
                   Shape(program.schedule.buffers[b].bytes));
    };
    std::vector<T> x;
    Shape shape;
    if (inst.op == Op::encode) {
      const Shape output = program.graph.node(inst.node).output;
      shape = Shape(output.rows(), output.cols());
      x = trainer.list(View<T>(reinterpret_cast<T*>(buffer(inst.x).data()), shape));
    }
    at = step.execute(trainer.cuda(), at);
    if (inst.op != Op::encode) continue;
    ++blobs;
    const std::vector<std::byte> blob = trainer.list(buffer(inst.blob));
    const char* codec = program.plan[inst.node].codec()->name;
    const auto expected = cpu_encode(codec, trainer.cuda().key, x, shape, blob.size());
    expect(same(blob, expected),
           "plan %s in %s: the blob of activation %d (%s) differs from the CPU's", plan,
           name_of(dtype_of<T>), inst.node, codec);
    seen[static_cast<std::size_t>(inst.node)] = cpu_seen(codec, x, expected, shape);
  }
  expect(blobs > 0, "plan %s encodes nothing", plan);
  fine(step.error());
  step.stop_watching();
  const std::vector<std::byte> copy = trainer.list(watched->view());
  step.read_watched(ConstBytes(copy.data(), Shape(copy.size())));
  for (int k = 0; k < program.graph.node_count(); ++k) {
    const CodecStatistics a = step.statistics(k), &b = seen[static_cast<std::size_t>(k)];
    expect(
        a.elements == b.elements && a.outliers == b.outliers && a.unplaced == b.unplaced &&
            a.nonfinite == b.nonfinite && a.max_magnitude == b.max_magnitude &&
            a.bulk_noise == b.bulk_noise && a.bulk_signal == b.bulk_signal &&
            a.samples == b.samples && a.rows_over == b.rows_over,
        "plan %s in %s: the codec of activation %d saw a noise of %g in %g, and the CPU's %g in %g",
        plan, name_of(dtype_of<T>), k, a.bulk_noise, a.bulk_signal, b.bulk_noise, b.bulk_signal);
  }
}

/// What a plan keeps goes to the host's pinned memory, encoded if the plan encodes it, and comes back with
/// the bits that it has where it stays.
void check_offload(const Setting& setting, const Gpt& gpt, const char* name, const Trained& stays) {
  auto program = gpt.program(name);
  if (!fine(program.error)) return;
  Plan plan = program->plan;
  int encoded = 0;
  for (Policy& policy : plan.policies)
    if (policy.keeps()) {
      encoded += policy.codec() != nullptr ? 1 : 0;
      policy = keep(Form{policy.codec(), Place::store});
    }
  expect((encoded > 0) == (std::strcmp(name, "retain") != 0), "plan %s: %d of its blobs are sent",
         name, encoded);
  auto sends = make_program(program->graph, plan);
  if (!fine(sends.error)) return;
  const std::size_t bytes = sends->schedule.store_bytes;
  expect(bytes > 0 && sends->peak_bytes() < program->peak_bytes(),
         "plan %s: offloading sends %zu bytes, for a peak of %zu instead of %zu", name, bytes,
         sends->peak_bytes(), program->peak_bytes());
  auto store = PinnedHost::make(bytes, setting.stream);
  if (!fine(store.error)) return;
  {
    Trainer<Language> offloads(setting, gpt.dispatch(), *sends, *store);
    if (encoded > 0) offloads.write_all();
    const std::vector<double> losses = offloads.train(3).losses;
    expect(losses.size() == 3 && std::equal(losses.begin(), losses.end(), stays.losses.begin()),
           "plan %s: what is sent has other bits than what stays", name);
    check_use("GPT, offload", offloads);
  }
  // Captured, it takes the store's streams into the graph.
  Trainer<Language> replays(setting, gpt.dispatch(), *sends, *store);
  if (encoded > 0) replays.write_all();
  expect(same(replays.replay(static_cast<int>(stays.losses.size())), stays),
         "plan %s: replayed steps that send have other bits", name);
}

/// With activations in bfloat16 and parameters, gradients and moments in fp32.
void check_bf16(const Setting& setting, const Gpt& gpt, const Trained& cpu) {
  using Narrow = Trainer<Language, bfloat16>;
  const auto program = [&](const char* plan) {
    auto made = gpt.program(plan, Dtype::bf16);
    fine(made.error);
    return static_cast<Program&&>(*made);
  };
  Narrow keeps(setting, gpt.dispatch<bfloat16>(), program("retain"));
  const std::size_t wide = gpt.program("retain")->peak_bytes();
  expect(keeps.step().arena_bytes() < wide * 3 / 4,
         "GPT in bf16: a step takes %zu bytes, and %zu in fp32", keeps.step().arena_bytes(), wide);
  for (const Instruction& inst : keeps.step().program().schedule.instructions)
    expect(inst.op != Op::add && inst.op != Op::add_gradient,
           "GPT in bf16: a residual sum behind node %d is formed apart from a layer", inst.node);
  const Trained retain = keeps.train(steps_of_gpt);
  expect_near("GPT in bf16, retain", retain, cpu, 2e-2);
  check_use("GPT in bf16, retain", keeps);
  Narrow again(setting, gpt.dispatch<bfloat16>(), program("recompute"));
  expect(same(again.train(steps_of_gpt), retain),
         "GPT in bf16: recompute has other bits than retain");
  check_use("GPT in bf16, recompute", again);
  Narrow coded(setting, gpt.dispatch<bfloat16>(), program("mixed"));
  Trained some = cpu;
  some.losses.resize(2);
  expect_near("GPT in bf16, mixed", coded.train(2), some, 2e-2);
  check_blobs("mixed", coded);
  check_use("GPT in bf16, mixed", coded);
}

/// Attention of a library: a graph made with it has room for its workspace, and plans change no bit. Decoded queries,
/// keys and values have forward run again.
void check_lent_attention(const Setting& own, const Gpt& gpt) {
  using Narrow = Trainer<Language, bfloat16>;
  constexpr int count = 2, layers = 2;
  MadeUpAttention lent;
  const Setting setting{own.stream, own.products, &lent};
  const auto program = [&](const char* plan, CudaAttention* attention) {
    auto made = gpt.program(plan, Dtype::bf16, attention);
    fine(made.error);
    return static_cast<Program&&>(*made);
  };
  const auto train = [&](const char* plan, const Setting& with, CudaAttention* made_with,
                         bool exactly = true) {
    Narrow trainer(with, gpt.dispatch<bfloat16>(), program(plan, made_with));
    const Trained trained = trainer.train(count);
    if (exactly) check_use(plan, trainer);
    return trained;
  };
  const Trained expected = train("retain", own, nullptr, false);
  Trained trained = train("retain", setting, &lent);
  expect(same(trained, expected), "lent attention, retain: other bits than our own kernels have");
  // Two steps more look at the use of memory.
  expect(
      lent.asked == 1 && lent.forwards == layers * (count + 2) && lent.backwards == lent.forwards,
      "lent attention was asked %d times, and ran %d and %d times", lent.asked, lent.forwards,
      lent.backwards);
  trained = train("recompute", setting, &lent);
  expect(same(trained, expected), "lent attention: recompute has other bits than retain");
  lent.forwards = lent.backwards = 0;
  trained = train("mixed", setting, &lent);
  expect(lent.forwards > layers * (count + 2) && lent.backwards == layers * (count + 2),
         "lent attention, mixed: it ran %d and %d times", lent.forwards, lent.backwards);
  expect_near("GPT in bf16, lent attention, mixed", trained, train("mixed", own, nullptr, false),
              1e-2);
  expect(same(train("retain", own, &lent, false), expected),
         "a context that lends no attention has other bits");
  lent.forwards = 0;
  expect(
      gpt.program("retain", Dtype::f32, &lent)->peak_bytes() == gpt.program("retain")->peak_bytes(),
      "attention in fp32 has room for a library");

  MadeUpAttention picky;
  picky.refuses = true;
  expect(same(train("retain", {own.stream, own.products, &picky}, &picky, false), expected) &&
             picky.forwards == 0 &&
             std::strcmp(picky.refusal().text(), "heads of 16 channels are odd") == 0,
         "refused sizes do not run by our own kernels: '%s'", picky.refusal().text());
}

void check_gpt(const Setting& setting) {
  const Gpt gpt;
  const auto trainer = [&](const char* plan) {
    auto program = gpt.program(plan);
    fine(program.error);
    return Trainer<Language>(setting, gpt.dispatch(), *program);
  };
  const Trained cpu = cpu_train<Language>(steps_of_gpt);
  Trained retain;
  {
    Trainer<Language> keeps = trainer("retain");
    retain = keeps.train(steps_of_gpt);
    expect_near("GPT, retain", retain, cpu, 1e-4);
    check_use("GPT, retain", keeps);
  }
  check_bf16(setting, gpt, cpu);
  {
    Trainer<Language> again = trainer("recompute");
    expect(same(again.train(steps_of_gpt), retain), "GPT: recompute has other bits than retain");
    check_use("GPT, recompute", again);
  }
  check_offload(setting, gpt, "retain", retain);
  for (const char* plan : {"mixed", "int4"}) {
    Trainer<Language> coded = trainer(plan);
    const Trained trained = coded.train(3);
    expect_near(plan, trained, cpu_train_gpt(plan, 3), 2e-3);
    check_offload(setting, gpt, plan, trained);
    check_blobs(plan, coded);
    check_use(plan, coded);
  }
}

/// A Llama or a BERT with activations in T: losses, the bits of recomputing, and int8.
template <class Case, class T>
void check_open(const Setting& setting, double tolerance) {
  const auto net = Case::network();
  const auto graph = make_graph<Cuda>(net, Case::shape(), {.scalar = dtype_of<T>});
  if (!fine(graph.error)) return;
  Trained retain;
  for (const std::string name : {"retain", "recompute", "int8"}) {
    auto program = make_program(*graph, named_plan(*graph, name));
    if (!fine(program.error)) return;
    auto dispatch = make_dispatch<T, Cuda>(net);
    dispatch.template add_codec<Int8Outlier>();
    Trainer<Case, T> trainer(setting, static_cast<Dispatch<T, Cuda>&&>(dispatch), *program);
    const int count = name == "retain" ? steps_of_gpt : 3;
    const Trained trained = trainer.train(count);
    const std::string what = std::string(Case::name) + " in " + name_of(dtype_of<T>) + ", " + name;
    if (name == "retain") retain = trained;
    if (name == "recompute")
      expect(trained.losses.size() == 3 &&
                 std::equal(trained.losses.begin(), trained.losses.end(), retain.losses.begin()),
             "%s: it has other bits than retain", what.c_str());
    else expect_near(what.c_str(), trained, cpu_train_open<Case>(name, count), tolerance);
    if (name == "int8") check_use(what.c_str(), trainer);
  }
}

template <class Policy>
Trained train_perceptron(const Setting& setting, int count) {
  using Case = Perceptron<Policy>;
  const auto net = Case::network();
  auto program = make_program<Cuda>(net, Case::shape());
  if (!fine(program.error)) return {};
  Trainer<Perceptron<Retain>> trainer(setting, make_dispatch<float, Cuda>(net), *program);
  const Trained trained = trainer.train(count);
  check_use("perceptron", trainer);
  return trained;
}

void check_perceptron(const Setting& setting) {
  const Trained retain = train_perceptron<Retain>(setting, 5);
  expect_near("perceptron with dropout", retain, cpu_train<Perceptron<Retain>>(5), 1e-5);
  expect(same(train_perceptron<Recompute>(setting, 5), retain),
         "perceptron: recompute has other bits than retain");
}

/// A Training draws the parameters, runs and updates as the loop above does.
void check_training(const Setting& setting) {
  using Case = Perceptron<Retain>;
  const auto net = Case::network();
  Cuda cuda(setting.stream, setting.products);
  cuda.key.seed = seed;
  auto made = Training<float, Cuda>::make(net, *make_program<Cuda>(net, Case::shape()), cuda);
  if (!fine(made.error)) return;
  Training<float, Cuda>& training = *made;
  training.optimizer = adamw;
  training.clip = clip;
  const Trained cpu = cpu_train<Case>(3);
  const std::vector<float> first = initial_params<Case>();
  std::vector<float> drawn(first.size());
  fine(copy_to_host(cuda, training.params(), View<float>(drawn.data(), Shape(drawn.size()))));
  expect(!same(drawn, first), "a training draws by the context's seed");
  fine(copy_to_device(cuda, View<const float>(first.data(), Shape(first.size())),
                      training.params()));
  auto input = DeviceBlock<float>::make(Case::inputs(0).size(), "x"),
       to = DeviceBlock<float>::make(Case::targets(0).size(), "y");
  for (std::uint32_t s = 0; s < 3; ++s) {
    const auto x = Case::inputs(s), y = Case::targets(s);
    fine(copy_to_device(cuda, View<const float>(x.data(), Shape(x.size())), input->view()));
    fine(copy_to_device(cuda, View<const float>(y.data(), Shape(y.size())), to->view()));
    const auto outcome = training.step(View<const float>(input->data(), Case::shape()),
                                       View<const float>(to->data(), Shape(45, 5)), rate);
    if (!fine(outcome.error)) return;
    expect(outcome->finite && std::fabs(outcome->loss - cpu.losses[s]) <= 1e-5,
           "a training's step %u has the loss %g, and the CPU's %g", s, outcome->loss,
           cpu.losses[s]);
  }
  expect(training.captured_steps() == 0, "a step with dropout was captured");
  const Error why = training.capture_failure();
  expect(std::strstr(why.text(), "draws random numbers") != nullptr,
         "a step with dropout is not captured, it says because '%s'", why.text());
}

/// Targets that are ignored, in a Training: micro-batches weigh by their counted targets, a batch without one changes
/// nothing, and a target that is no token is an error, as on the host.
void check_targets(const Setting& setting) {
  Cuda cuda(setting.stream, setting.products);
  cuda.key.seed = seed;
  const auto net = Language::network();
  std::vector<std::int32_t> x = Language::inputs(1), y = Language::targets(1);
  constexpr std::size_t time = Language::time;
  for (std::size_t i = 0; i < y.size(); ++i)
    if (i < 50 || i == 90) y[i] = ignored_target;
  auto tokens = DeviceBlock<std::int32_t>::make(x.size(), "x"),
       targets = DeviceBlock<std::int32_t>::make(y.size(), "y");
  if (!fine(tokens.error) || !fine(targets.error)) return;
  fine(copy_to_device(cuda, View<const std::int32_t>(x.data(), Shape(x.size())), tokens->view()));
  const auto load = [&](const std::vector<std::int32_t>& from) {
    fine(copy_to_device(cuda, View<const std::int32_t>(from.data(), Shape(from.size())),
                        targets->view()));
  };
  load(y);
  TrainingOutcome outcomes[2];
  for (const std::size_t pieces : {1, 2}) {
    const Shape shape(Language::batch / pieces, time);
    auto made = Training<float, Cuda>::make(net, *make_program<Cuda>(net, shape), cuda);
    if (!fine(made.error)) return;
    for (std::size_t b = 0; b < pieces; ++b)
      fine(made->accumulate(View<const std::int32_t>(tokens->data() + b * time, shape),
                            View<const std::int32_t>(targets->data() + b * time, shape))
               .error);
    expect(made->targets() == TargetCount{77, 128}, "%zu of 77 targets counted",
           made->targets().counted);
    const auto outcome = made->update(rate);
    if (!fine(outcome.error)) return;
    outcomes[pieces - 1] = *outcome;
    if (pieces == 2) break;
    const View<const std::int32_t> in(tokens->data(), shape), to(targets->data(), shape);
    load(std::vector<std::int32_t>(y.size(), ignored_target));
    const auto none = made->step(in, to, rate);
    expect(none && none->none_counted && none->loss == 0 && made->updates() == 1,
           "a batch without a counted target: %s", none.error.text());
    std::vector<std::int32_t> wrong = y;
    wrong[100] = 61;
    load(wrong);
    const Error why = made->step(in, to, rate).error;
    expect(std::strstr(why.text(), "target 61 at position 36 of row 1") != nullptr,
           "the error of a target that is no token is '%s'", why.text());
    load(y);
    expect(made->step(in, to, rate)->loss > 0 && made->updates() == 2,
           "a training does not go on behind a wrong target");
  }
  expect(std::fabs(outcomes[0].loss - outcomes[1].loss) < 1e-6 &&
             std::fabs(outcomes[0].grad_norm - outcomes[1].grad_norm) < 1e-5,
         "one batch has loss and norm %g %g, and two halves %g %g", outcomes[0].loss,
         outcomes[0].grad_norm, outcomes[1].loss, outcomes[1].grad_norm);
}

/// Steps that nobody waits for, and one that is replayed as a graph, have the same bits.
template <class T>
void check_queued(const Setting& setting) {
  using Queued = Trainer<Language, T>;
  const Gpt gpt;
  auto program = gpt.program("mixed", dtype_of<T>);
  if (!fine(program.error)) return;
  Queued waits(setting, gpt.dispatch<T>(), *program);
  const Trained waited = waits.train(3);
  Queued queues(setting, gpt.dispatch<T>(), *program);
  for (std::uint32_t s = 0; s < 3; ++s) {
    queues.load(s);
    fine(queues.step().submit(queues.cuda(), queues.input(), queues.targets()));
    queues.update(s + 1);
  }
  expect(same(queues.list(queues.params()), waited.params),
         "steps in %s that were only queued have other bits", name_of(dtype_of<T>));

  Queued replays(setting, gpt.dispatch<T>(), *program);
  expect(same(replays.replay(3), waited), "replayed steps in %s have other bits",
         name_of(dtype_of<T>));
}

/// A step that writes gradients, and one behind it that adds, find NaN, and leave the bits that they leave in zeros.
/// Both kinds are captured. One trainer's layers hand on no sums of columns, and the other's `handed_on`.
template <class Case, class T>
void check_written(const Setting& setting, const char* what, int handed_on) {
  const auto net = Case::network();
  auto graph = make_graph<Cuda>(net, Case::shape(), {.scalar = dtype_of<T>});
  if (!fine(graph.error)) return;
  auto program = make_program(*graph, retain_all(*graph));
  if (!fine(program.error)) return;
  auto apart = make_dispatch<T, Cuda>(net);
  for (const Instruction& inst : program->schedule.instructions)
    if (const Instruction* const taker = detail::taker_of_dx(
            *graph, program->schedule,
            static_cast<std::size_t>(&inst - program->schedule.instructions.data()))) {
      const auto layer = [&](const Instruction& of) -> const auto& {
        return apart.layers[static_cast<std::size_t>(graph->node(of.node).layer)];
      };
      handed_on -= layer(inst).beside.sums_dx && layer(*taker).beside.dy_sums >= 0 ? 1 : 0;
    }
  expect(handed_on == 0, "%s: %d more sums of columns are to be handed on", what, handed_on);
  for (auto& layer : apart.layers) layer.beside.sums_dx = false;
  Trainer<Case, T> adds(setting, static_cast<Dispatch<T, Cuda>&&>(apart), *program),
      writes(setting, make_dispatch<T, Cuda>(net), *program);
  adds.load(0);
  writes.load(0);
  const View<float> gradients = writes.gradients();
  std::vector<float> nothing(gradients.size());
  for (const Parameter& parameter : program->graph.parameters)
    if (!parameter.frozen)
      std::fill_n(nothing.begin() + static_cast<std::ptrdiff_t>(parameter.offset),
                  parameter.shape.elems(), NAN);
  CapturedStep captured;
  for (int update = 0; update < 2; ++update) {
    adds.cuda().fill(adds.gradients(), 0.0F);
    fine(copy_to_device(writes.cuda(), View<const float>(nothing.data(), gradients.shape()),
                        gradients));
    for (const bool first : {true, false}) {
      writes.step().write_gradients(first);
      fine(adds.step().run(adds.cuda(), adds.input(), adds.targets()).error);
      fine(captured.run(writes.step(), writes.cuda(), writes.input(), writes.targets()).error);
      expect(same(writes.list(gradients), adds.list(adds.gradients())),
             "%s in %s: gradients that are %s have other bits", what, name_of(dtype_of<T>),
             first ? "written" : "added to written ones");
    }
  }
  expect(captured.replays() == 2, "%s: %d of two steps were launches of a graph", what,
         static_cast<int>(captured.replays()));
}

/// A graph is launched while what it holds stands, and no longer.
void check_captured(const Setting& setting) {
  const Gpt gpt;
  auto program = gpt.program("retain");
  if (!fine(program.error)) return;
  Trainer<Language> trainer(setting, gpt.dispatch(), *program);
  trainer.load(0);
  CapturedStep captured;
  const auto run = [&] {
    fine(captured.run(trainer.step(), trainer.cuda(), trainer.input(), trainer.targets()).error);
  };
  for (int i = 0; i < 3; ++i) run();
  fine(captured.failure());
  // A driver may have room for a graph already.
  expect(captured.graph_bytes() > 0 || !on_executor(), "a graph takes no memory");
  expect(captured.replays() == 2, "%zu of three steps were launches of a graph",
         static_cast<std::size_t>(captured.replays()));
  auto other = DeviceBlock<float>::make(trainer.step().graph().parameter_elems, "gradients");
  if (!fine(other.error)) return;
  fine(trainer.step().bind(trainer.arena(), trainer.params(), other->view()));
  run();
  const std::vector<float> gradients = trainer.list(other->view());
  expect(captured.replays() == 2 &&
             std::any_of(gradients.begin(), gradients.end(), [](float g) { return g != 0; }),
         "a graph was launched that holds other gradients than those that are bound");
  run();
  expect(captured.replays() == 3, "a step with other gradients was not captured");
  auto lengths = DeviceBlock<std::int32_t>::make(Language::batch, "lengths");
  if (!fine(lengths.error)) return;
  trainer.cuda().lengths = {lengths->data(), Shape(Language::batch)};
  run();
  expect(captured.replays() == 3, "a graph was launched that holds other lengths of sequences");
}

}  // namespace

int main(int count, char** arguments) {
  const std::string part = count > 1 ? arguments[1] : "all";
  if (part != "all" && part != "few")
    return std::printf("FAILED: there is no part '%s' but all and few\n", part.c_str()), 1;
  if (part == "few") steps_of_gpt = 3;
  return on_device([](cudaStream_t stream) {
    auto products = CudaProducts::make();
    if (!fine(products.error)) return 1;
    const Setting setting{stream, &*products};
    check_perceptron(setting);
    // Somebody else's call fails, and nobody has asked yet: launches leave the error alone.
    cudaSetDevice(99);
    check_gpt(setting);
    check_open<Decoder, float>(setting, 1e-4);
    check_open<Decoder, bfloat16>(setting, 1e-3);
    check_open<Encoder, float>(setting, 1e-4);
    check_open<Encoder, bfloat16>(setting, 1e-3);
    expect(cudaGetLastError() == cudaErrorInvalidDevice, "an error of others is cleared");
    check_lent_attention(setting, Gpt{});
    check_queued<float>(setting);
    check_queued<bfloat16>(setting);
    check_captured(setting);
    check_written<Language, float>(setting, "GPT", 6);
    check_written<Language, bfloat16>(setting, "GPT", 6);
    check_written<Untied, float>(setting, "all kinds of gradients", 0);
    check_written<Untied, bfloat16>(setting, "all kinds of gradients", 0);
    check_training(setting);
    check_targets(setting);
    const EvolvingChecks evolving{
        {setting.stream, setting.products,
         [](bool holds, const char* what) { expect(holds, "a plan that evolves: %s", what); }}};
    evolving.all();
    CopiesChecks{{setting.stream, setting.products,
                  [](bool holds, const char* what) { expect(holds, "%s", what); }}}
        .all();
    ModelChecks{{setting.stream, setting.products,
                 [](bool holds, const char* what) { expect(holds, "%s", what); }}}
        .all();
    TileChecks{{setting.stream, setting.products,
                [](bool holds, const char* what) { expect(holds, "%s", what); }}}
        .all();
    if (failures != 0) return 1;
    std::printf("training steps on the device agree with the CPU's\n");
    return 0;
  });
}
