// SPDX-License-Identifier: MIT
/// Every layer's and loss's device twin against the CPU: outputs and all gradients, odd sizes
/// included. Skipped (77) without a device.
#include <adacc/train.cuh>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "layers_cases.hpp"
#include "on_device.hpp"

namespace {

using namespace layers;

int failures = 0, cases = 0;

void fail(const char* name, Shape in, const char* what, double distance = 0) {
  ++failures;
  std::printf("FAILED %s on (%zu, %zu): %s, %g\n", name, in.rows(), in.cols(), what, distance);
}

/// Memory of exactly so many bytes, in which nothing is written.
template <class T>
struct Device {
  explicit Device(std::size_t count) : size(count) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, size == 0 ? 1 : size * sizeof(T)) == cudaSuccess)
      data = static_cast<T*>(memory);
  }
  explicit Device(const std::vector<T>& from) : Device(from.size()) {
    cudaMemcpy(data, from.data(), size * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~Device() { cudaFree(data); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  std::vector<T> list() const {
    std::vector<T> to(size);
    cudaMemcpy(to.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost);
    return to;
  }
  T* data = nullptr;
  std::size_t size;
};

struct Setting {
  cudaStream_t stream;
  CudaProducts* products;
};

template <class F>
Outcome gpu_run(const Setting& setting, const F& f, Shape in, const Inputs& inputs,
                const Call& call) {
  using Traits = layer_traits<F>;
  using X = input_type_of<F, float>;
  constexpr detail::LayerNeeds needs = detail::make_needs<F, Cuda>();
  Cuda cuda(setting.stream, setting.products);
  static_cast<KernelCall&>(cuda) = {call.training, call.exact, call.exact, {}, call.key};
  const Shape out = Traits::output_shape(f, in);
  const auto scratch = [&](Pass pass) {
    const detail::TypedFunctor<F> any{{&f}, &f};
    return needs.workspace_bytes == nullptr ? std::size_t{0}
                                            : needs.workspace_bytes(any, in, Dtype::f32, 1, pass);
  };
  const Device<float> params(inputs.params), gradients(inputs.gradients), x(inputs.x),
      dy(inputs.dy), y(out.elems()), own_dx(in.elems());
  const Device<std::int32_t> tokens(inputs.tokens), targets(inputs.targets);
  const Device<std::byte> aux(Traits::aux_bytes(f, in, Dtype::f32)),
      forward(scratch(Pass::forward)),
      backward(scratch(call.without_dx ? Pass::backward_without_dx : Pass::backward));
  const Params<const float> p(params.data, inputs.table.data(), inputs.table.size());
  std::vector<Parameter> table = inputs.table;
  for (std::size_t i = 0; i < table.size(); ++i) table[i].frozen = !call.wanted.parameter(i);
  const Params<float> g(gradients.data, table.data(), table.size());
  const auto bytes = [](const Device<std::byte>& of) { return Bytes(of.data, Shape(of.size)); };
  const Device<float>& dx = !call.in_place ? own_dx : is_loss<F> ? x : dy;
  Outcome outcome;
  if constexpr (is_loss<F>) {
    using Target = target_type_of<F, float>;
    const Target* first = nullptr;
    if constexpr (std::is_same_v<Target, float>) first = dy.data;
    else first = targets.data;
    const Device<double> place(2);
    Cuda::Loss loss(place.data, setting.stream), of_forward(place.data + 1, setting.stream);
    loss.clear(), of_forward.clear();
    const View<const float> input(x.data, in);
    const View<const Target> to(first, Traits::target_shape(f, in));
    kernel<F, Cuda>::template loss<float>(f, cuda, p, input, to, bytes(forward), of_forward);
    kernel<F, Cuda>::template loss_gradient<float>(f, cuda, p, input, to, View<float>(dx.data, in),
                                                   g, bytes(backward), loss);
    outcome.loss = loss.value();
    if (!(outcome.loss == of_forward.value()))
      fail(Traits::name(), in, "the loss with and without gradients differs");
  } else {
    const X* first = nullptr;
    if constexpr (std::is_same_v<X, float>) first = x.data;
    else first = tokens.data;
    const View<const X> input(first, in);
    kernel<F, Cuda>::template forward<float>(f, cuda, p, input, View<float>(y.data, out),
                                             bytes(aux), bytes(forward));
    outcome.y = y.list();
    const Reads reads = Traits::reads_when(f, call.wanted);
    kernel<F, Cuda>::template backward<float>(
        f, cuda, p, reads_input(reads) ? input : View<const X>(),
        reads_output(reads) ? View<const float>(y.data, out) : View<const float>(),
        View<const float>(dy.data, out),
        std::is_same_v<X, float> && !call.without_dx ? View<float>(dx.data, in) : View<float>(), g,
        bytes(aux), bytes(backward));
  }
  if (std::is_same_v<X, float> && !call.without_dx) outcome.dx = dx.list();
  outcome.gradients = gradients.list();
  if (const Error why = cuda.take_error()) fail(Traits::name(), in, why.text());
  return outcome;
}

/// The largest |a - b| / max(1, |b|); NaN equals NaN.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = a.size() == b.size() ? 0 : 1e300;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    const double expected = b[i],
                 error = std::fabs(a[i] - expected) / std::fmax(1.0, std::fabs(expected));
    if (!(error <= worst)) worst = error;
  }
  return worst;
}
bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// `tolerance` 0: equal bits.
template <class F>
void check(const Setting& setting, const F& f, Shape in, double tolerance, Call call = {},
           std::size_t vocab = 1) {
  using Traits = layer_traits<F>;
  constexpr const char* name = F::name;
  ++cases;
  const Inputs data = inputs(f, in, vocab);
  const Outcome cpu = cpu_run(f, in, data, call), gpu = gpu_run(setting, f, in, data, call);
  const auto near = [&](const char* what, const std::vector<float>& a,
                        const std::vector<float>& b) {
    if (tolerance == 0 ? !same(a, b) : !(distance(a, b) <= tolerance))
      fail(name, in, what, distance(a, b));
  };
  near("outputs differ", gpu.y, cpu.y);
  near("dx differs", gpu.dx, cpu.dx);
  near("parameters' gradients differ", gpu.gradients, cpu.gradients);
  if (!(std::fabs(gpu.loss - cpu.loss) <= 1e-5 * std::fmax(1.0, std::fabs(cpu.loss))))
    fail(name, in, "losses differ", gpu.loss - cpu.loss);
  const auto same_bits = [&](const char* what, const Outcome& other) {
    if (!same(other.gradients, gpu.gradients) || !(other.loss == gpu.loss) ||
        (!other.dx.empty() && !same(other.dx, gpu.dx)))
      fail(name, in, what);
  };
  if constexpr (Traits::dx_overwrites_dy || Traits::dx_overwrites_x) {
    call.in_place = true;
    same_bits("in place it has other bits", gpu_run(setting, f, in, data, call));
    call.in_place = false;
  }
  if constexpr (Traits::accepts_empty_dx) {
    call.without_dx = true;
    same_bits("without dx it has other bits", gpu_run(setting, f, in, data, call));
    call.without_dx = false;
  }
  if constexpr (Traits::has_reads_when)
    for (std::size_t bits = 0; bits + 1 < std::size_t{1} << data.table.size(); ++bits)
      for (const bool dx : {true, false}) {
        if (bits == 0 && !dx) continue;
        call.without_dx = !dx && !is_loss<F>;
        call.wanted = {dx, bits};
        const Outcome some = gpu_run(setting, f, in, data, call);
        std::vector<float> expected = data.gradients;
        for (std::size_t i = 0; i < data.table.size(); ++i)
          if (call.wanted.parameter(i))
            std::copy_n(gpu.gradients.data() + data.table[i].offset, data.table[i].shape.elems(),
                        expected.data() + data.table[i].offset);
        if (!same(some.gradients, expected) || (!some.dx.empty() && !same(some.dx, gpu.dx)))
          fail(name, in, "if some gradients are not wanted, others have other bits");
      }
}

void check_all(const Setting& setting) {
  const auto elementwise = [&](const auto& f, double tolerance, Call call = {}) {
    for (const Shape in : {Shape(1), Shape(3, 7, 13), Shape(5, 256), Shape(9, 117)})
      check(setting, f, in, tolerance, call);
  };
  elementwise(Gelu{}, 2e-6);
  elementwise(Silu{}, 2e-6);
  elementwise(Relu{}, 0);
  elementwise(Dropout{.rate = 0.3F}, 0);
  elementwise(Dropout{.rate = 0.3F}, 0, {.training = false});
  for (const Shape in : {Shape(1, 1), Shape(5, 33), Shape(2, 35, 257), Shape(300, 31)}) {
    check(setting, LayerNorm{}, in, 2e-5);
    check(setting, RmsNorm{}, in, 2e-5);
    check(setting, MeanSquaredError{}, in, 1e-6);
  }
  for (const bool bias : {false, true}) {
    check(setting, Linear{.out = 3, .bias = bias}, Shape(5, 7), 1e-5);
    check(setting, Linear{.out = 129, .bias = bias}, Shape(3, 13, 65), 1e-5);
    check(setting, Linear{.out = 5, .bias = bias}, Shape(700, 3), 3e-5);  // with a workspace
    check(setting, Linear{.out = 1, .bias = bias}, Shape(1, 1), 1e-6);
  }
  const auto embedding = [&](std::size_t vocab, std::size_t channels, Shape in) {
    Embedding f;
    f.vocab = vocab, f.context = in[1] + 2, f.channels = channels;
    check(setting, f, in, 1e-5, {}, vocab);
  };
  embedding(11, 37, Shape(2, 9));
  embedding(300, 64, Shape(3, 100));
  embedding(2, 1, Shape(1, 1));
  for (const bool exact : {true, false}) {
    const Call call{.exact = exact};
    check(setting, CausalAttention{.heads = 1}, Shape(1, 1, 15), 1e-4, call);
    check(setting, CausalAttention{.heads = 3}, Shape(2, 37, 144), 1e-4, call);
    check(setting, CausalAttention{.heads = 2}, Shape(1, 70, 198), 1e-4, call);
    check(setting, CausalAttention{.heads = 1}, Shape(1, 40, 384), 1e-4, call);
  }
  check(setting, SoftmaxCrossEntropy{}, Shape(7, 53), 1e-6, {}, 53);
  check(setting, SoftmaxCrossEntropy{}, Shape(3, 700), 1e-6, {}, 700);
  CrossEntropyHead head;
  head.vocab = 53;
  check(setting, head, Shape(3, 101, 17), 2e-5, {}, 53);
  head.padded_vocab = 64;
  check(setting, head, Shape(4, 17), 2e-5, {}, 53);
}

}  // namespace

int main() {
  return on_device([](cudaStream_t stream) {
    auto products = CudaProducts::make();
    if (!products) return std::printf("FAILED: %s\n", products.error.text()), 1;
    check_all({stream, &*products});
    if (failures != 0) return 1;
    std::printf("%d cases agree with the CPU\n", cases);
    return 0;
  });
}
