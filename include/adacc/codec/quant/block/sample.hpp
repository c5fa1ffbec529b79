// SPDX-License-Identifier: MIT
/// Completes the header of 64 rows by a few samples, by a block of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/bfloat16.hpp"
#include "../quantize.hpp"
#include "tensor_block.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class Number>
ADACC_HD Number sum_of(const Number* of, std::uint32_t count) {
  Number sum = 0;
  for (std::uint32_t k = 0; k < count; ++k) sum += of[k];
  return sum;
}

/// Samples block i, whose scales and minima are written. The sums are formed in the order of the samples. A sample's
/// code is computed again: reading it would move 32 bytes for one.
template <unsigned Bits, QuantOptions O, class T, class Block>
ADACC_HD void quant_sample(Block& block, QuantSamples& s, std::size_t i, const QuantJob<T>& job) {
  const QuantBlock& b = job.block(i);
  std::byte* const bytes = job.bytes(i);
  const std::uint32_t count = sample_count(b.rows, b.cols);
  block.each([&](int me) {
    const auto k = static_cast<std::uint32_t>(me);
    if (k >= count) return;
    const std::size_t r = sample_row(k, count, b.rows), c = sample_col(k, b.cols);
    const std::size_t g = b.template group_of<O>(r, c);
    const std::size_t element = (i * block_rows + r) * b.cols + c;
    QuantGroup group = {bfloat16{get<std::uint16_t>(bytes + b.scales + 2 * g)}, {0}};
    if constexpr (!O.symmetric)
      group.minimum = bfloat16{get<std::uint16_t>(bytes + b.minima + 2 * g)};
    const QuantCoder coder = quant_coder<O.symmetric>(group);
    std::int32_t random = half_code;
    if constexpr (O.rounding == Rounding::stochastic) random = random_half(job.stream, element);
    const float x = to_number(job.x[element]);
    const std::int32_t code = quant_code<Bits, O.symmetric>(x, coder.base, coder.inverse, random);
    s.noise[k] = s.signal[k] = 0;
    s.counts[k] = add_sample<Bits, O.symmetric>(x, code, group, s.noise[k], s.signal[k]) ? 1 : 0;
  });
  // One warp for each sum.
  block.each([&](int me) {
    if (me == 0) put(bytes + 12, sum_of(s.counts, count));
    if (me == 32) put(bytes + 24, sum_of(s.noise, count));
    if (me == 64) put(bytes + 32, sum_of(s.signal, count));
  });
}

}}}  // namespace adacc::v0_1::detail
