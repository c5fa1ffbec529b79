// SPDX-License-Identifier: MIT
/// Matrix products at the shapes of a GPT: ours beside Eigen's, and both beside the bound.
///
/// Every repetition of a pair runs ours and Eigen's in turn, so that a noisy machine disturbs
/// both. Counters: GFLOP/s of each (medians), their ratio, and ours over the multiply-add peak that
/// the same run measures. With two threads Eigen multiplies one block of rows on each.
#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <adacc/core/steady_clock.hpp>
#include <adacc/layer/gemm.hpp>

namespace {

using adacc::Accumulate;
using adacc::Operand;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

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
  using V = adacc::detail::Simd<float>::type;
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
  Matrix ours = Matrix::Zero(m, n), eigens = Matrix::Zero(m, n);
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
  std::vector<double> our_times, eigen_times, ratios;
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
    state.SetIterationTime(middle - start);
  }
  if ((ours - eigens).norm() > 1e-4F * eigens.norm()) state.SkipWithError("results differ");
  const double flop =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  state.counters["ours_GFLOPs"] = flop / median(our_times) * 1e-9;
  state.counters["eigen_GFLOPs"] = flop / median(eigen_times) * 1e-9;
  state.counters["ours_over_eigen"] = median(ratios);
  state.counters["ours_over_peak"] = flop / median(our_times) / (peak_flops() * workers);
  state.counters["workspace_KiB"] = static_cast<double>(bytes) / 1024;
}

/// The small products of blockwise attention and of an output head's tiles: gemm_tile.
void tile_pair(benchmark::State& state, Kind kind, long m, long n, long k) {
  const Matrix a = kind == Kind::tn ? Matrix::Random(k, m) : Matrix::Random(m, k);
  const Matrix b = kind == Kind::nt ? Matrix::Random(n, k) : Matrix::Random(k, n);
  Matrix ours = Matrix::Zero(m, n), eigens = Matrix::Zero(m, n);
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
  std::vector<double> our_times, eigen_times, ratios;
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
    state.SetIterationTime(middle - start);
  }
  if ((ours - eigens).norm() > 1e-4F * eigens.norm()) state.SkipWithError("results differ");
  const double flop =
      2.0 * rounds * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  state.counters["ours_GFLOPs"] = flop / median(our_times) * 1e-9;
  state.counters["eigen_GFLOPs"] = flop / median(eigen_times) * 1e-9;
  state.counters["ours_over_eigen"] = median(ratios);
  state.counters["ours_over_peak"] = flop / median(our_times) / peak_flops();
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
    for (const auto& [m, n, k] : {std::tuple{64L, 64L, 64L}, {64L, 256L, 384L}}) {
      const std::string name = std::string("tile_") + names[static_cast<int>(kind)] + "/" +
                               std::to_string(m) + "x" + std::to_string(n) + "x" +
                               std::to_string(k);
      benchmark::RegisterBenchmark(name.c_str(), tile_pair, kind, m, n, k)->UseManualTime();
    }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
