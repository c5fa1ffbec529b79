// SPDX-License-Identifier: MIT
/// Matrix products at the shapes of a GPT: ours beside Eigen's and MKL's, and all beside the bound.
///
/// Every repetition of a pair runs ours, Eigen's and that of a BLAS in turn, so that a noisy machine
/// disturbs all. Counters: GFLOP/s of each (medians), ratios, and ours over the multiply-add peak
/// that the same run measures. With two threads Eigen and the BLAS multiply one block of rows on each.
/// The BLAS is MKL or one that is named, if there is one; blas.hpp says how to get it. Products that
/// differ by more than rounding are an error.
///
/// cut_*: the same product in so many parts of its rows, as layers in parts call it, in processor time
/// of one thread: time over that of the product in one, and the share of that which packing B takes.
#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <adacc/core/steady_clock.hpp>
#include <adacc/layer/math/gemm.hpp>

#include "blas.hpp"

namespace {

using adacc::Accumulate;
using adacc::Operand;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

bool alike(const Matrix& a, const Matrix& b) { return (a - b).norm() <= 1e-4F * b.norm(); }

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

/// Spinning threads: what a pool costs is not this program's subject. They yield, because two that
/// spin on a busy machine would wait for each other's time slices.
class Threads {
 public:
  explicit Threads(int count) : count_(count) {
    for (int worker = 1; worker < count; ++worker)
      threads_.emplace_back([this, worker] {
        for (int seen = 0;;) {
          while (epoch_.load(std::memory_order_acquire) == seen) {
            if (stop_.load(std::memory_order_relaxed)) return;
            std::this_thread::yield();
          }
          ++seen;
          drain(worker);
          done_.fetch_add(1, std::memory_order_release);
        }
      });
  }
  ~Threads() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  int workers() const { return count_; }

  void run(std::size_t tiles, adacc::TileFn tile) {
    tile_ = &tile;
    tiles_ = tiles;
    next_ = 0;
    done_ = 0;
    epoch_.fetch_add(1, std::memory_order_release);
    drain(0);
    while (done_.load(std::memory_order_acquire) != count_ - 1) std::this_thread::yield();
  }

 private:
  void drain(int worker) {
    for (std::size_t i; (i = next_.fetch_add(1)) < tiles_;) (*tile_)(i, worker);
  }

  int count_;
  const adacc::TileFn* tile_ = nullptr;
  std::size_t tiles_ = 0;
  std::atomic<std::size_t> next_{0};
  std::atomic<int> epoch_{0}, done_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

/// Float operations a second of one core that does nothing but multiply and add in registers.
double peak_flops() {
  using V = adacc::detail::Simd<float, adacc::detail::BuildTarget::bytes>::type;
  constexpr int sums = 12;
  V sum[sums], factor = V{} + 0.999F, term = V{} + 0.001F;
  for (V& s : sum) s = V{};
  const long rounds = 400000;
  std::vector<double> rates;
  for (int repeat = 0; repeat < 9; ++repeat) {
    benchmark::DoNotOptimize(factor);
    const double start = adacc::steady_seconds();
    for (long i = 0; i < rounds; ++i)
#pragma GCC unroll 16
      for (int s = 0; s < sums; ++s) sum[s] = sum[s] * factor + term;
    const double flops = 2.0 * sums * sizeof(V) / sizeof(float) * static_cast<double>(rounds);
    benchmark::DoNotOptimize(sum);
    rates.push_back(flops / (adacc::steady_seconds() - start));
  }
  return median(rates);
}

enum class Kind { nt, nn, tn };

/// C (m x n) = A B over k: nt is a linear layer's forward, nn its input's gradient, tn its
/// weights'.
void pair(benchmark::State& state, Kind kind, long m, long n, long k, int workers) {
  Threads threads(workers);
  adacc::Cpu ctx(threads);
  const Matrix a = kind == Kind::tn ? Matrix::Random(k, m) : Matrix::Random(m, k);
  const Matrix b = kind == Kind::nt ? Matrix::Random(n, k) : Matrix::Random(k, n);
  Matrix ours = Matrix::Zero(m, n), eigens = ours, blases = ours;
  const bench::Blas& blas = bench::Blas::get();
  const auto rows = static_cast<std::size_t>(m), cols = static_cast<std::size_t>(n),
             depth = static_cast<std::size_t>(k);
  const Operand<float> left =
      kind == Kind::tn ? Operand<float>{a.data(), 1, rows} : Operand<float>{a.data(), depth, 1};
  const Operand<float> right =
      kind == Kind::nt ? Operand<float>{b.data(), 1, depth} : Operand<float>{b.data(), cols, 1};
  const std::size_t bytes = adacc::gemm_workspace_bytes<float>(rows, cols, depth, workers);
  const std::unique_ptr<std::byte, void (*)(void*)> workspace(
      static_cast<std::byte*>(std::aligned_alloc(64, adacc::align_up(bytes))), std::free);
  const auto eigen_tile = [&](std::size_t i, int) {
    const long first = m * static_cast<long>(i) / workers;
    const long count = m * static_cast<long>(i + 1) / workers - first;
    auto c = eigens.middleRows(first, count);
    if (kind == Kind::nt) c.noalias() = a.middleRows(first, count) * b.transpose();
    if (kind == Kind::nn) c.noalias() = a.middleRows(first, count) * b;
    if (kind == Kind::tn) c.noalias() = a.middleCols(first, count).transpose() * b;
  };
  const auto blas_tile = [&](std::size_t i, int) {
    const long first = m * static_cast<long>(i) / workers;
    const long count = m * static_cast<long>(i + 1) / workers - first;
    const float* const from = kind == Kind::tn ? a.data() + first : a.data() + first * k;
    blas.sgemm(kind == Kind::tn, kind == Kind::nt, count, n, k, from, a.cols(), b.data(), b.cols(),
               blases.data() + first * n, n);
  };
  std::vector<double> our_times, eigen_times, ratios, blas_times, blas_ratios;
  for (auto _ : state) {
    const double start = adacc::steady_seconds();
    adacc::gemm<float>(ctx, rows, cols, depth, left, right, ours.data(), cols, Accumulate::no,
                       adacc::Bytes(workspace.get(), adacc::Shape(bytes)));
    const double middle = adacc::steady_seconds();
    ctx.parallel(static_cast<std::size_t>(workers), eigen_tile);
    const double end = adacc::steady_seconds();
    our_times.push_back(middle - start);
    eigen_times.push_back(end - middle);
    ratios.push_back((end - middle) / (middle - start));
    if (blas) {
      ctx.parallel(static_cast<std::size_t>(workers), blas_tile);
      const double last = adacc::steady_seconds();
      blas_times.push_back(last - end);
      blas_ratios.push_back((last - end) / (middle - start));
    }
    state.SetIterationTime(middle - start);
  }
  if (!alike(ours, eigens)) state.SkipWithError("results differ from Eigen's");
  if (blas && !alike(ours, blases)) state.SkipWithError("results differ from the BLAS's");
  const double flop =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  state.counters["ours_GFLOPs"] = flop / median(our_times) * 1e-9;
  state.counters["eigen_GFLOPs"] = flop / median(eigen_times) * 1e-9;
  state.counters["ours_over_eigen"] = median(ratios);
  if (!blas_times.empty()) {
    state.counters["blas_GFLOPs"] = flop / median(blas_times) * 1e-9;
    state.counters["ours_over_blas"] = median(blas_ratios);
  }
  state.counters["ours_over_peak"] = flop / median(our_times) / (peak_flops() * workers);
  state.counters["workspace_KiB"] = static_cast<double>(bytes) / 1024;
}

/// The small products of blockwise attention and of an output head's tiles: gemm_tile.
void tile_pair(benchmark::State& state, Kind kind, long m, long n, long k) {
  const Matrix a = kind == Kind::tn ? Matrix::Random(k, m) : Matrix::Random(m, k);
  const Matrix b = kind == Kind::nt ? Matrix::Random(n, k) : Matrix::Random(k, n);
  Matrix ours = Matrix::Zero(m, n), eigens = ours, blases = ours;
  const bench::Blas& blas = bench::Blas::get();
  const auto rows = static_cast<std::size_t>(m), cols = static_cast<std::size_t>(n),
             depth = static_cast<std::size_t>(k);
  const Operand<float> left =
      kind == Kind::tn ? Operand<float>{a.data(), 1, rows} : Operand<float>{a.data(), depth, 1};
  const Operand<float> right =
      kind == Kind::nt ? Operand<float>{b.data(), 1, depth} : Operand<float>{b.data(), cols, 1};
  const std::size_t bytes = adacc::gemm_tile_workspace_bytes<float>(rows, cols, depth);
  const std::unique_ptr<std::byte, void (*)(void*)> scratch(
      static_cast<std::byte*>(std::aligned_alloc(64, adacc::align_up(bytes))), std::free);
  constexpr int rounds = 50;
  std::vector<double> our_times, eigen_times, ratios, blas_times, blas_ratios;
  for (auto _ : state) {
    const double start = adacc::steady_seconds();
    for (int i = 0; i < rounds; ++i)
      adacc::gemm_tile<float>(rows, cols, depth, left, right, ours.data(), cols, Accumulate::no,
                              adacc::Bytes(scratch.get(), adacc::Shape(bytes)));
    const double middle = adacc::steady_seconds();
    for (int i = 0; i < rounds; ++i) {
      if (kind == Kind::nt) eigens.noalias() = a * b.transpose();
      if (kind == Kind::nn) eigens.noalias() = a * b;
      if (kind == Kind::tn) eigens.noalias() = a.transpose() * b;
    }
    const double end = adacc::steady_seconds();
    our_times.push_back(middle - start);
    eigen_times.push_back(end - middle);
    ratios.push_back((end - middle) / (middle - start));
    if (blas) {
      for (int i = 0; i < rounds; ++i)
        blas.sgemm(kind == Kind::tn, kind == Kind::nt, m, n, k, a.data(), a.cols(), b.data(),
                   b.cols(), blases.data(), n);
      const double last = adacc::steady_seconds();
      blas_times.push_back(last - end);
      blas_ratios.push_back((last - end) / (middle - start));
    }
    state.SetIterationTime(middle - start);
  }
  if (!alike(ours, eigens)) state.SkipWithError("results differ from Eigen's");
  if (blas && !alike(ours, blases)) state.SkipWithError("results differ from the BLAS's");
  const double flop =
      2.0 * rounds * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  state.counters["ours_GFLOPs"] = flop / median(our_times) * 1e-9;
  state.counters["eigen_GFLOPs"] = flop / median(eigen_times) * 1e-9;
  state.counters["ours_over_eigen"] = median(ratios);
  if (!blas_times.empty()) {
    state.counters["blas_GFLOPs"] = flop / median(blas_times) * 1e-9;
    state.counters["ours_over_blas"] = median(blas_ratios);
  }
  state.counters["ours_over_peak"] = flop / median(our_times) / peak_flops();
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// A layer's product over `rows` rows in `parts` calls: nt and nn have as many rows of C, tn adds over
/// as many of k.
void in_parts(benchmark::State& state, Kind kind, std::size_t rows, std::size_t in, std::size_t out,
              std::size_t parts) {
  adacc::Cpu ctx;
  const auto elems = [](std::size_t count) {
    return std::vector<float>(count + 16, 0.5F);  // with room to align
  };
  std::vector<float> x = elems(rows * in), y = elems(rows * out), w = elems(in * out);
  const std::size_t bytes = std::max({adacc::gemm_workspace_bytes<float>(rows, out, in, 1),
                                      adacc::gemm_workspace_bytes<float>(rows, in, out, 1),
                                      adacc::gemm_workspace_bytes<float>(out, in, rows, 1)});
  const std::unique_ptr<std::byte, void (*)(void*)> workspace(
      static_cast<std::byte*>(std::aligned_alloc(64, adacc::align_up(bytes))), std::free);
  const adacc::Bytes scratch(workspace.get(), adacc::Shape(bytes));
  const Operand<float> right =
      kind == Kind::nt ? Operand<float>{w.data(), 1, in} : Operand<float>{w.data(), in, 1};
  const auto run = [&](std::size_t count) {
    for (std::size_t first = 0; first < rows; first += rows / count) {
      const std::size_t some = rows / count;
      float *const xs = x.data() + first * in, *const ys = y.data() + first * out;
      if (kind == Kind::nt)
        adacc::gemm<float>(ctx, some, out, in, {xs, in, 1}, right, ys, out, Accumulate::no,
                           scratch);
      if (kind == Kind::nn)
        adacc::gemm<float>(ctx, some, in, out, {ys, out, 1}, right, xs, in, Accumulate::no,
                           scratch);
      if (kind == Kind::tn)
        adacc::gemm<float>(ctx, out, in, some, {ys, 1, out}, {xs, in, 1}, w.data(), in,
                           Accumulate::yes, scratch);
    }
  };
  const auto pack = [&] {
    const std::size_t n = kind == Kind::nt ? out : in, k = kind == Kind::nt ? in : out;
    using Blocks = adacc::detail::GemmBlocks<float>;
    const Blocks block(rows, n, k);
    float* const to = static_cast<float*>(static_cast<void*>(workspace.get()));
    for (std::size_t j0 = 0; j0 < n; j0 += block.cols)
      for (std::size_t p0 = 0; p0 < k; p0 += block.k) {
        const std::size_t cols = std::min(block.cols, n - j0), depth = std::min(block.k, k - p0);
        for (std::size_t j = 0; j < cols; j += Blocks::panel)
          adacc::detail::pack_panel(std::min(Blocks::panel, cols - j), depth, right.at(p0, j0 + j),
                                    to + j * depth);
      }
  };
  std::vector<double> ratios, packing;
  for (auto _ : state) {
    const double start = processor_seconds();
    run(1);
    const double whole = processor_seconds() - start;
    run(parts);
    const double cut = processor_seconds() - start - whole;
    pack();
    const double packed = processor_seconds() - start - whole - cut;
    ratios.push_back(cut / whole);
    if (kind != Kind::tn) packing.push_back(packed * static_cast<double>(parts) / cut);
    state.SetIterationTime(cut);
  }
  state.counters["cut_over_whole"] = median(ratios);
  if (!packing.empty()) state.counters["packing_share"] = median(packing);
}

}  // namespace

int main(int argc, char** argv) {
  const char* const names[] = {"nt", "nn", "tn"};
  const auto add = [&](Kind kind, long m, long n, long k) {
    for (int workers = 1; workers <= 2; ++workers) {
      const std::string name = std::string(names[static_cast<int>(kind)]) + "/" +
                               std::to_string(m) + "x" + std::to_string(n) + "x" +
                               std::to_string(k) + "/threads:" + std::to_string(workers);
      benchmark::RegisterBenchmark(name.c_str(), pair, kind, m, n, k, workers)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  };
  add(Kind::nn, 1024, 1024, 1024);
  const long rows = 1024;
  for (const auto& [in, out] :
       {std::pair{384L, 384L}, {384L, 1152L}, {384L, 1536L}, {1536L, 384L}}) {
    add(Kind::nt, rows, out, in);
    add(Kind::nn, rows, in, out);
    add(Kind::tn, out, in, rows);
  }
  for (const Kind kind : {Kind::nt, Kind::nn, Kind::tn})
    for (const std::size_t parts : {4U, 16U}) {
      const std::string name = std::string("cut_") + names[static_cast<int>(kind)] +
                               "/1024x384x1536/parts:" + std::to_string(parts);
      benchmark::RegisterBenchmark(name.c_str(), in_parts, kind, 1024U, 384U, 1536U, parts)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  for (const Kind kind : {Kind::nt, Kind::nn, Kind::tn})
    for (const auto& [m, n, k] : {std::tuple{64L, 64L, 64L}, {64L, 256L, 384L}}) {
      const std::string name = std::string("tile_") + names[static_cast<int>(kind)] + "/" +
                               std::to_string(m) + "x" + std::to_string(n) + "x" +
                               std::to_string(k);
      benchmark::RegisterBenchmark(name.c_str(), tile_pair, kind, m, n, k)->UseManualTime();
    }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("blas", bench::Blas::get().words());
  benchmark::RunSpecifiedBenchmarks();
}
