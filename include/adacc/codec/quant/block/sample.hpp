// SPDX-License-Identifier: MIT
/// Completes the headers of blocks with what a few samples show, by a block of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../../core/bfloat16.hpp"
#include "../quantize.hpp"
#include "tensor_block.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Completes the headers of four blocks: part `part` of the tensor's. One thread adds the samples
/// of a block, in their order. A sample's code is computed again: reading it would move 32 bytes for one.
struct SampleShared {
  float x[256];
  std::int32_t code[256];
  QuantGroup group[256];
};
template <unsigned Bits, QuantOptions O, class T, class Block>
ADACC_HD void quant_sample(Block& block, SampleShared& s, std::size_t part,
                           const QuantJob<T>& job) {
  block.each([&](int me) {
    const std::size_t i = part * 4 + static_cast<std::size_t>(me) / 64;
    if (i >= job.format.blocks()) return;
    const QuantBlock& b = job.block(i);
    const std::byte* const bytes = job.bytes(i);
    const auto k = static_cast<std::uint32_t>(me % 64), count = sample_count(b.rows, b.cols);
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
    s.x[me] = to_number(job.x[element]);
    s.code[me] = quant_code<Bits, O.symmetric>(s.x[me], coder.base, coder.inverse, random);
    s.group[me] = group;
  });
  block.each([&](int me) {
    const std::size_t i = part * 4 + static_cast<std::size_t>(me) / 64;
    if (me % 64 != 0 || i >= job.format.blocks()) return;
    const QuantBlock& b = job.block(i);
    std::byte* const bytes = job.bytes(i);
    const std::uint32_t count = sample_count(b.rows, b.cols);
    double noise = 0, signal = 0;
    std::uint32_t samples = 0;
    for (std::uint32_t k = 0; k < count; ++k) {
      const std::size_t at = static_cast<std::size_t>(me) + k;
      if (add_sample<Bits, O.symmetric>(s.x[at], s.code[at], s.group[at], noise, signal)) ++samples;
    }
    put(bytes + 12, samples);
    put(bytes + 24, noise);
    put(bytes + 32, signal);
  });
}

}}}  // namespace adacc::v0_1::detail
