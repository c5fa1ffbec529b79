// SPDX-License-Identifier: MIT
/// A trainer of kernels of its own with a stash in device memory: plans that lose nothing against the
/// trainer without one, bit for bit; what codecs give back against the CPU's; bytes used against bytes
/// promised; a step captured as a graph, which nothing in it may wait for; costs and gradient errors;
/// what is refused. Skipped (77) without a device. With a word, what is wrong with memory of another
/// device.
#define ADACC_ASSERT(holds, text) static_cast<void>(0)  // mistakes are what is looked at

#include <adacc/codec/bf16.cuh>
#include <adacc/codec/bit_mask.cuh>
#include <adacc/core/device_block.cuh>
#include <adacc/stash/measure.cuh>
#include <adacc/stash/probe.hpp>
#include <adacc/stash/stash.hpp>
#include <adacc/store/memory_store.hpp>
#include <adacc/store/pinned_host.cuh>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "docs_stash_calls.cuh"
#include "on_device.hpp"
#include "stash_checks.cuh"
#include "stash_evolving.cuh"
#include "stash_trainer.cuh"

namespace {

using namespace stash_run;
using DeviceStash = Stash<float, Cuda>;

struct Trained {
  std::vector<float> params;
  std::vector<double> losses;
  friend bool operator==(const Trained& a, const Trained& b) {
    return a.params.size() == b.params.size() && !a.params.empty() && a.losses == b.losses &&
           std::memcmp(a.params.data(), b.params.data(), a.params.size() * sizeof(float)) == 0;
  }
};
Trained trained(const Trainer& trainer, std::size_t steps) {
  fine(cudaStreamSynchronize(trainer.stream));
  Trained made{trainer.w.list(), {}};
  double losses[8] = {};
  fine(cudaMemcpy(losses, trainer.loss.data, steps * sizeof(double), cudaMemcpyDeviceToHost));
  made.losses.assign(losses, losses + steps);
  return made;
}

/// Keeps everything as it is, in memory of its own: the trainer without a stash.
class NoStash {
 public:
  explicit NoStash(const Trainer& trainer) {
    const Graph graph = *trainer.model.graph();
    for (const Node& node : graph.nodes)
      kept_.push_back(std::make_unique<Device<std::byte>>(align_up(node.output_bytes) + 64));
    shape_ = Shape(rows, channels);
  }
  Error begin(Cuda& cuda) { return cuda_ = &cuda, Error(); }
  View<float> place(int, View<float> own) const { return own; }
  Bytes place_bytes(int, Bytes own) const { return own; }
  Bytes workspace(int) const { return {}; }
  Error put(int id, View<const float> x) {
    cuda_->copy("keep", x, View<float>(at(id), x.shape()));
    return {};
  }
  Error put_bytes(int id, ConstBytes x) {
    cuda_->copy("keep", x, Bytes(kept_[static_cast<std::size_t>(id)]->data, x.shape()));
    return {};
  }
  Error enter(int) { return {}; }
  Error leave(int) { return {}; }
  Result<View<const float>> get(int id) const { return View<const float>(at(id), shape_); }
  Result<ConstBytes> get_bytes(int id) const {
    return ConstBytes(kept_[static_cast<std::size_t>(id)]->data, Shape(elems));
  }
  Result<Bytes> backward_workspace() { return Bytes(own_.data, Shape(own_.size)); }
  Result<View<float>> carried(int) { return View<float>(own_gradient_.data, shape_); }

 private:
  float* at(int id) const {
    return reinterpret_cast<float*>(kept_[static_cast<std::size_t>(id)]->data);
  }
  std::vector<std::unique_ptr<Device<std::byte>>> kept_;
  Device<std::byte> own_{2 * align_up(elems * sizeof(float))};
  Device<float> own_gradient_{elems};
  Shape shape_;
  Cuda* cuda_ = nullptr;
};

constexpr std::size_t step_count = 4;

Trained train_without(cudaStream_t stream) {
  Trainer trainer(stream);
  trainer.register_all<BitMask, Bf16>(false);
  if (!fine(trainer.model.graph().error)) return {};
  NoStash none(trainer);
  for (std::size_t s = 0; s < step_count; ++s) fine(trainer.step(none, false));
  return trained(trainer, step_count);
}

/// A plan by name; of `mixed` every policy that loses nothing.
Plan plan_of(const std::string& name, const Trainer& trainer, const Graph& graph) {
  Plan plan = retain_all(graph);
  const auto set = [&](int id, const Policy& policy) {
    plan.policies[static_cast<std::size_t>(id)] = policy;
  };
  const bool mixed = name == "mixed";
  for (int l = 0; l < layers; ++l) {
    const Trainer::Ids& id = trainer.ids[l];
    const bool even = !Trainer::smooth(l);
    if (name == "recompute") {
      if (!even) set(id.h, recompute());
      for (const int value : {id.n, id.rstd, id.z, id.keep}) set(value, recompute());
    }
    if (name == "masks" && even) set(id.z, compress(&codec_info<BitMask>));
    if (name == "offload")
      for (const int value : {id.h, id.n, id.z}) set(value, offload());
    if (mixed) {
      set(id.z, even ? compress(&codec_info<BitMask>) : offload());
      set(id.keep, recompute()), set(id.n, even ? retain() : recompute());
      set(id.rstd, even ? recompute() : retain());
    }
    if (name == "graph") {
      if (even) set(id.z, compress(&codec_info<BitMask>));
      set(id.keep, recompute()), set(id.n, recompute());
    }
    if (name == "codecs") {
      set(id.n, compress(&codec_info<Bf16>));
      if (even) set(id.z, compress(&codec_info<BitMask>));
      else set(id.z, keep(Form{&codec_info<Bf16>, Place::store}));
      set(id.rstd, recompute());
    }
  }
  return plan;
}

/// A trainer with a stash under a plan, bound to an arena of exactly as much as was promised.
struct Stashed {
  Stashed(cudaStream_t stream, const std::string& name, bool holds, int pattern = 0x5A)
      : trainer(stream) {
    trainer.register_all<BitMask, Bf16>(holds);
    const Result<Graph> graph = trainer.model.graph();
    if (!fine(graph.error)) return;
    auto made = DeviceStash::make(trainer.model, plan_of(name, trainer, *graph));
    if (!fine(made.error)) return;
    stash = static_cast<DeviceStash&&>(*made);
    arena = std::make_unique<GuardedArena>(stream, stash.arena_bytes(), pattern);
    if (stash.store_bytes() == 0) {
      fine(stash.bind(arena->bytes()));
      return;
    }
    auto host = PinnedHost::make(stash.store_bytes(), stream);
    if (!fine(host.error)) return;
    store = static_cast<PinnedHost&&>(*host);
    fine(stash.bind(arena->bytes(), store));
  }
  Trainer trainer;
  PinnedHost store;
  std::unique_ptr<GuardedArena> arena;
  DeviceStash stash;
};

/// Plans that lose nothing have the bits of the trainer without a stash, in the bytes that were promised.
void check_lossless(cudaStream_t stream, const Trained& without) {
  for (const bool holds : {false, true}) {
    std::size_t retains = 0;
    for (const char* name : {"retain", "recompute", "masks", "offload", "mixed"})
      for (const bool poisons : {false, true}) {
        const bool placed = poisons == holds;
        const std::string what = std::string(name) + (holds ? ", held" : "") +
                                 (poisons ? ", with NaN behind it" : "") +
                                 (placed ? ", placed" : "");
        Stashed run(stream, name, holds, poisons ? 0x5A : 0xC3);
        run.stash.poison_dead(poisons);
        for (std::size_t s = 0; s < step_count; ++s) fine(run.trainer.step(run.stash, placed));
        expect(trained(run.trainer, step_count) == without,
               what + ": other bits than without a stash");
        const auto promised = static_cast<std::ptrdiff_t>(run.stash.arena_bytes());
        const std::ptrdiff_t used = run.arena->used();
        // What is last may leave off before the boundary at which others would begin.
        const std::size_t boundary = run.stash.store_bytes() != 0 ? transfer_alignment : alignment;
        expect(used <= promised && used > promised - static_cast<std::ptrdiff_t>(boundary),
               what + ": " + std::to_string(promised) + " bytes were promised, and " +
                   std::to_string(used) + " were used");
        expect(run.arena->is_dead() == poisons, what + ": what is left in the arena");
        if (std::strcmp(name, "retain") == 0) retains = run.stash.arena_bytes();
        else expect(run.stash.arena_bytes() < retains, what + ": takes as much as retaining all");
      }
  }
}

/// Between the trainer and its stash: copies what is put and compares what is given with what the CPU makes of it.
class Watched {
 public:
  Watched(DeviceStash& stash, Cuda& cuda)
      : stash_(stash), cuda_(cuda), put_(stash.graph().nodes.size()) {}

  Error begin(Cuda& cuda) { return stash_.begin(cuda); }
  View<float> place(int id, View<float> own) const { return stash_.place(id, own); }
  Bytes place_bytes(int id, Bytes own) const { return stash_.place_bytes(id, own); }
  Bytes workspace(int id) const { return stash_.workspace(id); }
  Error put(int id, View<const float> x) {
    put_[static_cast<std::size_t>(id)] = list(x);
    return stash_.put(id, x);
  }
  Error put_bytes(int id, ConstBytes x) { return stash_.put_bytes(id, x); }
  Error enter(int stage) { return stash_.enter(stage); }
  Error leave(int stage) { return stash_.leave(stage); }
  Result<Bytes> backward_workspace() { return stash_.backward_workspace(); }
  Result<View<float>> carried(int id) { return stash_.carried(id); }
  Result<ConstBytes> get_bytes(int id) { return stash_.get_bytes(id); }
  Result<View<const float>> get(int id) {
    const auto got = stash_.get(id);
    if (!got) return got;
    std::vector<float> expected = put_[static_cast<std::size_t>(id)];
    const Policy& policy = stash_.plan()[id];
    if (policy.codec() != nullptr) {
      Cpu cpu;
      const Shape shape(rows, channels);
      alignas(64) static std::byte blob[64 * KiB];
      alignas(64) static float back[elems];
      const View<const float> x(expected.data(), shape);
      const bool mask = policy.codec() == &codec_info<BitMask>;
      const Bytes of_blob(blob, Shape(policy.codec()->encoded_bytes(rows, channels, Dtype::f32)));
      fine(mask ? BitMask::encode<float>(cpu, x, of_blob) : Bf16::encode<float>(cpu, x, of_blob));
      const View<float> to(back, shape);
      fine(mask ? BitMask::decode<float>(cpu, of_blob, to) : Bf16::decode<float>(cpu, of_blob, to));
      expect(mask || std::memcmp(back, expected.data(), sizeof back) != 0, "a codec loses nothing");
      expected.assign(back, back + elems);
      ++compared;
    }
    if (!policy.recomputes()) {
      const std::vector<float> given = list(*got);
      expect(given.size() == expected.size() &&
                 std::memcmp(given.data(), expected.data(), given.size() * sizeof(float)) == 0,
             "activation " + std::to_string(id) + " comes back with other bits than the CPU's");
    }
    return got;
  }
  int compared = 0;

 private:
  std::vector<float> list(View<const float> x) {
    std::vector<float> to(x.size());
    fine(copy_to_host(cuda_, x, View<float>(to.data(), x.shape())));
    return to;
  }
  DeviceStash& stash_;
  Cuda& cuda_;
  std::vector<std::vector<float>> put_;
};

void check_codecs(cudaStream_t stream, const Trained& without) {
  for (const bool holds : {false, true}) {
    Stashed run(stream, "codecs", holds);
    Watched watched(run.stash, run.trainer.cuda);
    fine(run.trainer.step(watched, holds));
    expect(watched.compared == 2 * layers, "a plan with codecs encodes something else");
    for (std::size_t s = 1; s < step_count; ++s) fine(run.trainer.step(run.stash, holds));
    const Trained coded = trained(run.trainer, step_count);
    double worst = 0;
    for (std::size_t s = 0; s < step_count; ++s)
      worst = std::fmax(worst, std::fabs(coded.losses[s] / without.losses[s] - 1));
    expect(worst > 0 && worst < 1e-4, "with codecs, losses differ by " + std::to_string(worst));
    const std::ptrdiff_t used = run.arena->used();
    expect(used >= 0 && used <= static_cast<std::ptrdiff_t>(run.stash.arena_bytes()),
           "with codecs, bytes beside the arena were written");
  }
}

/// A captured step: what waits, allocates or reads the host's memory cannot be captured. Replayed, it has the same bits.
void check_captured(cudaStream_t stream, const Trained& without, bool placed) {
  Stashed run(stream, "graph", placed);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  fine(cudaStreamSynchronize(stream));
  fine(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  fine(run.trainer.step(run.stash, placed));
  fine(cudaStreamEndCapture(stream, &graph));
  if (!fine(cudaGraphInstantiate(&executable, graph, 0))) return;
  for (std::size_t s = 0; s < step_count; ++s) fine(cudaGraphLaunch(executable, stream));
  expect(trained(run.trainer, 1).params == without.params, "replayed steps have other bits");
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

/// Costs by the clock of the stream, and gradient errors of copies on the host.
void check_costs(cudaStream_t stream) {
  Trainer trainer(stream);
  trainer.register_all<BitMask, Bf16>(false);
  const Graph graph = *trainer.model.graph();
  StreamClock clock(stream);
  // Nobody has written to the scratch, so that the executor sees who reads what is no sample.
  const Device<std::byte> scratch(stash_measure_bytes(graph));
  const Bytes lent(scratch.data, Shape(scratch.size));
  const StashMeasurement how{.clock = clock, .repeats = 3};
  auto profile = measure_stash(trainer.model, trainer.cuda, lent, how);
  if (!fine(profile.error)) return;
  for (int l = 0; l < layers; ++l)
    for (const int id : {trainer.ids[l].n, trainer.ids[l].z, trainer.ids[l].keep})
      expect(profile->nodes[static_cast<std::size_t>(id)].forward > 1e-9,
             "a callable that was measured takes no time");
  for (std::size_t c = 0; c < profile->codecs.size(); ++c)
    for (int id = 0; id < trainer.model.activation_count(); ++id) {
      if (!graph.candidates_of(graph.node(id)).contains(profile->codecs[c])) continue;
      const CodecCost& cost = profile->codec_cost(id, static_cast<int>(c));
      expect(cost.encode > 1e-9 && cost.decode > 1e-9, "a codec that was measured takes no time");
    }

  const std::size_t bytes = stash_probing_bytes(trainer.model);
  GuardedArena arena(stream, bytes, 0x5A);
  std::vector<float> gradients(layers * weights);
  bool on_host = true;
  const auto step = [&](DeviceStash& stash) -> Result<Array<View<const float>>> {
    if (const Error why = trainer.step(stash, false, false)) return why;
    gradients = trainer.dw.list();
    Array<View<const float>> all;
    all.push_back({on_host ? gradients.data() : trainer.dw.data, Shape(layers * weights)});
    return all;
  };
  GradientErrors errors;
  fine(probe_stash(trainer.model, trainer.cuda, arena.bytes(), step, errors, *profile));
  expect(!errors.entries().empty(), "nothing was probed");
  for (std::size_t c = 0; c < profile->codecs.size(); ++c) {
    if (profile->codecs[c] != &codec_info<Bf16>) continue;
    const double error = profile->codec_cost(trainer.ids[0].n, static_cast<int>(c)).error;
    expect(error > 1e-9 && error < 1e-4, "bf16 has a gradient error of " + std::to_string(error));
  }
  expect(arena.used() > 0 && arena.used() <= static_cast<std::ptrdiff_t>(bytes),
         "probing writes beside its arena");
  on_host = false;
  expect_words(probe_stash(trainer.model, trainer.cuda, arena.bytes(), step, errors, *profile),
               "gradients of a probing step lie in device memory, and host memory is wanted");
  alignas(64) static std::byte host[64 * KiB];
  expect_words(
      measure_stash(trainer.model, trainer.cuda, Bytes(host, Shape(sizeof host)), how).error,
      "bytes of the scratch lie in host memory, and device memory is wanted");
  expect_words(
      measure_stash(trainer.model, trainer.cuda, Bytes(scratch.data, Shape(64)), how).error,
      "of scratch, and got 64 bytes");
}

/// Activations in bfloat16: kept as they are and by their signs, and timed.
void check_bf16(cudaStream_t stream) {
  Cuda cuda(stream);
  StashModel<bfloat16, Cuda> model;
  const Shape shape(rows, channels);
  const int x = model.add("x", shape, {0}), sign = model.add("sign", shape, {0});
  model.allow<BitMask>(sign, 0);
  Plan plan = retain_all(*model.graph());
  plan.policies[static_cast<std::size_t>(sign)] = compress(&codec_info<BitMask>);
  std::vector<bfloat16> values, signs;
  for (const float number : numbers(elems, 6, 1)) {
    values.push_back(to_bfloat16(number));
    signs.push_back(to_bfloat16(number > 0 ? 1.F : 0.F));
  }
  const Device<bfloat16> from(values), odd(values, 1);
  auto stash = Stash<bfloat16, Cuda>::make(model, plan);
  if (!fine(stash.error)) return;
  GuardedArena arena(stream, stash->arena_bytes() + stash_measure_bytes(*model.graph()), 0x5A);
  StreamClock clock(stream);
  fine(measure_stash(model, cuda, arena.bytes(), {.clock = clock, .repeats = 1}).error);
  fine(stash->bind(arena.bytes()));
  fine(stash->begin(cuda));
  fine(stash->put(x, {odd.data, shape}));
  expect_words(stash->put(sign, {odd.data, shape}), "must start at a multiple of 64 bytes");
  fine(stash->put(sign, {from.data, shape}));
  fine(stash->enter(0));
  for (const int id : {x, sign}) {
    const auto got = stash->get(id);
    std::vector<bfloat16> given(elems);
    if (!fine(got.error)) return;
    fine(copy_to_host(cuda, *got, View<bfloat16>(given.data(), shape)));
    expect(given == (id == x ? values : signs), "bf16: activations come back with other bits");
  }
}

/// What is refused, in words; whatever it was, the stash goes on with what it had.
void check_refusals(cudaStream_t stream, const Trained& without) {
  alignas(transfer_alignment) static std::byte host[64 * KiB];
  Stashed run(stream, "mixed", false);
  DeviceStash& stash = run.stash;
  const Bytes all = run.arena->bytes();
  const std::size_t bytes = stash.arena_bytes();
  const StoreRef store(run.store);
  char words[200];
  std::snprintf(words, sizeof words, "(%zu bytes), and got ", bytes);
  expect_words(stash.bind(Bytes(all.data(), Shape(bytes - 64)), store), words);
  std::snprintf(words, sizeof words, "and got %zu.%zu KiB (%zu bytes)", (bytes - 64) / 1024,
                (bytes - 64) % 1024 * 10 / 1024, bytes - 64);
  expect_words(stash.bind(Bytes(all.data(), Shape(bytes - 64)), store), words);
  expect_words(stash.bind(Bytes(host, Shape(sizeof host)), store),
               "the bytes of the arena lie in host memory, and device memory is wanted");
  expect_words(stash.bind(Bytes(all.data() + 4, all.shape()), store), "must start 64-byte aligned");
  const Device<std::byte> small(bytes / 2);
  expect_words(stash.bind(Bytes(small.data, all.shape()), store),
               "the allocation that they lie in ends");
  expect_words(stash.bind(all), "bind() must lend one with room for");
  MemoryStore on_host(Bytes(host, Shape(sizeof host)));
  expect_words(stash.bind(all, on_host),
               "this one reads the host's memory alone, while the arena is");
  auto little = PinnedHost::make(64, stream);
  expect_words(stash.bind(all, *little), "which has room for 64 bytes");

  fine(stash.begin(run.trainer.cuda));
  const View<const float> elsewhere(reinterpret_cast<const float*>(host), Shape(rows, channels));
  expect_words(stash.put(0, elsewhere), "values lie in host memory, and device memory is wanted");
  expect_words(
      stash.put(0, {reinterpret_cast<const float*>(all.data() + 256), Shape(rows, channels)}),
      "overlap by");
  // A launch of the trainer's that failed, which nobody asked about.
  nothing<<<1, 4096, 0, stream>>>();
  const View<const float> input(run.trainer.input.data, Shape(rows, channels));
  expect_words(stash.put(0, input),
               "what was queued before it failed: CUDA: invalid ");
  expect_words(stash.put(0, input),
               "what was queued before it failed: CUDA: invalid ");
  for (std::size_t s = 0; s < step_count; ++s) fine(run.trainer.step(stash, false));
  expect(trained(run.trainer, step_count) == without, "what was refused leaves something behind");

  // A launch of a callable, and one between forward and backward.
  const Fails fails{stream};
  StashModel<float, Cuda> model;
  model.recompute(model.add("y", Shape(16), {0}), {}, fails);
  Plan plan = retain_all(*model.graph());
  plan.policies[0] = recompute();
  auto again = DeviceStash::make(model, plan);
  GuardedArena arena(stream, again->arena_bytes(), 0x5A);
  fine(again->bind(arena.bytes()));
  for (const bool before : {false, true}) {
    fine(again->begin(run.trainer.cuda));
    fine(again->put(0, {run.trainer.input.data, Shape(16)}));
    if (before) nothing<<<1, 4096, 0, stream>>>();
    expect_words(again->enter(0),
                 before ? "stage 0: what was queued before it failed: CUDA: invalid "
                        : "stage 0: what brings back all it reads failed: CUDA: invalid ");
  }
}

/// The trainer of docs/stash_calls.md under its plan has the derivatives of its formula.
void check_documented(cudaStream_t stream) {
  const Device<float> x(numbers(N, 4, 2)), y(N), dx(std::vector<float>(N, 1));
  Chain chain{stream, x.data, y.data, dx.data};
  chain.register_all();
  const Graph graph = *chain.model.graph();
  GuardedArena arena(stream, stash_measure_bytes(graph) + peak_bytes(graph, retain_all(graph)),
                     0x5A);
  auto host = PinnedHost::make(64 * KiB, stream);
  auto made = chain.make_stash(arena.bytes(), *host);
  if (!fine(made.error) || !fine(chain.step(*made))) return;
  fine(cudaStreamSynchronize(stream));
  const std::vector<float> slopes = dx.list(), from = numbers(N, 4, 2);
  expect(made->store_bytes() > 0 && made->plan()[3].recomputes(), "the plan of docs/stash_calls.md");
  for (std::size_t i = 0; i < N; ++i) {
    float at[L + 1] = {from[i]}, slope = 1;
    for (int l = 0; l < L; ++l) at[l + 1] = at[l] / (1 + std::fabs(at[l]));
    for (int l = L - 1; l >= 0; --l) slope /= (1 + std::fabs(at[l])) * (1 + std::fabs(at[l]));
    if (!(std::fabs(slopes[i] / slope - 1) < 1e-5F))
      return expect(false, "docs/stash_calls.md: gradients");
  }
}

/// On a machine with two devices: an arena of the one that is not the current one.
int say_other_device() {
  if (cudaSetDevice(1) != cudaSuccess) return std::printf("there is one device\n"), 77;
  Device<std::byte> elsewhere(64 * KiB);
  cudaSetDevice(0);
  StashModel<float, Cuda> model;
  model.add("x", Shape(4, 4), {0});
  auto stash = DeviceStash::make(model, retain_all(*model.graph()));
  const Error why = stash->bind(Bytes(elsewhere.data, Shape(elsewhere.size)));
  return std::printf("%s\n", why.text()), why ? 0 : 1;
}

}  // namespace

int main(int count, char**) {
  if (count > 1) return say_other_device();
  return on_device([](cudaStream_t stream) {
    const Trained without = train_without(stream);
    expect(without.losses.front() > 1.2 * without.losses.back(), "the trainer does not train");
    check_lossless(stream, without);
    check_codecs(stream, without);
    for (const bool placed : {false, true}) check_captured(stream, without, placed);
    check_costs(stream);
    check_refusals(stream, without);
    check_documented(stream);
    check_bf16(stream);
    const auto same = [&](const Trainer& made) { return trained(made, step_count) == without; };
    for (const bool holds : {false, true}) check_budgets(stream, holds, holds, step_count, same);
    check_watched_codecs(stream);
    if (failures != 0) return 1;
    std::printf("a stash in device memory has the bits of the trainer without one\n");
    return 0;
  });
}
