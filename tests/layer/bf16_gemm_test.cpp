// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>
#include <adacc/core/guarded.hpp>
#include <adacc/core/random.hpp>
#include <adacc/layer/math/bf16_gemm.hpp>
#include <adacc/testing/permuted_executor.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "../host_mode.hpp"
#include "../test_size.hpp"
#include "layer_run.hpp"

namespace bf16_gemm_test {

using namespace adacc;

namespace {

/// What numbers a matrix has.
enum class Numbers { usual, all_magnitudes, near_zero, near_infinity, hostile };

/// Bits of a float of the kind, from random bits; its upper half is a bf16 of the kind.
std::uint32_t drawn(Numbers numbers, std::uint32_t random) {
  const std::uint32_t sign = random & 0x80000000, fraction = random & 0x7FFFFF;
  const std::uint32_t pick = random >> 23 & 0xFF;
  const auto with_exponent = [&](std::uint32_t e) { return sign | e << 23 | fraction; };
  switch (numbers) {
    case Numbers::usual: return with_exponent(123 + pick % 6);
    case Numbers::all_magnitudes: return with_exponent(pick % 255);
    case Numbers::near_zero: return with_exponent(pick % 4 == 0 ? 0 : 58 + pick % 10);
    case Numbers::near_infinity: return with_exponent(186 + pick % 6);
    default:
      switch (pick % 16) {
        case 0: return sign;
        case 1: return sign | 0x7F800000;
        case 2: return sign | 0x7FC00000;
        case 3: return sign | 0x7F810000;  // a signalling NaN
        case 4: return with_exponent(0);
        default: return with_exponent(pick % 255);
      }
  }
}
const Numbers kinds[] = {Numbers::usual, Numbers::all_magnitudes, Numbers::near_zero,
                         Numbers::near_infinity, Numbers::hostile};

enum class Lie { row_major, transposed, strided };
const Lie lies[] = {Lie::row_major, Lie::transposed, Lie::strided};

template <class T>
struct Matrix {
  std::vector<T> elements;  // exactly as many as can be reached
  Operand<T> operand;

  Matrix(std::size_t rows, std::size_t cols, Lie lie, Numbers numbers, std::uint32_t seed) {
    const std::size_t padding = seed % 3;
    std::size_t row_stride = cols + padding, col_stride = 1;
    if (lie == Lie::transposed) row_stride = 1, col_stride = rows + padding;
    if (lie == Lie::strided) row_stride = 3 * cols + padding, col_stride = 3;
    const bool any = rows > 0 && cols > 0;
    elements.resize(any ? (rows - 1) * row_stride + (cols - 1) * col_stride + 1 : 0);
    const RandomKey key{seed, 0, 0, 0, Purpose::probe};
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const std::uint32_t bits = drawn(numbers, random_word(key, i));
      if constexpr (sizeof(T) == 2) elements[i] = {static_cast<std::uint16_t>(bits >> 16)};
      else elements[i] = detail::bits_as<float>(bits);
    }
    operand = {elements.data(), row_stride, col_stride};
  }
};

struct Product {
  std::size_t m, n, k;
  Lie lie_a, lie_b;
  Numbers numbers;
  std::uint32_t seed;
  bool bias, add;
};

template <class Out>
Out rounded_to(float x) {
  if constexpr (sizeof(Out) == 4) return x;
  else return to_bfloat16(x);
}

/// Equal bits, or a NaN both.
bool same(float a, float b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
}
bool same(bfloat16 a, bfloat16 b) { return same(to_float(a), to_float(b)); }

/// Levels by the order in which they sum.
enum class Order { pairs, blocks };
constexpr Order order_of(InstructionLevel level) {
  return level == InstructionLevel::amx ? Order::blocks : Order::pairs;
}

/// Operands of a product, its first terms, and its result by the definition.
template <class B, class Out>
struct Case {
  Product p;
  Matrix<bfloat16> a;
  Matrix<B> b;
  std::vector<float> bias;
  std::vector<Out> start, expected, expected_of_blocks;

  explicit Case(const Product& product)
      : p(product), a(p.m, p.k, p.lie_a, p.numbers, 3 * p.seed),
        b(p.k, p.n, p.lie_b, p.numbers, 3 * p.seed + 1), bias(p.n), start(p.m * p.n),
        expected(p.m * p.n), expected_of_blocks(p.m * p.n) {
    const RandomKey key{p.seed, 1, 0, 0, Purpose::probe};
    for (std::size_t j = 0; j < p.n; ++j)
      bias[j] = detail::bits_as<float>(drawn(p.numbers, random_word(key, j)));
    for (std::size_t i = 0; i < start.size(); ++i)
      start[i] =
          rounded_to<Out>(detail::bits_as<float>(drawn(p.numbers, random_word(key, p.n + i))));
    for (std::size_t i = 0; i < p.m; ++i)
      for (std::size_t j = 0; j < p.n; ++j) {
        expected[i * p.n + j] = element(i, j, Order::pairs);
        expected_of_blocks[i * p.n + j] = element(i, j, Order::blocks);
      }
  }

  const std::vector<Out>& expected_of(InstructionLevel level) const {
    return order_of(level) == Order::blocks ? expected_of_blocks : expected;
  }

  Out element(std::size_t i, std::size_t j, Order order) const {
    float sum = p.bias ? bias[j] : 0;
    if constexpr (sizeof(Out) == 4)
      if (p.add) sum = start[i * p.n + j];
    const std::size_t of_block = 2 * detail::PairBlockSum::pairs;
    detail::PairBlockSum block;
    for (std::size_t q = 0; q < detail::round_up(p.k, order == Order::blocks ? of_block : 2);
         q += 2) {
      if (q >= p.k) block.add(0, 0);
      if (q < p.k) {
        std::uint32_t left = a.operand.at(i, q).data->bits;
        std::uint32_t right = detail::bf16_bits(*b.operand.at(q, j).data);
        if (q + 1 < p.k) {
          left |= std::uint32_t{a.operand.at(i, q + 1).data->bits} << 16;
          right |= detail::bf16_bits(*b.operand.at(q + 1, j).data) << 16;
        }
        if (order == Order::pairs) sum = detail::add_pair(sum, left, right);
        else block.add(left, right);
      }
      if (order == Order::blocks && (q + 2) % of_block == 0) sum = block.added_to(sum), block = {};
    }
    return rounded_to<Out>(sum);
  }

  /// Elements that are not as defined, if the product runs at the level: on two workers, in memory of exact size.
  std::size_t wrong_at(InstructionLevel level) const {
    testing::PermutedExecutor executor(2, p.seed);
    Cpu ctx(executor);
    testing::GuardedBlock workspace(bf16_gemm_workspace_bytes(p.m, p.n, p.k, 2));
    testing::GuardedBlock kept(bf16_packed_bytes(p.n, p.k));
    std::size_t wrong = 0;
    for (int form = 0; form < 3; ++form) {  // packed anew, kept, and found packed
      const std::size_t ldc = p.n + p.seed % 3;
      testing::GuardedBlock c(p.m == 0 ? 0 : ((p.m - 1) * ldc + p.n) * sizeof(Out), 0x55);
      for (std::size_t i = 0; i < p.m; ++i)
        for (std::size_t j = 0; j < p.n; ++j) c.as<Out>()[i * ldc + j] = start[i * p.n + j];
      PackedOperand<bfloat16> place = {};
      if (form > 0) place = {kept.as<bfloat16>(), form == 2};
      Operand<B> right = b.operand;
      if (form == 2) right.data = nullptr;
      detail::bf16_gemm_at(level, ctx, p.m, p.n, p.k, a.operand, right, c.as<Out>(), ldc,
                           p.add ? Accumulate::yes : Accumulate::no, workspace.bytes(),
                           p.bias ? bias.data() : nullptr, place);
      for (std::size_t i = 0; i < p.m; ++i)
        for (std::size_t j = 0; j < p.n; ++j)
          wrong += !same(c.as<Out>()[i * ldc + j], expected_of(level)[i * p.n + j]);
      std::byte gap[2 * sizeof(Out)];
      std::memset(gap, 0x55, sizeof gap);
      for (std::size_t i = 0; i + 1 < p.m; ++i)
        wrong += std::memcmp(c.as<Out>() + i * ldc + p.n, gap, (ldc - p.n) * sizeof(Out)) != 0;
      wrong += !(c.intact() && kept.intact() && workspace.intact());
    }
    return wrong;
  }
};

template <class B, class Out>
void check(const Product& product) {
  const Case<B, Out> it(product);
  for (const InstructionLevel level : instruction_levels) {
    if (!has_level(level)) continue;
    const std::size_t wrong = it.wrong_at(level);
    INFO(name_of(level), ": ", product.m, " x ", product.n, " x ", product.k, ", seed ",
         product.seed, ", numbers ", static_cast<int>(product.numbers));
    CHECK(wrong == 0);
  }
}

Product drawn_product(std::uint32_t trial) {
  const RandomKey key{trial, 2, 0, 0, Purpose::probe};
  const auto draw = [&](std::uint32_t which, std::uint32_t below) {
    return std::size_t{random_word(key, which)} % below;
  };
  Product p = {1 + draw(0, 40),  1 + draw(1, 110),  draw(2, 70), lies[draw(3, 3)],
               lies[draw(4, 3)], kinds[draw(5, 5)], trial,       draw(6, 2) == 0,
               draw(7, 2) == 0};
  if (trial % 50 == 7) p.m += 130;                                        // several tiles
  if (trial % 50 == 17) p.k += 1500, p.m %= 20, p.n %= 20, ++p.m, ++p.n;  // cut where C is fp32
  if (trial % 50 == 36 || trial % 50 == 37)
    p.m = 1 + p.m % 4, p.n += 650, p.k += 800;  // kept in parts
  if (trial % 50 == 27) p.n += 800;             // several blocks
  return p;
}

}  // namespace

TEST_CASE("bf16 gemm: a step of the definition is a multiply-add that rounds once") {
  const RandomKey key{5, 0, 0, 0, Purpose::probe};
  std::size_t wrong = 0;
  for (std::uint32_t i = 0; i < 300000; ++i) {
    const auto number = [&](std::uint32_t which, std::uint32_t mask) {
      const std::uint32_t bits = random_word(key, 4 * i + which);
      return detail::bits_as<float>((bits & 0x807FFFFF & mask) | (100 + (bits >> 23) % 50) << 23);
    };
    const float a = number(0, 0xFFFF0000), b = number(1, 0xFFFF0000), c = number(2, 0xFFFFFFFF);
    wrong += !same(detail::pair_multiply_add(a, b, c), std::fma(a, b, c));
  }
  CHECK(wrong == 0);
  using detail::pair_multiply_add;
  CHECK(pair_multiply_add(0x1p-63F, 0x1p-63F, 0) == 0x1p-126F);
  CHECK(same(pair_multiply_add(0x1p-63F, 0x1p-64F, 0), 0.0F));
  CHECK(same(pair_multiply_add(-0x1p-63F, 0x1p-64F, 0), -0.0F));
  // From half a unit below the least normal number on, a sum is rounded to that number.
  CHECK(pair_multiply_add(-0x1p-75F, 0x1p-76F, 0x1p-126F) == 0x1p-126F);
  CHECK(same(pair_multiply_add(-0x1p-75F, 0x1p-75F, 0x1p-126F), 0.0F));
  CHECK(same(pair_multiply_add(-1, 0x1p-126F, 0x1p-126F), 0.0F));
  CHECK(pair_multiply_add(0x1p64F, 0x1p64F, -0x1.8p127F) == 0x1p126F);  // no overflow on the way
  CHECK(std::isinf(pair_multiply_add(0x1p64F, 0x1p64F, 0)));
  CHECK(std::isnan(pair_multiply_add(INFINITY, 0, 1)));
  CHECK(same(detail::add_pair(0x1p-130F, 0, 0), 0.0F));
}

TEST_CASE("bf16 gemm: 1,000 random products are as defined, at every instruction level" *
          doctest::test_suite("one_thread")) {
  for (std::uint32_t trial = 0; trial < (test_sanitized ? 200U : 1000U); ++trial) {
    Product p = drawn_product(trial);
    if (trial % 4 == 0) check<bfloat16, float>(p);
    if (trial % 4 == 1) check<float, float>(p);
    p.add = false;  // a bf16 C takes no sum
    if (trial % 4 == 2) check<bfloat16, bfloat16>(p);
    if (trial % 4 == 3) check<float, bfloat16>(p);
  }
}

TEST_CASE("bf16 gemm: the same bits on any executor, and by bf16_gemm_tile") {
  for (const Lie lie_a : {Lie::row_major, Lie::transposed}) {
    // Three tiles of rows, and more of k than one block, at least.
    const std::size_t m = test_sanitized ? 133 : 197, n = test_sanitized ? 101 : 211;
    const Case<bfloat16, float> it(
        {m, n, 801, lie_a, Lie::transposed, Numbers::usual, 8, false, true});
    const std::vector<float>& expected = it.expected_of(instruction_choice().level);
    const auto run = [&](Cpu ctx) {
      std::vector<float> c = it.start;
      testing::GuardedBlock workspace(
          bf16_gemm_workspace_bytes(it.p.m, it.p.n, it.p.k, ctx.workers()));
      bf16_gemm<bfloat16>(ctx, it.p.m, it.p.n, it.p.k, it.a.operand, it.b.operand, c.data(), it.p.n,
                          Accumulate::yes, workspace.bytes());
      CHECK(workspace.intact());
      return std::memcmp(c.data(), expected.data(), c.size() * sizeof(float)) == 0;
    };
    CHECK(run({}));
    for (const int workers : {1, 2, 3, 16}) {
      layer_tests::Threads threads(workers);
      CHECK(run(Cpu(threads)));
      testing::PermutedExecutor permuted(workers, 3);
      CHECK(run(Cpu(permuted)));
      CHECK(permuted.nested() == 0);
    }
    std::vector<float> c = it.start;
    testing::GuardedBlock scratch(bf16_gemm_tile_workspace_bytes(it.p.m, it.p.n, it.p.k));
    bf16_gemm_tile(it.p.m, it.p.n, it.p.k, it.a.operand, it.b.operand, c.data(), it.p.n,
                   Accumulate::yes, scratch.bytes());
    CHECK(std::memcmp(c.data(), expected.data(), c.size() * sizeof(float)) == 0);
    CHECK(scratch.intact());
  }
}

TEST_CASE("bf16 gemm: the workspace of a small product is small, and one of all levels") {
  // Packed rows and columns of 16, and scratch of widened ones, of sums, or of tiles.
  CHECK(bf16_gemm_tile_workspace_bytes(16, 16, 16) <= 14 * KiB);
  CHECK(bf16_gemm_tile_workspace_bytes(16, 16, 16) >= 8 * KiB);
  CHECK(bf16_gemm_tile_workspace_bytes(64, 64, 64) <= 88 * KiB);
  // From here on, only packed operands grow.
  const auto scratch = [](std::size_t m, std::size_t n, std::size_t k) {
    return detail::PairBlocks(m, n, k).scratch_floats();
  };
  CHECK(scratch(64, 192, 128) == scratch(4096, 4096, 4096));
  CHECK(scratch(64, 192, 64) < scratch(64, 192, 128));
  CHECK(scratch(64, 96, 128) < scratch(64, 192, 128));
  CHECK(scratch(32, 192, 128) < scratch(64, 192, 128));
}

TEST_CASE("bf16 gemm: k cut at even places, of AMX at blocks, gives the bits of one product") {
  const Case<bfloat16, float> it(
      {40, 90, 257, Lie::transposed, Lie::row_major, Numbers::all_magnitudes, 9, false, true});
  for (const InstructionLevel level : instruction_levels) {
    if (!has_level(level)) continue;
    for (const std::size_t part : {2U, 32U, 128U}) {
      if (order_of(level) == Order::blocks && part < 2 * detail::PairBlockSum::pairs) continue;
      std::vector<float> c = it.start;
      Cpu ctx;
      testing::GuardedBlock workspace(bf16_gemm_workspace_bytes(it.p.m, it.p.n, part, 1));
      for (std::size_t k = 0; k < it.p.k; k += part)
        detail::bf16_gemm_at(level, ctx, it.p.m, it.p.n, detail::least(part, it.p.k - k),
                             it.a.operand.at(0, k), it.b.operand.at(k, 0), c.data(), it.p.n,
                             Accumulate::yes, workspace.bytes());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < c.size(); ++i) wrong += !same(c[i], it.expected_of(level)[i]);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("bf16 gemm: the mode of the host's thread changes nothing, and is restored") {
  for (const Numbers numbers : {Numbers::usual, Numbers::near_zero, Numbers::near_infinity}) {
    const Case<float, float> it(
        {20, 50, 31, Lie::row_major, Lie::transposed, numbers, 4, true, false});
    for (const InstructionLevel level : instruction_levels) {
      if (!has_level(level) || !HostMode::known) continue;
      bool held = false;
      const std::size_t wrong = [&] {
        const HostMode mode(true);
        const std::size_t count = it.wrong_at(level);
        held = HostMode::holds();
        return count;
      }();
      CHECK(held);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("bf16 gemm: k = 0 writes zeros or the bias, or leaves C as it is") {
  for (const InstructionLevel level : instruction_levels) {
    if (!has_level(level)) continue;
    std::vector<float> c(15, 7), bias(5, 2);
    testing::GuardedBlock workspace(bf16_gemm_workspace_bytes(3, 5, 0, 1));
    Cpu ctx;
    const auto run = [&](Accumulate acc, const float* row) {
      const Operand<bfloat16> none = {nullptr, 0, 1};
      detail::bf16_gemm_at(level, ctx, 3, 5, 0, none, none, c.data(), 5, acc, workspace.bytes(),
                           row);
    };
    run(Accumulate::yes, nullptr);
    CHECK(c == std::vector<float>(15, 7));
    run(Accumulate::no, bias.data());
    CHECK(c == std::vector<float>(15, 2));
    run(Accumulate::no, nullptr);
    CHECK(c == std::vector<float>(15, 0));
  }
}

TEST_CASE(
    "instruction levels: an unknown level, and one that the processor has not got, are named") {
  CHECK(!detail::choose_level(nullptr).error);
  CHECK(detail::choose_level("").level == fastest_level());
  CHECK(!detail::choose_level("plain").error);
  CHECK(detail::choose_level("plain").level == InstructionLevel::plain);
  const InstructionChoice unknown = detail::choose_level("avx");
  CHECK(std::string(unknown.error.text()) ==
        "the instruction level avx is unknown; expected one of plain avx2 avx512 avx512_bf16 amx");
  CHECK(unknown.level == fastest_level());
  CHECK(has_level(fastest_level()));
  bool has_all_before = true;
  for (const InstructionLevel level : instruction_levels) {
    const InstructionChoice choice = detail::choose_level(name_of(level));
    CHECK(has_level(choice.level));
    CHECK(static_cast<bool>(choice.error) == !has_level(level));
    if (has_level(level)) {
      CHECK(has_all_before);
      CHECK(choice.level == level);
    } else {
      has_all_before = false;
      CHECK(std::string(choice.error.text()).find("it has plain") != std::string::npos);
    }
  }
}

}  // namespace bf16_gemm_test
