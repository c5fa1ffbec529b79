// SPDX-License-Identifier: MIT
/// Products of bf16 matrices beside ours of fp32: the twelve of a GPT's blocks, forward and backward.
///
/// Packing and the rounding of weights are included. Both take turns; counters are medians of the ratios of neighbours
/// (processor time, one thread), so other load on the machine hits both. ours_over_fp32 is fp32's time over bf16's; the
/// last row has the sums over all twelve. A row for every instruction level that the processor has; fp32 products are
/// those of the compiler's options.
#include <benchmark/benchmark.h>
#include <adacc/layer/math/bf16_gemm.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

namespace {

using adacc::Accumulate;
using adacc::bfloat16;
using adacc::InstructionLevel;
using adacc::Operand;

enum class Kind { nt, nn, tn };

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

struct Shape {
  Kind kind;
  std::size_t in, out;
};
const Shape shapes[] = {{Kind::nt, 384, 1152}, {Kind::nt, 384, 384},  {Kind::nt, 384, 1536},
                        {Kind::nt, 1536, 384}, {Kind::nn, 384, 1152}, {Kind::nn, 384, 384},
                        {Kind::nn, 384, 1536}, {Kind::nn, 1536, 384}, {Kind::tn, 384, 1152},
                        {Kind::tn, 384, 384},  {Kind::tn, 384, 1536}, {Kind::tn, 1536, 384}};
constexpr std::size_t rows = 1024;

/// A layer's three products on `rows` rows, in both types.
class Layer {
 public:
  explicit Layer(const Shape& shape)
      : shape_(shape), x_(rows * shape.in), y_(rows * shape.out), w_(shape.in * shape.out),
        x16_(x_.size()), y16_(y_.size()),
        workspace_(static_cast<std::byte*>(std::aligned_alloc(64, bytes)), std::free) {
    std::size_t i = 0;
    const auto fill = [&](std::vector<float>& to) {
      for (float& value : to) value = static_cast<float>(++i * 7919 % 2003) / 1001.0F - 1;
    };
    fill(x_), fill(y_), fill(w_);
    for (std::size_t e = 0; e < x_.size(); ++e) x16_[e] = adacc::to_bfloat16(x_[e]);
    for (std::size_t e = 0; e < y_.size(); ++e) y16_[e] = adacc::to_bfloat16(y_[e]);
  }

  void fp32() {
    const std::size_t in = shape_.in, out = shape_.out;
    const adacc::Bytes room = workspace();
    if (shape_.kind == Kind::nt)
      adacc::gemm<float>(ctx_, rows, out, in, {x_.data(), in, 1}, {w_.data(), 1, in}, y_.data(),
                         out, Accumulate::no, room);
    if (shape_.kind == Kind::nn)
      adacc::gemm<float>(ctx_, rows, in, out, {y_.data(), out, 1}, {w_.data(), in, 1}, x_.data(),
                         in, Accumulate::no, room);
    if (shape_.kind == Kind::tn)
      adacc::gemm<float>(ctx_, out, in, rows, {y_.data(), 1, out}, {x_.data(), in, 1}, w_.data(),
                         in, Accumulate::yes, room);
  }

  void bf16(InstructionLevel level) {
    const std::size_t in = shape_.in, out = shape_.out;
    const adacc::Bytes room = workspace();
    const Operand<bfloat16> x = {x16_.data(), in, 1}, y = {y16_.data(), out, 1};
    if (shape_.kind == Kind::nt)
      adacc::detail::bf16_gemm_at(level, ctx_, rows, out, in, x, Operand<float>{w_.data(), 1, in},
                                  y16_.data(), out, Accumulate::no, room);
    if (shape_.kind == Kind::nn)
      adacc::detail::bf16_gemm_at(level, ctx_, rows, in, out, y, Operand<float>{w_.data(), in, 1},
                                  x16_.data(), in, Accumulate::no, room);
    if (shape_.kind == Kind::tn)
      adacc::detail::bf16_gemm_at(level, ctx_, out, in, rows,
                                  Operand<bfloat16>{y16_.data(), 1, out}, x, w_.data(), in,
                                  Accumulate::yes, room);
  }

 private:
  static constexpr std::size_t bytes = 16 * adacc::MiB;
  adacc::Bytes workspace() { return {workspace_.get(), adacc::Shape(bytes)}; }

  Shape shape_;
  std::vector<float> x_, y_, w_;
  std::vector<bfloat16> x16_, y16_;
  std::unique_ptr<std::byte, void (*)(void*)> workspace_;
  adacc::Cpu ctx_;
};

/// Times of one layer or all of them, in turns.
void in_turns(benchmark::State& state, InstructionLevel level, std::vector<Shape> which) {
  std::vector<Layer> layers;
  for (const Shape& shape : which) layers.emplace_back(shape);
  constexpr int rounds = 3;
  std::vector<double> ratios, times;
  for (auto _ : state) {
    double fp32 = 0, bf16 = 0;
    for (Layer& layer : layers)
      for (int i = 0; i < rounds; ++i) {
        const double start = processor_seconds();
        layer.fp32();
        const double middle = processor_seconds();
        layer.bf16(level);
        fp32 += middle - start;
        bf16 += processor_seconds() - middle;
      }
    ratios.push_back(fp32 / bf16);
    times.push_back(bf16 / rounds);
    state.SetIterationTime(bf16 / rounds);
  }
  double flop = 0;
  for (const Shape& shape : which) flop += 2.0 * rows * static_cast<double>(shape.in * shape.out);
  state.counters["GFLOPs"] = flop / median(times) * 1e-9;
  state.counters["ours_over_fp32"] = median(ratios);
}

}  // namespace

int main(int argc, char** argv) {
  const char* const names[] = {"nt", "nn", "tn"};
  for (const InstructionLevel level : adacc::instruction_levels) {
    if (!adacc::has_level(level)) continue;
    const auto add = [&](const std::string& name, const std::vector<Shape>& which) {
      benchmark::RegisterBenchmark((name + "/" + adacc::name_of(level)).c_str(), in_turns, level,
                                   which)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    };
    for (const Shape& shape : shapes)
      add(std::string(names[static_cast<int>(shape.kind)]) + "/" + std::to_string(shape.in) + "x" +
              std::to_string(shape.out),
          {shape});
    add("all", {std::begin(shapes), std::end(shapes)});
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("fastest_level", adacc::name_of(adacc::fastest_level()));
  benchmark::RunSpecifiedBenchmarks();
}
