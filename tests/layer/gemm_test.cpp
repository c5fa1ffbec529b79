// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <adacc/core/guarded.hpp>
#include <adacc/core/random.hpp>
#include <adacc/layer/math/gemm.hpp>
#include <adacc/layer/math/row_product.hpp>
#include <adacc/testing/permuted_executor.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../test_size.hpp"
#include "layer_run.hpp"

namespace gemm_test {

using namespace adacc;

namespace {

struct Sizes {
  std::size_t m, n, k;
};

/// How an operand lies in memory.
enum class Lie { row_major, transposed, strided };

template <class T>
struct Matrix {
  std::size_t rows, cols;
  std::vector<T> elements;  // exactly as many as can be reached
  Operand<T> operand;

  Matrix(std::size_t r, std::size_t c, Lie lie, std::uint32_t stream) : rows(r), cols(c) {
    const std::size_t padding = stream % 3;  // a leading dimension above the extent
    std::size_t row_stride = 0, col_stride = 0;
    if (lie == Lie::row_major) row_stride = c + padding, col_stride = 1;
    if (lie == Lie::transposed) row_stride = 1, col_stride = r + padding;
    if (lie == Lie::strided) row_stride = 3 * c + padding, col_stride = 3;
    const bool any = r > 0 && c > 0;
    elements.resize(any ? (r - 1) * row_stride + (c - 1) * col_stride + 1 : 0);
    for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = layer_tests::value(stream, i);
    operand = {elements.data(), row_stride, col_stride};
  }
  double operator()(std::size_t i, std::size_t j) const {
    return static_cast<double>(elements[i * operand.row_stride + j * operand.col_stride]);
  }
};

/// The product by definition, in double: c (m x n, dense) = start + a b.
template <class T>
std::vector<double> reference(const Matrix<T>& a, const Matrix<T>& b, double start) {
  std::vector<double> c(a.rows * b.cols, start);
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t p = 0; p < a.cols; ++p)
      for (std::size_t j = 0; j < b.cols; ++j) c[i * b.cols + j] += a(i, p) * b(p, j);
  return c;
}

/// Compares with the reference, and checks that the gaps between rows of c kept their `start`.
template <class T>
void check_result(const T* c, std::size_t ldc, const std::vector<double>& expected, Sizes s,
                  T start, const T* bias = nullptr) {
  const double tolerance = (sizeof(T) == 4 ? 2e-6 : 4e-15) * (static_cast<double>(s.k) + 4) * 9;
  double worst = 0;
  bool gaps = true;
  for (std::size_t i = 0; i < s.m; ++i) {
    for (std::size_t j = 0; j < s.n; ++j) {
      const double want =
          expected[i * s.n + j] + (bias != nullptr ? static_cast<double>(bias[j]) : 0);
      const double error = std::fabs(static_cast<double>(c[i * ldc + j]) - want);
      if (!std::isnan(worst) && !(error <= worst)) worst = error;
    }
    for (std::size_t j = s.n; j < ldc && i + 1 < s.m; ++j) gaps = gaps && c[i * ldc + j] == start;
  }
  CHECK(worst <= tolerance);
  CHECK(gaps);
}

/// One product in every form: gemm (with and without bias), gemm_tile, and accumulation.
template <class T>
void check_product(Sizes s, Lie lie_a, Lie lie_b, std::uint32_t seed) {
  CAPTURE(s.m);
  CAPTURE(s.n);
  CAPTURE(s.k);
  CAPTURE(static_cast<int>(lie_a));
  CAPTURE(static_cast<int>(lie_b));
  const Matrix<T> a(s.m, s.k, lie_a, 10 + seed), b(s.k, s.n, lie_b, 11 + seed);
  std::vector<T> bias(s.n);
  for (std::size_t j = 0; j < s.n; ++j) bias[j] = layer_tests::value(12 + seed, j);
  const std::size_t ldc = s.n + seed % 4;
  const std::size_t elems = s.m == 0 ? 0 : (s.m - 1) * ldc + s.n;
  const T start = T(0.75);
  testing::PermutedExecutor executor(2, seed);
  Cpu ctx(executor);
  testing::GuardedBlock workspace(gemm_workspace_bytes<T>(s.m, s.n, s.k, ctx.workers()));
  testing::GuardedBlock scratch(gemm_tile_workspace_bytes<T>(s.m, s.n, s.k));
  for (const Accumulate acc : {Accumulate::no, Accumulate::yes}) {
    const auto expected = reference(a, b, acc == Accumulate::yes ? 0.75 : 0.0);
    testing::GuardedBlock c(elems * sizeof(T)), t(elems * sizeof(T));
    for (testing::GuardedBlock* block : {&c, &t})
      for (std::size_t i = 0; i < elems; ++i) block->as<T>()[i] = start;
    gemm<T>(ctx, s.m, s.n, s.k, a.operand, b.operand, c.as<T>(), ldc, acc, workspace.bytes());
    check_result(c.as<T>(), ldc, expected, s, start);
    gemm_tile<T>(s.m, s.n, s.k, a.operand, b.operand, t.as<T>(), ldc, acc, scratch.bytes());
    check_result(t.as<T>(), ldc, expected, s, start);
    CHECK(c.intact());
    CHECK(t.intact());
    if (acc == Accumulate::yes) continue;
    for (std::size_t i = 0; i < elems; ++i) c.as<T>()[i] = start;
    gemm<T>(ctx, s.m, s.n, s.k, a.operand, b.operand, c.as<T>(), ldc, acc, workspace.bytes(),
            bias.data());
    check_result(c.as<T>(), ldc, expected, s, start, bias.data());
  }
  CHECK(workspace.intact());
  CHECK(scratch.intact());
}

/// The same product with another executor: the bytes of c.
std::vector<float> product_on(ExecutorRef executor, Sizes s, Lie lie_a, Lie lie_b) {
  const Matrix<float> a(s.m, s.k, lie_a, 20), b(s.k, s.n, lie_b, 21);
  std::vector<float> c(s.m * s.n, 0.5F);
  Cpu ctx(executor);
  testing::GuardedBlock workspace(gemm_workspace_bytes<float>(s.m, s.n, s.k, ctx.workers()));
  gemm<float>(ctx, s.m, s.n, s.k, a.operand, b.operand, c.data(), s.n, Accumulate::yes,
              workspace.bytes());
  CHECK(workspace.intact());
  return c;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Two products with one B, which the second finds packed: both must have the bits of products that pack
/// for themselves, and the second must read nothing else of B.
template <class T>
void check_kept(Sizes s, Lie lie_b, std::uint32_t seed) {
  CAPTURE(s.m);
  CAPTURE(s.n);
  CAPTURE(s.k);
  testing::PermutedExecutor executor(2, seed);
  Cpu ctx(executor);
  testing::GuardedBlock workspace(gemm_workspace_bytes<T>(s.m, s.n, s.k, ctx.workers()));
  testing::GuardedBlock kept(packed_elems<T>(s.n, s.k) * sizeof(T));
  Matrix<T> b(s.k, s.n, lie_b, 30 + seed);
  std::vector<T> c(s.m * s.n), again(c.size());
  for (const bool holds : {false, true}) {
    const Matrix<T> a(s.m, s.k, holds ? Lie::transposed : Lie::row_major, 31 + seed + holds);
    gemm<T>(ctx, s.m, s.n, s.k, a.operand, b.operand, c.data(), s.n, Accumulate::no,
            workspace.bytes());
    Operand<T> right = b.operand;
    if (holds) right.data = nullptr;
    gemm<T>(ctx, s.m, s.n, s.k, a.operand, right, again.data(), s.n, Accumulate::no,
            workspace.bytes(), nullptr, {kept.as<T>(), holds});
    CHECK(std::memcmp(c.data(), again.data(), c.size() * sizeof(T)) == 0);
  }
  CHECK(kept.intact());
}

/// A sum by definition: the products in the order of k, each rounded with its addition, or before.
float sum_in_order(const Matrix<float>& a, const Matrix<float>& b, std::size_t i, std::size_t j,
                   bool fused) {
  float sum = 0.5F;
  for (std::size_t p = 0; p < a.cols; ++p) {
    const float x = a.operand.at(i, p).data[0], y = b.operand.at(p, j).data[0];
    volatile float product = x * y;
    sum = fused ? std::fma(x, y, sum) : sum + product;
  }
  return sum;
}

/// A product at an instruction level, kept and packed anew: elements that differ from the sums by definition.
std::size_t wrong_at(InstructionLevel level, const Matrix<float>& a, const Matrix<float>& b,
                     bool fused) {
  const std::size_t m = a.rows, n = b.cols, k = a.cols;
  testing::GuardedBlock workspace(gemm_workspace_bytes<float>(m, n, k, 1));
  testing::GuardedBlock kept(packed_elems<float>(n, k) * sizeof(float));
  std::size_t wrong = 0;
  for (const bool holds : {false, true}) {
    std::vector<float> c(m * n, 0.5F);
    Cpu ctx;
    detail::gemm_at<float>(level, ctx, m, n, k, a.operand, b.operand, c.data(), n, Accumulate::yes,
                           workspace.bytes(), nullptr, {kept.as<float>(), holds});
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) wrong += c[i * n + j] != sum_in_order(a, b, i, j, fused);
  }
  CHECK(workspace.intact());
  CHECK(kept.intact());
  return wrong;
}

const Lie lies[] = {Lie::row_major, Lie::transposed, Lie::strided};

}  // namespace

TEST_CASE_TEMPLATE("gemm: a packed B that is kept gives the same bits", T, float, double) {
  std::uint32_t seed = 0;
  for (const Lie lie : {Lie::row_major, Lie::transposed})
    for (const std::size_t n : {1U, 47U, 49U, 800U, 1600U})
      for (const std::size_t k : {1U, 383U, 400U, 900U}) {
        ++seed;
        check_kept<T>({1 + seed % 40, n, k}, lie, seed);
      }
}

TEST_CASE("gemm: every small size, in every way that operands lie") {
  std::uint32_t seed = 0;
  for (std::size_t m = 0; m <= 10; ++m)
    for (const std::size_t n : {0U, 1U, 3U, 16U, 17U, 49U})
      for (const std::size_t k : {0U, 1U, 2U, 5U, 18U})
        for (const Lie lie_a : lies) {
          const Lie lie_b = lies[seed++ % 3];
          check_product<float>({m, n, k}, lie_a, lie_b, seed);
          check_product<double>({m, n, k}, lie_a, lie_b, seed);
        }
}

TEST_CASE("gemm: random sizes with tails, over several blocks of m, n and k" *
          doctest::test_suite("one_thread")) {
  const RandomKey key{7, 0, 0, 0, Purpose::probe};
  for (std::uint32_t trial = 0; trial < (test_sanitized ? 30 : 60); ++trial) {
    const auto draw = [&](std::uint32_t which, std::uint32_t below) {
      return 1 + std::size_t{random_word(key, 3 * trial + which)} % below;
    };
    const Sizes s{draw(0, 150), draw(1, trial % 10 == 0 ? 1700 : 200),
                  draw(2, trial % 10 == 5 ? 1300 : 300)};
    check_product<float>(s, lies[trial % 3], lies[trial / 3 % 3], trial);
    if (trial % 2 == 0) check_product<double>(s, lies[trial % 3], lies[trial / 3 % 3], trial);
  }
}

TEST_CASE("gemm: the same bits on any executor") {
  for (const Sizes s : {Sizes{200, 300, 500}, {1030, 50, 70}, {5, 1600, 390}, {97, 801, 64}})
    for (const Lie lie_a : lies)
      for (const Lie lie_b : {Lie::row_major, Lie::transposed}) {
        const auto serial = product_on({}, s, lie_a, lie_b);
        for (int workers = 1; workers <= 3; ++workers) {
          layer_tests::Threads threads(workers);
          CHECK(same_bits(serial, product_on(threads, s, lie_a, lie_b)));
          testing::PermutedExecutor permuted(workers, 3);
          CHECK(same_bits(serial, product_on(permuted, s, lie_a, lie_b)));
          CHECK(permuted.nested() == 0);
        }
      }
}

TEST_CASE("gemm: at every instruction level, each element is its sum in the order of k") {
  std::uint32_t seed = 40;
  for (const Sizes s : {Sizes{1, 1, 3}, {13, 50, 40}, {8, 48, 390}, {21, 101, 7}, {70, 30, 33}})
    for (const Lie lie : lies) {
      const Matrix<float> a(s.m, s.k, lie, ++seed), b(s.k, s.n, Lie::row_major, ++seed);
      bool before = false;
      for (const InstructionLevel level : instruction_levels) {
        if (!has_level(level)) continue;
        INFO(name_of(level), ": ", s.m, " x ", s.n, " x ", s.k);
        const bool fused = wrong_at(level, a, b, true) == 0;
        const bool separate = wrong_at(level, a, b, false) == 0;
        CHECK((fused || separate));
        // Levels with fused multiply-adds have the same bits.
        if (level > InstructionLevel::avx2) CHECK(fused == before);
        before = fused;
      }
    }
}

TEST_CASE_TEMPLATE("the product of a row with a transpose has the bits of gemm, at every level", T,
                   float, double) {
  std::uint32_t seed = 60;
  for (const std::size_t n : {1U, 5U, 33U, 130U, 700U})
    for (const std::size_t k : {0U, 3U, 4U, 66U, 390U, 800U})
      for (const bool strided : {false, true}) {
        CAPTURE(n);
        CAPTURE(k);
        const Matrix<T> a(1, k, strided ? Lie::strided : Lie::row_major, ++seed);
        const Matrix<T> b(k, n, Lie::transposed, ++seed);
        std::vector<T> bias(n);
        for (std::size_t j = 0; j < n; ++j) bias[j] = layer_tests::value(++seed, j);
        testing::PermutedExecutor executor(3, seed);
        Cpu ctx(executor);
        testing::GuardedBlock workspace(gemm_workspace_bytes<T>(1, n, k, ctx.workers()));
        for (const InstructionLevel level : instruction_levels) {
          if (!has_level(level)) continue;
          for (const int form : {0, 1, 2}) {
            const Accumulate acc = form == 0 ? Accumulate::yes : Accumulate::no;
            const T* const first = form == 2 ? bias.data() : nullptr;
            std::vector<T> want(n, T(0.5));
            testing::GuardedBlock c(n * sizeof(T));
            for (std::size_t j = 0; j < n; ++j) c.as<T>()[j] = T(0.5);
            detail::gemm_at<T>(level, ctx, 1, n, k, a.operand, b.operand, want.data(), n, acc,
                               workspace.bytes(), first);
            const detail::RowsInPlace<T> rows{b.operand.data, b.operand.col_stride, k};
            detail::row_product(level, ctx, n, k, a.operand.data, a.operand.col_stride, rows,
                                c.as<T>(), acc, first);
            CHECK(std::memcmp(want.data(), c.as<T>(), n * sizeof(T)) == 0);
            CHECK(c.intact());
          }
        }
      }
}

TEST_CASE("gemm: k = 0 writes zeros or the bias, or leaves C as it is") {
  for (const std::size_t n : {5U, 64U}) {
    std::vector<float> c(3 * n, 7), bias(n, 2);
    Cpu ctx;
    gemm<float>(ctx, 3, n, 0, {nullptr, 0, 1}, {nullptr, n, 1}, c.data(), n, Accumulate::yes, {});
    CHECK(c == std::vector<float>(3 * n, 7));
    gemm<float>(ctx, 3, n, 0, {nullptr, 0, 1}, {nullptr, n, 1}, c.data(), n, Accumulate::no, {},
                bias.data());
    CHECK(c == std::vector<float>(3 * n, 2));
    gemm<float>(ctx, 3, n, 0, {nullptr, 0, 1}, {nullptr, n, 1}, c.data(), n, Accumulate::no, {});
    CHECK(c == std::vector<float>(3 * n, 0));
    c.assign(3 * n, 7);
    gemm_tile<float>(3, n, 0, {nullptr, 0, 1}, {nullptr, n, 1}, c.data(), n, Accumulate::no, {});
    CHECK(c == std::vector<float>(3 * n, 0));
  }
}

TEST_CASE("gemm: a NaN or an infinity reaches the rows and columns that it belongs to, no others") {
  const std::size_t m = 9, n = 50, k = 20;
  std::vector<float> a(m * k, 1), b(k * n, 1), c(m * n);
  a[4 * k + 3] = INFINITY;
  b[2 * n + 49] = NAN;
  testing::GuardedBlock workspace(gemm_workspace_bytes<float>(m, n, k, 1));
  Cpu ctx;
  gemm<float>(ctx, m, n, k, {a.data(), k, 1}, {b.data(), n, 1}, c.data(), n, Accumulate::no,
              workspace.bytes());
  bool right = true;
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      const float value = c[i * n + j];
      right = right && (j == 49 ? std::isnan(value) : i == 4 ? std::isinf(value) : value == 20);
    }
  CHECK(right);
}

TEST_CASE("gemm: the workspace is modest, ends at the last byte written, and grows with workers") {
  for (const Sizes s : {Sizes{1024, 384, 384},
                        {1024, 1152, 384},
                        {1024, 1536, 384},
                        {1024, 384, 1536},
                        {384, 1536, 1024},
                        {1536, 384, 1024}}) {
    CHECK(gemm_workspace_bytes<float>(s.m, s.n, s.k, 2) <= 2 * MiB);
    CHECK(gemm_workspace_bytes<float>(s.m, s.n, s.k, 3) >
          gemm_workspace_bytes<float>(s.m, s.n, s.k, 2));
  }
  for (const Sizes s : {Sizes{3, 5, 7}, {40, 100, 20}, {70, 900, 33}, {20, 60, 1000}}) {
    const Matrix<float> a(s.m, s.k, Lie::row_major, 1), b(s.k, s.n, Lie::transposed, 2);
    std::vector<float> c(s.m * s.n);
    testing::GuardedBlock workspace(gemm_workspace_bytes<float>(s.m, s.n, s.k, 2));
    testing::PermutedExecutor executor(2);
    Cpu ctx(executor);
    gemm<float>(ctx, s.m, s.n, s.k, a.operand, b.operand, c.data(), s.n, Accumulate::no,
                workspace.bytes());
    CHECK(workspace.data()[workspace.size() - 1] != std::byte{0xFF});
    CHECK(workspace.intact());
  }
}

}  // namespace gemm_test
