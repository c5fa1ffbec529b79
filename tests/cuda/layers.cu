// SPDX-License-Identifier: MIT
/// Every layer's and loss's device twin against the CPU, with activations in fp32 and in bfloat16: outputs
/// and all gradients, odd sizes included. Skipped (77) without a device. `norms` are the norms alone, and `shared` is
/// all whose blocks take much shared memory.
#include <adacc/train.cuh>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include <support/cuda/attention.cuh>

#include "kernel_checks.hpp"
#include "layers_cases.hpp"
#include "on_device.hpp"
#include "optimizer_checks.hpp"

namespace {

using namespace layers;

int failures = 0, cases = 0;

void fail(const char* name, Shape in, const char* what, double distance = 0) {
  ++failures;
  std::printf("FAILED %s on (%zu, %zu): %s, %g\n", name, in.rows(), in.cols(), what, distance);
}

/// Numbers as activations of T, and back.
template <class T>
std::vector<T> as(const std::vector<float>& from) {
  if constexpr (std::is_same_v<T, float>) return from;
  std::vector<T> to;
  if constexpr (std::is_same_v<T, bfloat16>)
    for (const float x : from) to.push_back(to_bfloat16(x));
  return to;
}
std::vector<float> floats(const std::vector<float>& from) { return from; }
std::vector<float> floats(const std::vector<bfloat16>& from) {
  std::vector<float> to;
  for (const bfloat16 x : from) to.push_back(to_float(x));
  return to;
}

struct Setting {
  cudaStream_t stream;
  CudaProducts* products;
};

template <class T, class F>
Outcome gpu_run(const Setting& setting, const F& f, Shape in, const Inputs& inputs,
                const Call& call) {
  using Traits = layer_traits<F>;
  using X = input_type_of<F, T>;
  constexpr Dtype scalar = dtype_of<T>;
  Cuda cuda(setting.stream, setting.products);
  cuda.training = call.training;
  cuda.key = call.key;
  const Shape out = Traits::output_shape(f, in);
  const auto needs = [&](Pass pass) {
    return detail::Needs<F, Cuda>::of(detail::TypedFunctor<F>{{&f}, &f}, in, {scalar, 1, pass});
  };
  const std::size_t shift = call.shifted ? 1 : 0;
  const Device<float> params(inputs.params, shift), gradients(inputs.gradients, shift);
  const Device<T> x(as<T>(inputs.x), shift), dy(as<T>(inputs.dy), shift), y(out.elems(), shift),
      own_dx(in.elems(), shift);
  const Device<T> added(as<T>(inputs.added), shift);
  const Device<std::int32_t> tokens(inputs.tokens, shift), targets(inputs.targets, shift),
      lengths(call.lengths);
  cuda.lengths = {lengths.data, Shape(call.lengths.size())};
  const Device<std::byte> aux(needs(Pass::forward).aux), forward(needs(Pass::forward).workspace),
      backward(needs(call.without_dx ? Pass::backward_without_dx : Pass::backward).workspace);
  const Params<const float> p(params.data, inputs.table.data(), inputs.table.size());
  std::vector<Parameter> table = inputs.table;
  for (std::size_t i = 0; i < table.size(); ++i) table[i].frozen = !call.wanted.parameter(i);
  const Params<float> g(gradients.data, table.data(), table.size());
  const auto bytes = [](const Device<std::byte>& of) { return Bytes(of.data, Shape(of.size)); };
  const Device<T>& dx = !call.in_place ? own_dx : is_loss<F> ? x : dy;
  Outcome outcome;
  if constexpr (is_loss<F>) {
    using Target = target_type_of<F, T>;
    const Target* first = nullptr;
    if constexpr (std::is_same_v<Target, T>) first = dy.data;
    else first = targets.data;
    const Device<double> place(2);
    Cuda::Loss loss(place.data, setting.stream), of_forward(place.data + 1, setting.stream);
    loss.clear(), of_forward.clear();
    const View<const T> input(x.data, in);
    const View<const Target> to(first, Traits::target_shape(f, in));
    call_loss(f, cuda,
              LossCall<T, Target>{.x = input,
                                  .targets = to,
                                  .params = p,
                                  .workspace = bytes(forward),
                                  .divisor = call.divisor},
              of_forward);
    call_loss_gradient(f, cuda,
                       LossCall<T, Target>{.x = input,
                                           .targets = to,
                                           .dx = View<T>(dx.data, in),
                                           .params = p,
                                           .dparams = g,
                                           .workspace = bytes(backward),
                                           .divisor = call.divisor},
                       loss);
    outcome.loss = loss.value();
    if (!(outcome.loss == of_forward.value()))
      fail(Traits::name(), in, "the loss with and without gradients differs");
  } else {
    const X* first = nullptr;
    if constexpr (std::is_same_v<X, T>) first = x.data;
    else first = tokens.data;
    const View<const X> input(first, in);
    call_forward(
        f, cuda,
        ForwardCall<T, X>{.x = input,
                          .y = View<T>(y.data, out),
                          .params = p,
                          .aux = bytes(aux),
                          .workspace = bytes(forward),
                          .added = call.adds_y ? View<const T>(added.data, out) : View<const T>()});
    outcome.y = floats(y.list());
    const Reads reads = Traits::reads_when(f, call.wanted);
    call_backward(
        f, cuda,
        BackwardCall<T, X>{
            .x = reads_input(reads) ? input : View<const X>(),
            .y = reads_output(reads) ? View<const T>(y.data, out) : View<const T>(),
            .dy = View<const T>(dy.data, out),
            .dx = std::is_same_v<X, T> && !call.without_dx ? View<T>(dx.data, in) : View<T>(),
            .params = p,
            .dparams = g,
            .aux = bytes(aux),
            .workspace = bytes(backward),
            .exact_input = call.exact,
            .exact_output = call.exact,
            .added = call.adds_dx ? View<const T>(added.data, in) : View<const T>()});
  }
  if (std::is_same_v<X, T> && !call.without_dx) outcome.dx = floats(dx.list());
  outcome.gradients = gradients.list();
  if (const Error why = cuda.take_error()) fail(Traits::name(), in, why.text());
  return outcome;
}

/// The largest |a - b| / max(1, |b|); NaN equals NaN, and is infinitely far from numbers.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = a.size() == b.size() ? 0 : 1e300;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    const double expected = b[i],
                 error = std::fabs(a[i] - expected) / std::fmax(1.0, std::fabs(expected));
    if (std::isnan(error)) return HUGE_VAL;
    if (!(error <= worst)) worst = error;
  }
  return worst;
}
bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// `tolerance` 0: equal bits.
struct Tolerance {
  double numbers, gradients, loss;  ///< of parameters the gradients
};

template <class T, class F>
void check_in(const Setting& setting, const F& f, Shape in, const Inputs& data, const Outcome& cpu,
              const Tolerance& most, Call call) {
  using Traits = layer_traits<F>;
  constexpr const char* name = F::name;
  ++cases;
  const Outcome gpu = gpu_run<T>(setting, f, in, data, call);
  const auto near = [&](const char* what, const std::vector<float>& a, const std::vector<float>& b,
                        double tolerance) {
    if (tolerance == 0 ? !same(a, b) : !(distance(a, b) <= tolerance))
      fail(name, in, what, distance(a, b));
  };
  near("outputs differ", gpu.y, cpu.y, most.numbers);
  near("dx differs", gpu.dx, cpu.dx, most.numbers);
  near("parameters' gradients differ", gpu.gradients, cpu.gradients, most.gradients);
  if (!(std::fabs(gpu.loss - cpu.loss) <= most.loss * std::fmax(1.0, std::fabs(cpu.loss))))
    fail(name, in, "losses differ", gpu.loss - cpu.loss);
  const auto same_bits = [&](const char* what, const Outcome& other) {
    if (!same(other.gradients, gpu.gradients) || !(other.loss == gpu.loss) ||
        !same(other.y, gpu.y) || (!other.dx.empty() && !same(other.dx, gpu.dx)))
      fail(name, in, what);
  };
  if constexpr (Traits::facts().dx_overwrites_dy || Traits::facts().dx_overwrites_x) {
    call.in_place = true;
    same_bits("in place it has other bits", gpu_run<T>(setting, f, in, data, call));
    call.in_place = false;
  }
  if (call.shifts) {
    call.shifted = true;
    same_bits("not aligned it has other bits", gpu_run<T>(setting, f, in, data, call));
    call.shifted = false;
  }
  if constexpr (Traits::has_reads_when) {
    call.without_dx = true;
    same_bits("without dx it has other bits", gpu_run<T>(setting, f, in, data, call));
    call.without_dx = false;
  }
  if constexpr (Traits::has_reads_when)
    for (std::size_t bits = 0; bits + 1 < std::size_t{1} << data.table.size(); ++bits)
      for (const bool dx : {true, false}) {
        if (bits == 0 && !dx) continue;
        call.without_dx = !dx && !is_loss<F>;
        call.wanted = {dx, bits};
        const Outcome some = gpu_run<T>(setting, f, in, data, call);
        std::vector<float> expected = data.gradients;
        for (std::size_t i = 0; i < data.table.size(); ++i)
          if (call.wanted.parameter(i))
            std::copy_n(gpu.gradients.data() + data.table[i].offset, data.table[i].shape.elems(),
                        expected.data() + data.table[i].offset);
        if (!same(some.gradients, expected) || (!some.dx.empty() && !same(some.dx, gpu.dx)))
          fail(name, in, "if some gradients are not wanted, others have other bits");
      }
}

/// In fp32 and in bfloat16, in which numbers that are stored are rounded: by half of their last bit, and by
/// what `coarse` says if there are some in between.
template <class F>
void check(const Setting& setting, const F& f, Shape in, double tolerance, Call call = {},
           std::size_t vocab = 1, double coarse = 0) {
  Inputs data = inputs(f, in, vocab);
  for (std::size_t i = 0; call.ignores && i < data.targets.size(); ++i)
    if (i % 3 != 1) data.targets[i] = ignored_target;
  const Outcome cpu = cpu_run(f, in, data, call);
  check_in<float>(setting, f, in, data, cpu, {tolerance, tolerance, 1e-5}, call);
  const double half = 1.0 / 256 + 1e-5, gradients = tolerance + coarse;
  // cuBLASLt may round a product before it adds another matrix or a bias: for odd sizes on an H200 it does.
  const double before = call.adds_y ? 1.2 / 256 : 0;
  check_in<bfloat16>(setting, f, in, data, cpu, {half + before + coarse, gradients, 1e-5 + coarse},
                     call);
}

/// Positions behind the lengths change no bit.
template <class T, class F>
void check_padding(const Setting& setting, const F& f, Shape in, const Call& call) {
  Inputs data = inputs(f, in, 1);
  const Outcome expected = gpu_run<T>(setting, f, in, data, call);
  const auto spoil = [&](std::vector<float>& numbers) {
    const std::size_t row = numbers.size() / (in[0] * in[1]);
    for (std::size_t entry = 0; entry < call.lengths.size(); ++entry)
      for (std::size_t i = std::min(static_cast<std::size_t>(call.lengths[entry]), in[1]) * row;
           i < in[1] * row; ++i)
        numbers[entry * in[1] * row + i] = std::nanf("");
  };
  spoil(data.x), spoil(data.dy);
  const Outcome spoiled = gpu_run<T>(setting, f, in, data, call);
  if (!same(spoiled.y, expected.y) || !same(spoiled.dx, expected.dx))
    fail(F::name, in, "numbers in padding change results");
}

/// Tiles follow from the layer and the number of rows.
void check_tiles() {
  using Twin = kernel<CrossEntropyHead, Cuda>;
  constexpr CrossEntropyHead head{.vocab = 9}, thin{.vocab = 9, .device_tile_rows = 7},
      whole{.vocab = 9, .device_tile_rows = std::size_t{1} << 40};
  static_assert(Twin::tile_rows(head, 100) == 100);
  static_assert(Twin::tile_rows(head, 300) == 256);
  static_assert(Twin::tile_rows(head, 8192) == 1024);
  static_assert(Twin::tile_rows(head, 65536) == 2048);
  static_assert(Twin::tile_rows(thin, 8192) == 7);
  const Shape rows(std::size_t{1} << 40, 1);
  CrossEntropyHead large = whole;
  large.vocab = std::size_t{1} << 30;
  const std::string why = Twin::needs(large, rows, {Dtype::bf16}).error.text();
  if (why.find("1099511627776 rows of 1073741824 words need more bytes") == std::string::npos)
    fail("head", rows, why.c_str());
}

/// In bfloat16, backward of rows of up to 1024 channels reads them in shared memory.
void check_norms(const Setting& setting) {
  const Call shifts{.shifts = true};
  for (const Shape in : {Shape(1, 1), Shape(5, 33), Shape(2, 35, 257), Shape(300, 31)}) {
    check(setting, LayerNorm{}, in, 2e-5, shifts);
    check(setting, RmsNorm{}, in, 2e-5, shifts);
  }
  // The longest rows that stay in registers, and longer ones.
  for (const Shape in : {Shape(3, 1024), Shape(2, 1032), Shape(2, 1030), Shape(35, 768)}) {
    const Call sums{.adds_dx = true, .shifts = true};
    check(setting, LayerNorm{}, in, 5e-5, sums);
    check(setting, RmsNorm{}, in, 5e-5, sums);
  }
}

/// Heads of more channels than `narrower`.
void check_attention(const Setting& setting, std::size_t narrower = 0) {
  for (const bool exact : {true, false}) {
    const Call call{.exact = exact};
    // Weights and gradients of scores are rounded in between, and what backward reads of a rounded output
    // goes into each of these.
    const double coarse = exact ? 8e-2 : 4e-2;
    const auto causal = [&](std::size_t heads, std::size_t kv_heads, Shape in) {
      const CausalAttention f{heads, kv_heads};
      if (f.head_size(in) > narrower) check(setting, f, in, 1e-4, call, 1, coarse);
    };
    causal(1, 0, Shape(1, 1, 15));
    causal(3, 0, Shape(2, 37, 144));
    causal(2, 0, Shape(1, 70, 198));
    causal(1, 0, Shape(1, 40, 384));
    // More than two tiles of each side, rows that are whole and rows that are not.
    causal(2, 0, Shape(1, 203, 384));
    causal(1, 0, Shape(1, 150, 300));
    // Fewer heads of keys and values.
    causal(4, 2, Shape(2, 37, 8 * 24));
    causal(3, 1, Shape(1, 70, 5 * 33));
    causal(6, 2, Shape(1, 140, 10 * 64));
    causal(2, 1, Shape(1, 70, 4 * 100));
    // In both directions, sequences that end early among them.
    const auto both_ways = [&](std::size_t heads, std::size_t kv_heads, Shape in,
                               std::vector<std::int32_t> lengths) {
      const BidirectionalAttention f{heads, kv_heads};
      if (f.head_size(in) <= narrower) return;
      const Call padded{.exact = exact, .lengths = lengths};
      check(setting, f, in, 1e-4, padded, 1, coarse);
      if (lengths.empty()) return;
      check_padding<float>(setting, f, in, padded);
      check_padding<bfloat16>(setting, f, in, padded);
    };
    both_ways(1, 0, Shape(1, 70, 3 * 128), {});
    both_ways(3, 0, Shape(4, 67, 9 * 15), {67, 0, 41, 100});
    both_ways(4, 2, Shape(2, 150, 8 * 64), {70});
    both_ways(2, 1, Shape(2, 130, 4 * 104), {70, 130});
  }
}

/// All whose blocks take more shared memory than every kernel may have.
void check_shared(const Setting& setting) {
  const auto failed = [](const auto&... what) { fail(what...); };
  check_norms(setting);
  check_attention(setting, 64);
  // A row that an H100 keeps in shared memory, and smaller devices do not.
  check_strides<bfloat16>(setting.stream, 52001, 52032, 1.0 / 256, failed);
  check_strides<bfloat16>(setting.stream, 25001, 25024, 1.0 / 256, failed);
  CrossEntropyHead head;
  head.vocab = 25001;
  check(setting, head, Shape(3, 8), 2e-5, {}, head.vocab, 1e-2);
}

void check_all(const Setting& setting) {
  check_tiles();
  check_kernels(setting.stream, [](const auto&... what) { fail(what...); });
  check_optimizers(setting.stream, [](const auto&... what) { fail(what...); });
  const auto elementwise = [&](const auto& f, double tolerance, Call call = {}) {
    call.shifts = true;
    for (const Shape in : {Shape(1), Shape(3, 7, 13), Shape(5, 256), Shape(9, 117)})
      check(setting, f, in, tolerance, call);
  };
  const Call shifts{.shifts = true};
  elementwise(Gelu{}, 2e-6);
  elementwise(Silu{}, 2e-6);
  elementwise(ErfGelu{}, 2e-6);
  elementwise(Relu{}, 0);
  elementwise(Dropout{.rate = 0.3F}, 0);
  elementwise(Dropout{.rate = 0.3F}, 0, {.training = false});
  check_norms(setting);
  for (const Shape in : {Shape(1, 1), Shape(5, 33), Shape(2, 35, 257), Shape(300, 31)})
    check(setting, MeanSquaredError{}, in, 1e-6);
  for (const bool bias : {false, true}) {
    check(setting, Linear{.out = 3, .bias = bias}, Shape(5, 7), 1e-5);
    check(setting, Linear{.out = 129, .bias = bias}, Shape(3, 13, 65), 1e-5);
    check(setting, Linear{.out = 5, .bias = bias}, Shape(700, 3), 3e-5);  // with a workspace
    check(setting, Linear{.out = 1, .bias = bias}, Shape(1, 1), 1e-6);
    check(setting, Linear{.out = 129, .bias = bias}, Shape(3, 13, 65), 1e-5,
          {.adds_y = true, .adds_dx = true});
  }
  for (const Shape in : {Shape(3, 2), Shape(2, 5, 34), Shape(9, 784)})
    check(setting, SwiGlu{}, in, 5e-6, shifts);
  const auto rotary = [&](std::size_t heads, std::size_t kv_heads, Shape in) {
    check(setting, RotaryEmbedding{.heads = heads, .kv_heads = kv_heads}, in, 1e-6, shifts);
  };
  rotary(1, 0, Shape(1, 1, 6));
  rotary(3, 1, Shape(3, 41, 80));    // whole packets, of fewer heads than a block has threads
  rotary(2, 0, Shape(2, 9, 60));     // rows that are no whole packets
  rotary(1, 0, Shape(1, 2100, 12));  // late positions, whose angles floats do not hold
  rotary(5, 0, Shape(1, 3, 4800));   // more pairs of a head than a block keeps
  // What is rounded of the thin product goes into sums: it is small beside the rest.
  for (const bool bias : {false, true})
    check(setting, LoraLinear{.out = 129, .bias = bias, .rank = 5, .alpha = 0.1F}, Shape(3, 13, 65),
          1e-4, {}, 1, 2e-2);
  check(setting, LoraLinear{.out = 5, .rank = 2, .alpha = 0.1F}, Shape(700, 3), 1e-4, {}, 1, 2e-2);
  const auto embedding = [&](std::size_t vocab, std::size_t channels, Shape in,
                             bool positions = true, std::size_t types = 0) {
    Embedding f;
    f.vocab = vocab, f.context = in[1] + 2, f.channels = channels;
    f.positions = positions, f.types = types;
    check(setting, f, in, 1e-5, shifts, vocab * (types > 0 ? types : 1));
  };
  embedding(11, 37, Shape(2, 9));
  embedding(7, 1100, Shape(2, 9));  // more channels than a block has at a time
  embedding(23, 8, Shape(3, 400));
  embedding(23, 8, Shape(3, 70), false);
  embedding(23, 37, Shape(2, 70), true, 2);
  embedding(5, 264, Shape(1, 40), false, 3);
  embedding(300, 64, Shape(3, 100));
  embedding(2, 1, Shape(1, 1));
  check_attention(setting);
  check(setting, SoftmaxCrossEntropy{}, Shape(7, 53), 1e-6, shifts, 53);
  check(setting, SoftmaxCrossEntropy{}, Shape(3, 700), 1e-6, shifts, 700);
  for (const std::size_t divisor : {std::size_t{0}, std::size_t{7}})
    check(setting, SoftmaxCrossEntropy{}, Shape(7, 53), 1e-6,
          {.shifts = true, .ignores = true, .divisor = divisor}, 53);
  check(setting, SoftmaxCrossEntropy{}, Shape(1, 53), 1e-6, {.ignores = true}, 53);  // none counts
  CrossEntropyHead head;
  head.vocab = 53;
  check(setting, head, Shape(3, 101, 17), 2e-5, {}, 53, 1e-2);
  check(setting, head, Shape(3, 101, 17), 2e-5, {.ignores = true}, 53, 1e-2);
  head.padded_vocab = 64;
  check(setting, head, Shape(4, 17), 2e-5, {}, 53, 1e-2);
  head.padded_vocab = 55;  // too few for a product of whole packets
  check(setting, head, Shape(4, 17), 2e-5, {}, 53, 1e-2);
  head.padded_vocab = 0, head.device_tile_rows = 7;
  for (const std::size_t vocab : {5, 8, 56, 61, 64, 135}) {
    head.vocab = vocab;
    check(setting, head, Shape(2, 10, 16), 2e-5, {}, vocab, 1e-2);
    check(setting, head, Shape(2, 10, 16), 2e-5, {.ignores = true}, vocab, 1e-2);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string part = count > 1 ? arguments[1] : "all";
  if (part != "all" && part != "norms" && part != "shared")
    return std::printf("FAILED: there is no part '%s' but all, norms and shared\n", part.c_str()),
           1;
  return on_device([&](cudaStream_t stream) {
    auto products = CudaProducts::make();
    if (!products) return std::printf("FAILED: %s\n", products.error.text()), 1;
    const Setting setting{stream, &*products};
    if (part == "norms") check_norms(setting);
    else if (part == "shared") check_shared(setting);
    else check_all(setting);
    if (failures != 0) return 1;
    std::printf("%d cases agree with the CPU\n", cases);
    return 0;
  });
}
