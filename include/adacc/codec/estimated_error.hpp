// SPDX-License-Identifier: MIT
/// The error of a codec without a measurement: orders codecs from rough to mild.
#pragma once

#include <cstddef>

#include "../core/shape.hpp"
#include "codec.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// 4^-bits, by halves of a bit and linear in between.
constexpr double quarter_to(double bits) {
  double power = 1;
  for (; bits >= 0.5; bits -= 0.5) power /= 2;
  return power * (1 - bits);
}

}  // namespace detail

/// E|x' - x|^2 / |x|^2 of an activation of `shape` behind `codec`: the declared noise, or the noise of a uniform
/// quantizer with as many bits over four standard deviations, 5.4 * 4^-bits.
constexpr double estimated_error(const CodecInfo& codec, Shape shape, Dtype scalar) {
  if (codec.lossless) return 0;
  if (codec.noise > 0) return codec.noise;
  const std::size_t blob = codec.encoded_bytes(shape.rows(), shape.cols(), scalar);
  const auto elems = static_cast<double>(shape.elems());
  return blob == 0 ? 0 : 5.4 * detail::quarter_to(8 * static_cast<double>(blob) / elems);
}

}}  // namespace adacc::v0_1
