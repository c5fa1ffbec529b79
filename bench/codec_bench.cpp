// SPDX-License-Identifier: MIT
/// Codecs against memcpy of the same floats: each on every input, encode and decode.
///
/// Machines are shared and drift, so no time stands alone: every iteration copies the floats and
/// then runs the codec, on the same threads, and `over_memcpy` is the median of these ratios;
/// `best_over_best` is the ratio of the shortest times, which a machine that is busy with other
/// things disturbs less, and `cpu_over_memcpy`, on one thread, the median ratio of processor times,
/// in which waiting for a turn does not count. A time printed is the codec's. Tensors have 768
/// columns (256 for 64 KiB). All codecs and options run at 64 MiB, the default ones from 64 KiB to
/// 1 GiB. Small tensors repeat within an iteration, so that the clock can see them.
///
///     codec_bench --benchmark_filter='encode/int8_outlier/.*/64MiB/threads:1/'
///     codec_bench --benchmark_format=json > codec_bench.json
#include <benchmark/benchmark.h>

#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/core/bytes.hpp>
#include <adacc/core/steady_clock.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "codec_inputs.hpp"
#include "codec_list.hpp"

namespace {

using adacc::GiB;
using adacc::KiB;
using adacc::MiB;
using codec_inputs::Kind;

/// The time that processors worked for this program.
double processor_now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

enum class Direction { encode, decode };

struct Case {
  codec_list::Entry codec;
  Direction direction;
  Kind kind;
  std::size_t bytes;
  int threads;

  std::size_t cols() const { return bytes < MiB ? 256 : 768; }
  std::size_t rows() const { return bytes / (cols() * sizeof(float)); }
  std::size_t floats() const { return rows() * cols(); }
  /// Runs within an iteration.
  int repeats() const { return static_cast<int>(std::max<std::size_t>(1, 4 * MiB / bytes)); }
  /// Pairs of memcpy and codec.
  benchmark::IterationCount pairs() const {
    return bytes <= 16 * MiB ? 31 : bytes <= 64 * MiB ? 11 : bytes <= 256 * MiB ? 7 : 5;
  }
};

/// The tensor, room for what is decoded or copied, and a blob; kept while cases ask for the same.
class Memory {
 public:
  adacc::Error prepare(const Case& now) {
    const std::size_t floats = now.floats();
    const std::size_t blob = now.codec.encoded_bytes(now.rows(), now.cols(), adacc::Dtype::f32);
    if (blob == 0) return adacc::Error::say("the codec cannot encode such a tensor");
    if (adacc::Error why = grow(y_, floats, "the copy")) return why;
    if (adacc::Error why = grow(blob_, blob, "the blob")) return why;
    if (kind_ == now.kind && floats_ == floats && cols_ == now.cols()) return {};
    if (adacc::Error why = grow(x_, floats, "the tensor")) return why;
    // Making normal numbers takes longer than all there is to measure: a stretch of them, repeated.
    const std::size_t rows = std::min<std::size_t>(now.rows(), 4096);
    auto input = codec_inputs::make(now.kind, rows, now.cols());
    if (!input) return input.error;
    const std::size_t stretch = rows * now.cols();
    for (std::size_t first = 0; first < floats; first += stretch)
      std::memcpy(x_.data() + first, input->x.data(),
                  std::min(stretch, floats - first) * sizeof(float));
    kind_ = now.kind, floats_ = floats, cols_ = now.cols();
    return {};
  }

  const float* x() const { return x_.data(); }
  float* y() { return y_.data(); }
  std::byte* blob() { return blob_.data(); }

 private:
  template <class T>
  static adacc::Error grow(adacc::Block<T>& block, std::size_t elems, const char* what) {
    if (block.size() >= elems) return {};
    block = adacc::Block<T>();
    auto made = adacc::Block<T>::make(elems, what);
    if (!made) return made.error;
    block = std::move(*made);
    return {};
  }

  adacc::Block<float> x_, y_;
  adacc::Block<std::byte> blob_;
  Kind kind_ = Kind::clean;
  std::size_t floats_ = 0, cols_ = 0;
};

/// memcpy on all threads, each a stretch of its own.
void copy(const adacc::Cpu& cpu, const float* from, float* to, std::size_t floats) {
  const auto parts = static_cast<std::size_t>(cpu.workers());
  if (parts == 1) {
    std::memcpy(to, from, floats * sizeof(float));
    return;
  }
  cpu.parallel(parts, [=](std::size_t i, int) {
    const std::size_t first = floats * i / parts, end = floats * (i + 1) / parts;
    std::memcpy(to + first, from + first, (end - first) * sizeof(float));
  });
}

void run(benchmark::State& state, const Case& now_running) {
  static Memory memory;
  static adacc::EigenPool one(1), two(2);
  const Case& c = now_running;
  adacc::Cpu cpu{adacc::ExecutorRef(c.threads == 1 ? one : two)};
  if (const adacc::Error why = memory.prepare(c)) {
    state.SkipWithError(why.text());
    return;
  }
  const adacc::Shape shape(c.rows(), c.cols());
  const adacc::Shape size(c.codec.encoded_bytes(c.rows(), c.cols(), adacc::Dtype::f32));
  const adacc::View<const float> x(memory.x(), shape);
  const adacc::View<float> y(memory.y(), shape);
  const adacc::Bytes blob(memory.blob(), size);
  adacc::Error error = c.codec.encode(cpu, x, blob);
  if (!error) error = c.codec.decode(cpu, blob, y);
  std::vector<double> ratios, processor_ratios, copies, codecs;
  for (auto _ : state) {
    const double processor_start = processor_now(), start = adacc::steady_seconds();
    for (int i = 0; i < c.repeats(); ++i) {
      copy(cpu, x.data(), y.data(), c.floats());
      benchmark::ClobberMemory();
    }
    const double middle = adacc::steady_seconds(), processor_middle = processor_now();
    for (int i = 0; i < c.repeats() && !error; ++i) {
      error = c.direction == Direction::encode ? c.codec.encode(cpu, x, blob)
                                               : c.codec.decode(cpu, blob, y);
      benchmark::ClobberMemory();
    }
    const double end = adacc::steady_seconds(), processor_end = processor_now();
    processor_ratios.push_back((processor_end - processor_middle) /
                               (processor_middle - processor_start));
    ratios.push_back((end - middle) / (middle - start));
    copies.push_back((middle - start) / c.repeats());
    codecs.push_back((end - middle) / c.repeats());
    state.SetIterationTime(codecs.back());
  }
  if (error) {
    state.SkipWithError(error.text());
    return;
  }
  const double gigabytes = 1e-9 * static_cast<double>(c.floats() * sizeof(float));
  state.counters["over_memcpy"] = median(ratios);
  state.counters["best_over_best"] = *std::min_element(codecs.begin(), codecs.end()) /
                                     *std::min_element(copies.begin(), copies.end());
  if (c.threads == 1) state.counters["cpu_over_memcpy"] = median(processor_ratios);
  state.counters["GB_per_s"] = gigabytes / median(codecs);
  state.counters["memcpy_GB_per_s"] = gigabytes / median(copies);
  state.counters["bits_per_element"] =
      8 * static_cast<double>(size.elems()) / static_cast<double>(c.floats());
}

std::string size_name(std::size_t bytes) {
  if (bytes >= GiB) return std::to_string(bytes / GiB) + "GiB";
  if (bytes >= MiB) return std::to_string(bytes / MiB) + "MiB";
  return std::to_string(bytes / KiB) + "KiB";
}

void add(const Case& c) {
  const std::string name = std::string(c.direction == Direction::encode ? "encode/" : "decode/") +
                           c.codec.name + "/" + codec_inputs::name_of(c.kind) + "/" +
                           size_name(c.bytes) + "/threads:" + std::to_string(c.threads);
  benchmark::RegisterBenchmark(name.c_str(), [c](benchmark::State& state) { run(state, c); })
      ->UseManualTime()
      ->Iterations(c.pairs())
      ->Unit(benchmark::kMicrosecond);
}

/// Cases on one input follow each other, so that it is made once.
void add_all(Kind kind, const std::vector<codec_list::Entry>& codecs) {
  for (const std::size_t bytes : {64 * KiB, MiB, 16 * MiB, 64 * MiB, 256 * MiB, GiB})
    for (const codec_list::Entry& codec : codecs) {
      if (!codec.is_default() && bytes != 64 * MiB) continue;
      if (kind != Kind::clean && codec.is_quant() && bytes == GiB) continue;
      for (const int threads : {1, 2})
        for (const Direction direction : {Direction::encode, Direction::decode})
          if (threads == 1 || codec.is_default() || kind == Kind::clean)
            add({codec, direction, kind, bytes, threads});
    }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<codec_list::Entry> lossy = codec_list::lossy();
  for (const Kind kind : {Kind::clean, Kind::channels, Kind::massive}) add_all(kind, lossy);
  add_all(Kind::relu, {codec_list::mask()});
  add_all(Kind::indices, codec_list::indices());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
