// SPDX-License-Identifier: MIT
/// The device's kernels that wait for memory, beside a copy: layer_cuda_bench [--rounds N] [name].
///
/// At the shapes of GPT-2 124M (8 sequences of 1024 tokens, 768 channels, a vocabulary of 50257; 124 million
/// parameters), with activations in fp32 and in bf16: what each call takes, the bytes that it must move (every
/// tensor once, whatever the kernels do), and its rate over that of a device-to-device copy in the same run.
/// Calls are captured in graphs, so that the host's time is not counted, and follow one another on tensors
/// that together are larger than the cache. Medians of rounds, each of which measures everything once. With a
/// name, only what begins with it.
#include <adacc/train.cuh>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <adacc/models/gpt.hpp>

namespace {

using namespace adacc;

constexpr std::size_t batch = 8, time = 1024, rows = batch * time, channels = 768, vocab = 50257;
constexpr std::size_t pool_bytes = std::size_t{5} * GiB / 2, apart = 256 * MiB;

[[noreturn]] void stop(const char* what, const char* why) {
  std::fprintf(stderr, "layer_cuda_bench: %s: %s\n", what, why);
  std::exit(1);
}
void ok(cudaError_t status) {
  if (status != cudaSuccess) stop("CUDA", cudaGetErrorString(status));
}
void ok(const Error& error) {
  if (error) stop("adacc", error.text());
}

/// In [-1, 1).
struct NumbersBody {
  template <unsigned count>
  __device__ void packet(std::size_t e, detail::Packet<float, count>& to) const {
    for (unsigned i = 0; i < count; ++i) to.at[i] = 2 * unit_float(random_word({}, e + i)) - 1;
  }
};

/// A call of which there are as many in a graph as take some time together.
struct Case {
  std::string name;
  const char* of;
  double bytes;
  cudaGraphExec_t graph = nullptr;
  int calls = 0;
  std::vector<float> times = {};  ///< of one call, in ms
};

class Bench {
 public:
  Bench(cudaStream_t stream, const char* only) : cuda_(stream), only_(only) {
    void* made = nullptr;
    ok(cudaMalloc(&made, pool_bytes));
    pool_ = static_cast<std::byte*>(made);
    cuda_.map("numbers", View<float>(first<float>(), Shape(pool_bytes / sizeof(float))),
              NumbersBody{});
    ok(cudaEventCreate(&before_));
    ok(cudaEventCreate(&after_));
  }

  Cuda& cuda() { return cuda_; }

  /// Tensors of one set after the other are taken from the pool, which begins anew for the next set.
  template <class T>
  View<T> take(Shape shape) {
    const View<T> taken(reinterpret_cast<T*>(pool_ + at_), shape);
    at_ += align_up(shape.elems() * sizeof(T));
    if (at_ > pool_bytes) stop("the pool of memory", "is too small");
    return taken;
  }

  /// A number apart from the pool, which every case writes anew.
  View<double> constant(double value) {
    void* made = nullptr;
    ok(cudaMalloc(&made, sizeof value));
    ok(cudaMemcpy(made, &value, sizeof value, cudaMemcpyHostToDevice));
    return {static_cast<double*>(made), Shape(1)};
  }

  /// `make` takes its tensors and returns what queues the call. There are sets of tensors enough for all of
  /// them to be larger than the cache. `bytes`: what a call must move.
  template <class Make>
  void add(const char* name, const char* of, double bytes, const Make& make) {
    if (std::strncmp(name, only_, std::strlen(only_)) != 0) return;
    std::vector<std::function<void()>> sets;
    at_ = 0;
    do {
      const std::size_t begin = at_;
      sets.emplace_back(make());
      if (pool_bytes - at_ < at_ - begin) break;
    } while (at_ < apart || sets.size() < 2);
    Case made{name, of, bytes};
    made.calls = std::max(static_cast<int>(sets.size()), bytes < 1e9 ? 20 : 2);
    sets[0]();  // once before: kernels are loaded when they are first called
    cudaGraph_t graph = nullptr;
    ok(cudaStreamBeginCapture(cuda_.stream(), cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < made.calls; ++i) sets[static_cast<std::size_t>(i) % sets.size()]();
    ok(cudaStreamEndCapture(cuda_.stream(), &graph));
    ok(cudaGraphInstantiate(&made.graph, graph, 0));
    ok(cudaGraphDestroy(graph));
    ok(cuda_.take_error());
    cases_.push_back(std::move(made));
  }

  void run(int rounds) {
    for (int round = -2; round < rounds; ++round)  // two to warm up
      for (Case& each : cases_) {
        ok(cudaEventRecord(before_, cuda_.stream()));
        ok(cudaGraphLaunch(each.graph, cuda_.stream()));
        ok(cudaEventRecord(after_, cuda_.stream()));
        ok(cudaEventSynchronize(after_));
        float ms = 0;
        ok(cudaEventElapsedTime(&ms, before_, after_));
        if (round >= 0) each.times.push_back(ms / static_cast<float>(each.calls));
      }
    double copied = 0;
    std::printf("%-34s %-5s %10s %10s %9s %7s\n", "call", "of", "MB", "us", "GB/s", "of copy");
    for (Case& each : cases_) {
      std::sort(each.times.begin(), each.times.end());
      const double ms = each.times[each.times.size() / 2], rate = each.bytes / ms / 1e6;
      if (copied == 0) copied = rate;
      std::printf("%-34s %-5s %10.2f %10.2f %9.1f %7.2f\n", each.name.c_str(), each.of,
                  each.bytes / 1e6, ms * 1e3, rate, rate / copied);
    }
  }
  void only(const char* name) { only_ = name; }

 private:
  template <class T>
  T* first() {
    return reinterpret_cast<T*>(pool_);
  }

  Cuda cuda_;
  const char* only_;
  std::byte* pool_ = nullptr;
  std::size_t at_ = 0;
  cudaEvent_t before_ = nullptr, after_ = nullptr;
  std::vector<Case> cases_;
};

template <class T>
constexpr double size(Shape shape) {
  return static_cast<double>(shape.elems() * sizeof(T));
}

/// Forward and backward of a layer whose outputs have the shape of its inputs. `forward` and `backward`: how
/// many tensors of that shape these must move; 0 leaves it out.
template <class T, class F>
void add_layer(Bench& bench, const F& f, Shape in, double forward, double backward) {
  using Traits = layer_traits<F>;
  struct Tensors {
    View<T> x, y, dy, dx;
    View<float> params, gradients;
    Bytes aux, workspace;
    std::vector<Parameter> table;
  };
  const auto tensors = [&bench, f, in] {
    Tensors made{bench.take<T>(in),
                 bench.take<T>(in),
                 bench.take<T>(in),
                 bench.take<T>(in),
                 {},
                 {},
                 {},
                 {},
                 {}};
    std::size_t elems = 0;
    Traits::parameters(f, in, [&](const ParameterSpec& spec) {
      Parameter parameter;
      static_cast<ParameterSpec&>(parameter) = spec;
      parameter.offset = elems;
      elems += align_up(spec.shape.elems() * sizeof(float)) / sizeof(float);
      made.table.push_back(parameter);
    });
    made.params = bench.take<float>(Shape(elems + 1));
    made.gradients = bench.take<float>(Shape(elems + 1));
    const LayerNeeds needs = detail::Needs<F, Cuda>::of(detail::TypedFunctor<F>{{&f}, &f}, in,
                                                        {dtype_of<T>, 1, Pass::backward});
    made.aux = bench.take<std::byte>(Shape(needs.aux + 1));
    made.workspace = bench.take<std::byte>(Shape(needs.workspace + 1));
    return made;
  };
  Cuda& cuda = bench.cuda();
  cuda.training = true;
  const std::string name = std::string(F::name) + " " + std::to_string(in.cols());
  if (forward != 0)
    bench.add((name + " forward").c_str(), name_of(dtype_of<T>), forward * size<T>(in), [=, &cuda] {
      const Tensors t = tensors();
      return [t, f, &cuda] {
        const Params<const float> params(t.params.data(), t.table.data(), t.table.size());
        call_forward(f, cuda,
                     ForwardCall<T>{.x = View<const T>(t.x),
                                    .y = t.y,
                                    .params = params,
                                    .aux = t.aux,
                                    .workspace = t.workspace});
      };
    });
  // As in a block of a GPT: the gradient that went around the layer is added, and the sums of dx's columns are the
  // gradient of the bias in front.
  const auto add_backward = [=, &bench, &cuda](const char* how, double moved, bool whole) {
    bench.add((name + how).c_str(), name_of(dtype_of<T>), moved * size<T>(in), [=, &bench, &cuda] {
      const Tensors t = tensors();
      const View<T> added = whole ? bench.take<T>(in) : View<T>();
      const View<float> sums = bench.take<float>(Shape(in.cols()));
      return [t, f, whole, added, sums, &cuda] {
        const Params<const float> params(t.params.data(), t.table.data(), t.table.size());
        const Params<float> gradients(t.gradients.data(), t.table.data(), t.table.size());
        BackwardCall<T> call{.x = View<const T>(t.x),
                             .y = View<const T>(t.y),
                             .dy = View<const T>(t.dy),
                             .dx = t.dx,
                             .params = params,
                             .dparams = gradients,
                             .aux = ConstBytes(t.aux),
                             .workspace = t.workspace};
        if (whole) call.added = added, call.dx_sums = sums.data();
        call_backward(f, cuda, call);
      };
    });
  };
  add_backward(" backward", backward, false);
  if constexpr (std::is_same_v<F, LayerNorm>)
    add_backward(" backward, added, sums", backward + 1, true);
}

/// Words as text has them, a few of them often; or each as often as any other.
std::vector<std::int32_t> tokens(bool text) {
  std::vector<std::int32_t> list;
  for (std::size_t i = 0; i < rows; ++i) {
    const double u = unit_float(random_word({.seed = 3}, i));
    const double word =
        text ? std::pow(static_cast<double>(vocab), u) - 1 : u * static_cast<double>(vocab);
    list.push_back(static_cast<std::int32_t>(word));
  }
  return list;
}

template <class T>
void add_embedding(Bench& bench, bool text) {
  Embedding f;
  f.vocab = vocab, f.context = time, f.channels = channels;
  const std::vector<std::int32_t> list = tokens(text);
  std::vector<std::int32_t> distinct = list;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const Shape in(batch, time), table(vocab, channels), positions(time, channels);
  const double words = size<float>(Shape(distinct.size(), channels)),
               places = size<float>(positions), y = size<T>(Shape(rows, channels));
  const std::size_t room =
      kernel<Embedding, Cuda>::needs(f, in, {dtype_of<T>, 1, Pass::backward}).workspace;
  const auto tensors = [&bench, in, room, list] {
    struct {
      View<std::int32_t> x;
      View<T> y;
      View<float> params;
      Bytes workspace;
    } t{bench.take<std::int32_t>(in), bench.take<T>(Shape(rows, channels)),
        bench.take<float>(Shape((vocab + time) * channels)), bench.take<std::byte>(Shape(room))};
    ok(cudaMemcpy(t.x.data(), list.data(), list.size() * sizeof list[0], cudaMemcpyHostToDevice));
    return t;
  };
  static const std::vector<Parameter> specs = [&] {
    std::vector<Parameter> made(2);
    made[0].shape = table, made[1].shape = positions;
    made[1].offset = table.elems();
    return made;
  }();
  Cuda& cuda = bench.cuda();
  const std::string name = text ? "embedding of text" : "embedding, uniform";
  bench.add((name + " forward").c_str(), name_of(dtype_of<T>), words + places + y, [=, &cuda] {
    const auto t = tensors();
    return [t, f, &cuda] {
      call_forward(f, cuda,
                   ForwardCall<T, std::int32_t>{
                       .x = View<const std::int32_t>(t.x),
                       .y = t.y,
                       .params = Params<const float>(t.params.data(), specs.data(), 2)});
    };
  });
  bench.add((name + " backward").c_str(), name_of(dtype_of<T>), 2 * (words + places) + y,
            [=, &cuda] {
              const auto t = tensors();
              return [t, f, &cuda] {
                call_backward(f, cuda,
                              BackwardCall<T, std::int32_t>{
                                  .x = View<const std::int32_t>(t.x),
                                  .dy = View<const T>(t.y),
                                  .dparams = Params<float>(t.params.data(), specs.data(), 2),
                                  .workspace = t.workspace});
              };
            });
}

template <class T>
void add_activations(Bench& bench) {
  Cuda& cuda = bench.cuda();
  const char* of = name_of(dtype_of<T>);
  const Shape stream(rows, channels), hidden(rows, 4 * channels);
  bench.add("sum of residuals 768", of, 3 * size<T>(stream), [&, stream] {
    const View<T> from = bench.take<T>(stream), to = bench.take<T>(stream);
    return [=, &cuda] { cuda.accumulate(View<const T>(from), to); };
  });
  add_layer<T>(bench, Gelu{}, hidden, 2, 3);
  add_layer<T>(bench, Silu{}, hidden, 2, 3);
  add_layer<T>(bench, Relu{}, hidden, 2, 3);
  add_layer<T>(bench, Dropout{.rate = 0.1F}, stream, 2, 2);
  add_layer<T>(bench, LayerNorm{}, stream, 2, 3);
  add_layer<T>(bench, RmsNorm{}, stream, 2, 3);
  add_layer<T>(bench, LayerNorm{}, Shape(rows / 2, 2048), 2, 3);
  for (const std::size_t cols : {channels, 3 * channels, 4 * channels}) {
    const Shape shape(rows, cols);
    const std::string name = "sums of columns " + std::to_string(cols);
    bench.add(name.c_str(), of, size<T>(shape), [&, shape, cols] {
      const View<T> dy = bench.take<T>(shape);
      const View<float> to = bench.take<float>(Shape(cols));
      const View<std::byte> workspace =
          bench.take<std::byte>(Shape(detail::CudaChunks{rows}.all_bytes(1, cols, Dtype::f32)));
      return [=, &cuda] {
        detail::add_matrix_sums(cuda, "sums", rows, cols, dy.data(), to.data(), false, workspace);
      };
    });
  }
  for (const bool text : {true, false}) add_embedding<T>(bench, text);
  for (const std::size_t stride : {vocab, std::size_t{50304}}) {
    const std::size_t tile = 1024;
    const Shape shape(tile, stride);
    const std::string name = "softmax loss, stride " + std::to_string(stride);
    bench.add(name.c_str(), of, 2 * size<T>(Shape(tile, vocab)), [&, shape, stride] {
      const View<T> logits = bench.take<T>(shape);
      const View<std::int32_t> targets = bench.take<std::int32_t>(Shape(tile));
      const View<double> losses = bench.take<double>(Shape(tile)),
                         divisor = bench.take<double>(Shape(1));
      return [=, &cuda] {
        detail::softmax_loss(cuda, "softmax", tile, vocab, stride, logits.data(), targets.data(),
                             divisor.data(), losses.data(), logits.data());
      };
    });
  }
}

void add_optimizer(Bench& bench) {
  Cuda& cuda = bench.cuda();
  const auto net = gpt::make({12, 12, channels, time, vocab});
  auto graph = make_graph<Cuda>(net, Shape(batch, time));
  if (!graph) stop("graph", graph.error.text());
  const auto table = graph->parameters;
  const Shape shape(graph->parameter_elems);
  const View<double> norm = bench.constant(2.0);
  bench.add("AdamW", "f32", 8 * size<float>(shape), [&, table, shape] {
    const View<float> params = bench.take<float>(shape), gradients = bench.take<float>(shape),
                      first = bench.take<float>(shape), second = bench.take<float>(shape);
    cuda.fill(second, 1e-3F);
    return [=, &cuda] {
      const View<float> state[] = {first, second};
      CudaUpdateTerms terms;
      terms.number = 1, terms.rate = 1e-4;
      terms.norm = norm.data(), terms.clip = 1;
      optimizer_kernel<AdamW, Cuda>::update(AdamW{.weight_decay = 0.1F}, cuda, table,
                                            UpdateBlocks<float>{params, gradients, state}, terms);
    };
  });
  bench.add("norm of gradients", "f32", size<float>(shape), [&, shape] {
    const View<float> gradients = bench.take<float>(shape);
    const View<double> places = bench.take<double>(Shape(gradient_norm_places));
    return [=, &cuda] { gradient_norm(cuda, gradients, places); };
  });
  bench.add("weights to bf16, 3072 x 768", "bf16", 6.0 * 3072 * 768, [&] {
    const View<float> from = bench.take<float>(Shape(3072, 768));
    const Bytes workspace = bench.take<std::byte>(Shape(2 * 3072 * 768));
    return [=, &cuda] {
      Bytes left = workspace;
      detail::in_activation_type<bfloat16>(cuda, "copy", View<const float>(from), left);
    };
  });
}

}  // namespace

int main(int count, char** arguments) {
  const char* only = "";
  long rounds = 25;
  for (int i = 1; i < count; ++i) {
    char* end = nullptr;
    if (std::strcmp(arguments[i], "--rounds") == 0 && i + 1 < count) {
      rounds = std::strtol(arguments[++i], &end, 10);
      if (*end != '\0' || rounds < 1 || rounds > 10000) stop("--rounds", "takes 1 to 10000");
    } else if (arguments[i][0] != '-') {
      only = arguments[i];
    } else {
      std::fprintf(stderr, "usage: layer_cuda_bench [--rounds N] [name]\n");
      return 2;
    }
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("layer_cuda_bench: there is no CUDA device, so nothing is measured\n");
    return 77;
  }
  cudaDeviceProp properties;
  ok(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s, medians of %ld rounds; bytes that must move\n", properties.name, rounds);
  cudaStream_t stream = nullptr;
  ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Bench bench(stream, "");
  bench.add("copy", "", 2 * 512e6, [&] {
    const View<std::byte> from = bench.take<std::byte>(Shape(512000000)),
                          to = bench.take<std::byte>(Shape(512000000));
    return [=, &bench] { bench.cuda().copy("copy", View<const std::byte>(from), to); };
  });
  bench.only(only);
  add_optimizer(bench);
  add_activations<bfloat16>(bench);
  add_activations<float>(bench);
  bench.run(static_cast<int>(rounds));
  return 0;
}
