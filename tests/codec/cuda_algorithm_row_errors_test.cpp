// SPDX-License-Identifier: MIT
/// What a device says about the rows of an encode, computed by an emulated block of threads: the host's row_errors().
#include <adacc/codec/quant/block/judge.hpp>

#include <cmath>
#include <memory>
#include <vector>

#include "cuda_algorithm_quant.hpp"

namespace cuda_algorithm_row_errors_test { namespace {

using namespace cuda_algorithm;

/// Rows of every scale beside rows alike, in data of every kind.
template <class T>
void spread(T* x, const Size& size, bool alike) {
  for (std::size_t r = 0; r < size.rows && !alike; ++r)
    for (std::size_t c = 0; c < size.cols; ++c) {
      const float scale = r % 9 == 4 ? 0.01F : r % 11 == 7 ? 0.2F : r % 31 == 5 ? 0.0F : 1.0F;
      T& element = x[r * size.cols + c];
      if (scale < 1) element = made<T>(scale * detail::to_number(element));
    }
}

struct Found {
  std::uint64_t rows = 0, over = 0;
};

template <class Codec, class Block, class T>
Found check(const Size& size, Data data, bool alike) {
  constexpr unsigned bits = Codec::bits;
  const std::size_t bytes = Codec::encoded_bytes(size.rows, size.cols, dtype_of<T>);
  INFO(Codec::name << " " << size.rows << " x " << size.cols << ", data " << static_cast<int>(data)
                   << ", element of " << sizeof(T) << " bytes");
  Guarded<T> x(size.rows * size.cols);
  Guarded<std::byte> memory(bytes);
  fill(x.data(), size.rows, size.cols, data);
  spread(x.data(), size, alike);
  const View<const T> in(x.data(), Shape(size.rows, size.cols));
  const Bytes blob(memory.data(), Shape(bytes));
  Cpu cpu;
  REQUIRE_FALSE(Codec::encode(cpu, in, blob));
  const auto job = detail::quant_job<bits, Codec::options>(in, nullptr, RandomKey{});
  std::vector<RowErrors> errors(job.format.blocks());
  const auto shared = std::make_unique<detail::QuantJudgement>();
  Block block;
  const auto judge = [&] {
    for (std::size_t i = errors.size(); i-- > 0;) {
      std::memset(static_cast<void*>(shared.get()), 0xEE, sizeof *shared);
      detail::quant_judge_rows<bits, Codec::options>(block, *shared, i, job, blob.data(),
                                                     Codec::row_bound, errors.data());
    }
  };
  judge();
  RowErrors all;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const RowErrors host =
        Codec::template row_errors<T>(cpu, in, blob, Part{i, 1, job.format.blocks()});
    CHECK(errors[i].rows == host.rows);
    CHECK(errors[i].over == host.over);
    CHECK(std::fabs(errors[i].worst - host.worst) <= 1e-12 * host.worst);
    all = all + errors[i];
  }
  memory.data()[8] ^= std::byte{1};
  judge();
  for (const RowErrors& of : errors) CHECK((of.rows == 0 && of.over == 0));
  return {all.rows, all.over};
}

template <class Codec, class T, class Block = emulated::Block<emulated::Order::ascending>>
void check_all() {
  Found all;
  for (const Size& size :
       {Size{64, 256}, {1, 1}, {3, 5}, {130, 32}, {65, 257}, {31, 513}, {70, 1300}})
    for (const Data data : all_data)
      for (const bool alike : {false, true}) {
        const Found found = check<Codec, Block, T>(size, data, alike);
        all.rows += found.rows, all.over += found.over;
      }
  // Some of each.
  CHECK(all.over > 20);
  CHECK(all.over + 20 < all.rows);
}

TEST_CASE("a block of threads judges rows as the host does") {
  check_all<Int8OutlierWith<QuantOptions{}>, float>();
  check_all<Int4OutlierWith<QuantOptions{}>, bfloat16, Scattered>();
  check_all<Int4OutlierWith<QuantOptions{.group = 32, .rounding = stochastic}>, float, Scattered>();
  check_all<Int8OutlierWith<QuantOptions{.group = whole_row, .symmetric = true}>, bfloat16>();
  if constexpr (!test_sanitized) {
    check_all<Int8OutlierWith<QuantOptions{}>, double, Descending>();
    check_all<Int4OutlierWith<QuantOptions{.group = 128, .outliers = Outliers::channels}>, float,
              Descending>();
    check_all<Int8OutlierWith<QuantOptions{.outliers = Outliers::none}>, float>();
  }
}

}}  // namespace cuda_algorithm_row_errors_test
