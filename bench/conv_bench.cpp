// SPDX-License-Identifier: MIT
/// Convolutions of ResNet's shapes: forward and both gradients beside our own matrix product of the
/// same operations, which is the bound.
///
/// Every repetition runs the convolution and the product in turn, so that a noisy machine disturbs
/// both. Counters: GFLOP/s of each (medians) and their ratio. The product's operands are matrices
/// in memory, as if windows had been copied out for nothing. Times are those of the processor.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <adacc/core/random.hpp>
#include <adacc/layer/conv2d.hpp>
#include <support/processor_seconds.hpp>

namespace {

using namespace adacc;
using support::processor_seconds;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct FreeIt {
  void operator()(void* memory) const { std::free(memory); }
};

/// Aligned floats, drawn from [-0.5, 0.5).
struct Floats {
  explicit Floats(std::size_t count)
      : memory(static_cast<float*>(std::aligned_alloc(64, align_up(count * sizeof(float))))) {
    for (std::size_t i = 0; i < count; ++i) memory.get()[i] = unit_float(random_word({}, i)) - 0.5F;
  }
  float* get() const { return memory.get(); }
  std::unique_ptr<float, FreeIt> memory;
};

enum class What { forward, dx, dweight };

void convolve(benchmark::State& state, const Conv2d& conv, Shape in, What what) {
  const Shape out = conv.output_shape(in);
  const std::size_t rows = out.rows(), k = conv.kernel.area() * in.cols(), n = conv.out;
  Cpu cpu;
  Floats x(in.elems()), dx(in.elems()), y(out.elems()), dy(out.elems()), weight(n * k),
      dweight(n * k), windows(rows * std::max(k, conv.kernel.area() * n));
  const auto scratch = [&](Pass pass) { return conv.needs(in, {Dtype::f32, 1, pass}).workspace; };
  std::size_t bytes = std::max(scratch(Pass::forward), scratch(Pass::backward));
  for (const std::size_t other :
       {gemm_workspace_bytes<float>(rows, n, k, 1), gemm_workspace_bytes<float>(rows, k, n, 1),
        gemm_workspace_bytes<float>(n, k, rows, 1)})
    bytes = std::max(bytes, other);
  const Floats workspace(bytes / sizeof(float) + 1);
  const Bytes scratch_bytes(reinterpret_cast<std::byte*>(workspace.get()), Shape(bytes));
  Parameter list[1];
  list[0].shape = conv.parameters(in)[0].shape;
  const View<const float> pictures(x.get(), in), up(dy.get(), out);
  const auto ours = [&] {
    if (what == What::forward)
      return conv.forward(cpu,
                          ForwardCall<float>{.x = pictures,
                                             .y = View<float>(y.get(), out),
                                             .params = Params<const float>(weight.get(), list, 1),
                                             .workspace = scratch_bytes});
    list[0].frozen = what == What::dx;
    const View<float> down = what == What::dx ? View<float>(dx.get(), in) : View<float>();
    conv.backward(cpu, BackwardCall<float>{.x = pictures,
                                           .dy = up,
                                           .dx = down,
                                           .params = Params<const float>(weight.get(), list, 1),
                                           .dparams = Params<float>(dweight.get(), list, 1),
                                           .workspace = scratch_bytes});
  };
  const auto product = [&] {
    if (what == What::forward)
      gemm<float>(cpu, rows, n, k, {windows.get(), k, 1}, {weight.get(), 1, k}, y.get(), n,
                  Accumulate::no, scratch_bytes);
    else if (what == What::dx)  // over windows of dy, with the kernel turned
      gemm<float>(cpu, rows, in.cols(), conv.kernel.area() * n,
                  {windows.get(), conv.kernel.area() * n, 1}, {weight.get(), in.cols(), 1},
                  dx.get(), in.cols(), Accumulate::no, scratch_bytes);
    else
      gemm<float>(cpu, n, k, rows, {dy.get(), 1, n}, {windows.get(), k, 1}, dweight.get(), k,
                  Accumulate::yes, scratch_bytes);
  };
  std::vector<double> our_times, product_times, ratios;
  ours();
  product();
  for (auto _ : state) {
    const double start = processor_seconds();
    ours();
    const double middle = processor_seconds();
    product();
    const double end = processor_seconds();
    our_times.push_back(middle - start);
    product_times.push_back(end - middle);
    ratios.push_back((end - middle) / (middle - start));
    state.SetIterationTime(middle - start);
  }
  const double flop =
      2.0 * static_cast<double>(rows) * static_cast<double>(k) * static_cast<double>(n);
  state.counters["conv_GFLOPs"] = flop / median(our_times) * 1e-9;
  state.counters["gemm_GFLOPs"] = flop / median(product_times) * 1e-9;
  state.counters["of_gemm"] = median(ratios);
  state.counters["workspace_KiB"] = static_cast<double>(bytes) / 1024;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const names[] = {"forward", "dx", "dweight"};
  const auto add = [&](std::size_t batch, std::size_t side, std::size_t in, std::size_t out,
                       std::size_t kernel, std::size_t stride) {
    const Conv2d conv{
        .out = out, .kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = false};
    for (const What what : {What::forward, What::dx, What::dweight}) {
      const std::string name = std::string(names[static_cast<int>(what)]) + "/" +
                               std::to_string(kernel) + "x" + std::to_string(kernel) +
                               "/stride:" + std::to_string(stride) + "/" + std::to_string(batch) +
                               "x" + std::to_string(side) + "x" + std::to_string(side) + "x" +
                               std::to_string(in) + "/out:" + std::to_string(out);
      benchmark::RegisterBenchmark(name.c_str(), convolve, conv, Shape(batch, side, side, in), what)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  };
  add(8, 32, 32, 32, 3, 1);
  add(4, 56, 64, 64, 3, 1);
  add(4, 28, 128, 128, 3, 1);
  add(4, 14, 256, 256, 3, 1);
  add(16, 8, 64, 64, 3, 1);
  add(8, 32, 16, 16, 3, 1);
  add(8, 32, 32, 64, 3, 2);
  add(4, 28, 64, 256, 1, 1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
