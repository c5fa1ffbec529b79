// SPDX-License-Identifier: MIT
/// Rows checked on a device (adapter/torch/check_rows.cuh) against the error of the same encoding on the CPU: with limits
/// a tenth above and below the error of all rows, the device finds rows that fail where the CPU would decline, and no
/// others. Skipped (77) without a device.
#include <adacc/adapter/torch/encoding_error.hpp>
#include <adacc/codec/bf16.hpp>
#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <memory>
#include <random>

#include "check_rows_cases.hpp"
#include "on_device.hpp"

namespace {

using namespace adacc;
using torch::RowLimits;

int failures = 0, declined = 0, taken = 0, full = 0;

/// Tensors with rows, columns and elements of unlike scale.
std::vector<float> numbers(int kind, std::size_t rows, std::size_t cols, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * cols);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float value = normal(generator);
    const std::size_t row = i / cols, col = i % cols;
    x[i] = kind == 0   ? value
           : kind == 1 ? value * std::pow(10.0F, static_cast<float>(row % 9) - 4)
           : kind == 2 ? value * std::pow(10.0F, static_cast<float>(col % 9) - 4)
           : kind == 3 ? (generator() % 20 == 0 ? 30 * value : 0.1F * value)
           : kind == 4 ? 1e-25F * value
           : kind == 5 ? 0
           : kind == 6 ? (row == 5 ? 1e17F : 1) * value
                       : value;
  }
  if (kind == 7) {
    x[3 * cols + 1] = std::numeric_limits<float>::infinity();
    x[(rows - 1) * cols] = std::numeric_limits<float>::quiet_NaN();
    x[(rows / 2) * cols + 2] = 3e38F;
  }
  return x;
}

struct Limit {
  const char* name;
  RowLimits limits;
  bool fails;  ///< a row, on the CPU
};

template <class Codec, class T>
void compare(const char* codec, int kind, std::size_t rows, std::size_t cols, std::size_t part,
             unsigned seed) {
  const std::vector<float> floats = numbers(kind, rows, cols, seed);
  CheckedEncoding<T> encoding{};
  for (const float each : floats) encoding.x.push_back(detail::from_number<T>(each));
  encoding.rows = encoding.piece = rows, encoding.cols = cols, encoding.part = part;
  std::vector<std::byte> memory(Codec::encoded_bytes(rows, cols, dtype_of<T>) + 64);
  void* place = memory.data();
  std::size_t space = memory.size();
  auto* const to = static_cast<std::byte*>(std::align(64, memory.size() - 64, place, space));
  const Bytes blob(to, Shape(memory.size() - 64));
  const View<const T> x(encoding.x.data(), Shape(rows, cols));
  Cpu cpu;
  if (Codec::encode(cpu, x, blob)) return;
  const torch::EncodingError error = torch::encoding_error<Codec>(cpu, x, {part, false}, blob);
  encoding.blobs.emplace_back(to, to + blob.size());
  encoding.scales.push_back(torch::detail::row_scales<Codec, T>(rows, cols));

  std::vector<Limit> all{{"no limit", {}, !error.numbers}};
  for (const double share : {0.9, 1.1}) {
    const bool above = !error.numbers || share < 1;
    if (error.row > 0 && torch::detail::has_scales<Codec>)
      all.push_back({"row", {share * error.row, 0, 0}, above});
    if (error.step > 0)
      all.push_back({"step", {0, static_cast<float>(share) * error.step, 0}, above});
    if (error.mean_square > 0)
      all.push_back({"mean square", {0, 0, share * error.mean_square}, above});
  }
  for (const Limit& one : all) {
    encoding.limits = one.limits;
    const FoundRows found = found_on_device(encoding);
    const torch::SideRows side(rows, cols * sizeof(T));
    const bool fails = found.report.failed > 0;
    (fails ? declined : taken) += 1;
    full += found.report.failed > side.room ? 1 : 0;
    bool good = found.report.stamp == 7 && fails == one.fails && found.exact &&
                found.kept.size() == std::min<std::size_t>(found.report.failed, side.room);
    for (std::size_t i = 0; i < found.kept.size(); ++i)
      good = good && found.kept[i] < rows && (i == 0 || found.kept[i - 1] < found.kept[i]);
    // A row is kept for a mean square of its own.
    for (const std::uint32_t row : found.kept) {
      double most = 0;
      for (std::size_t c = 0; c < cols && one.limits.mean_square > 0; c += part) {
        const std::size_t n = std::min(part, cols - c);
        const double square =
            torch::detail::square_of(encoding.x.data() + row * cols + c, n, false);
        // One that is no number is a reason, too.
        most = square < torch::largest_square ? std::max(most, square / static_cast<double>(n))
                                              : std::numeric_limits<double>::infinity();
      }
      good = good && most >= one.limits.mean_square * (1 - 1e-6);
    }
    // Rows that fail are in no sum.
    good = good && std::isfinite(found.report.noise) && std::isfinite(found.report.square);
    // The sums of the rows that stand are the error of all, if all stand.
    const double whole = found.report.square > 0 ? found.report.noise / found.report.square : 0;
    if (!fails) good = good && std::abs(whole - error.whole) <= 1e-6 * error.whole;
    if (kind == 7 && rows >= 192 && *one.name == 'n')
      good =
          good && found.kept == std::vector<std::uint32_t>{3, static_cast<std::uint32_t>(rows / 2),
                                                           static_cast<std::uint32_t>(rows - 1)};
    if (good) continue;
    ++failures;
    std::printf(
        "FAILED: %s of %zu bytes, kind %d, %zu x %zu in parts of %zu, %s: %u rows, the CPU "
        "says %d; %s; error of all %g, %g\n",
        codec, sizeof(T), kind, rows, cols, part, one.name, found.report.failed, one.fails,
        found.exact ? "exact" : "not exact", whole, error.whole);
  }
}

template <class T>
void compare_all() {
  struct {
    std::size_t rows, cols, part;
  } const shapes[] = {{192, 128, 128}, {200, 96, 32}, {64, 300, 100}, {17, 512, 64}, {257, 40, 40}};
  for (std::size_t i = 0; i < 16; ++i) {
    const auto& [rows, cols, part] = shapes[i % std::size(shapes)];
    const int kind = static_cast<int>(i % 8);
    const auto seed = static_cast<unsigned>(i);
    compare<Int8Outlier, T>("int8", kind, rows, cols, part, seed);
    compare<Int4Outlier, T>("int4", kind, rows, cols, part, seed);
    compare<Int8Outlier::for_unlike_rows, T>("int8 by rows", kind, rows, cols, part, seed);
    compare<Int4Outlier::for_unlike_rows, T>("int4 by rows", kind, rows, cols, part, seed);
    compare<Bf16, T>("bf16", kind, rows, cols, cols, seed);
  }
}

}  // namespace

int main() {
  return on_device([](cudaStream_t) {
    compare_all<float>();
    compare_all<bfloat16>();
    std::printf("%d checks found rows that fail, %d of them more than have room; %d found none\n",
                declined, full, taken);
    if (declined < 100 || taken < 100 || full < 10) ++failures;
    return failures == 0 ? 0 : 1;
  });
}
