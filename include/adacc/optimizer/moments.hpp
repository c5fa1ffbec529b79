// SPDX-License-Identifier: MIT
/// The forms in which an optimizer keeps moments: full, in bfloat16, or in blocks of 8 bits.
///
/// An update changes a moment by a thousandth, too little for a short number: rounded to nearest, the moment would
/// stand still. So bf16 and int8 round stochastically, up or down with the probabilities that keep the expectation,
/// by 16 bits that are a function of seed, update, parameter and element: neither threads nor the order of work can
/// change a bit.
///
/// Int8 keeps blocks of 128 numbers with one scale, the largest magnitude, like Dettmers, Lewis, Shleifer and
/// Zettlemoyer ("8-bit optimizers via block-wise quantization", ICLR 2022). Their dynamic code gives each magnitude
/// an exponent; ours does so by a vectorizing formula, not by a table: x is kept as y = 1 + |x| / unit, a float
/// with 4 bits of mantissa and the remaining bits of exponent. Steps are even near 0, like those of subnormal
/// numbers, and grow with the magnitude:
///
///     signed:    1 bit of sign, 3 of exponent: y < 2^8,  the smallest step is largest / 3952
///     unsigned:  4 of exponent:                y < 2^16, the smallest step is largest / 1015792
///
/// Exponents replace the outliers of activation codecs: a number a thousand times larger than all others in its block
/// leaves these their precision. A nonzero second moment never becomes 0, which would be divided by: it is rounded up
/// to the smallest step. A block with a NaN or an infinity comes back without any finite number.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "../core/bfloat16.hpp"
#include "../core/bytes.hpp"
#include "../core/dtype.hpp"
#include "../core/random.hpp"
#include "../core/vector_target.hpp"

namespace adacc { inline namespace v0_1 {

/// The form of a tensor of an optimizer's state.
enum class StateForm : std::uint8_t { full, bf16, int8 };

constexpr const char* name_of(StateForm form) {
  switch (form) {
    case StateForm::full: return "full";
    case StateForm::bf16: return "bf16";
    case StateForm::int8: return "int8";
  }
  return "?";
}

/// Numbers that forms process at a time; in int8 they share a scale.
inline constexpr std::size_t moment_lanes = 128;

/// Bytes of `elems` numbers in a form; full numbers are of a training's scalar type.
constexpr std::size_t state_bytes(StateForm form, std::size_t elems, Dtype scalar) {
  switch (form) {
    case StateForm::full: return elems * bytes_of(scalar);
    case StateForm::bf16: return elems * sizeof(bfloat16);
    case StateForm::int8: return align_up(elems) + div_up(elems, moment_lanes) * sizeof(float);
  }
  return 0;
}

ADACC_TARGET_CODE_BEGIN
/// 16 random bits for each of moment_lanes elements: half a word each.
///
/// A whole Philox block for every four elements would take as long as the rest of an update. Here one block starts a
/// Weyl sequence, whose terms are mixed (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA
/// 2014, with the 32-bit mixer of MurmurHash3): also a function of the key and the element alone.
class RandomHalves {
 public:
  /// Bits for elements `first` and later of the stream `key`; `first` is a multiple of moment_lanes.
  RandomHalves(const RandomKey& key, std::size_t first) {
    const PhiloxBlock start = random_block(key, first / moment_lanes);
    for (std::uint32_t i = 0; i < moment_lanes; ++i) words_[i] = word(start, i);
  }
  template <int half>
  std::uint32_t get(std::size_t i) const {
    return half_of<half>(words_[i]);
  }

  /// The word of element `i` of the moment_lanes elements whose block is `start`.
  ADACC_HD static constexpr std::uint32_t word(const PhiloxBlock& start, std::uint32_t i) {
    std::uint32_t word = start.word[0] + i * (start.word[1] | 1);
    word = (word ^ word >> 16) * 0x85EBCA6B;
    word = (word ^ word >> 13) * 0xC2B2AE35;
    return word ^ word >> 16;
  }
  template <int half>
  ADACC_HD static constexpr std::uint32_t half_of(std::uint32_t word) {
    return half == 0 ? word >> 16 : word & 0xFFFF;
  }

 private:
  alignas(64) std::uint32_t words_[moment_lanes];
};

/// Rounds to nearest, for moments converted from another form.
struct NearestHalves {
  template <int half>
  std::uint32_t get(std::size_t) const {
    return 0x8000;
  }
};

/// Full numbers. Each form has these two functions: `open` returns the numbers [first, first + count) of `elems`, in
/// `buffer` if they are converted, and `close` stores them after the update. `first` is a multiple of moment_lanes;
/// `count`, a std::size_t or a constant, is at most moment_lanes.
struct FullMoments {
  static constexpr StateForm form = StateForm::full;

  template <bool non_negative, class T>
  static T* open(std::byte* state, std::size_t, std::size_t first, auto, T*) {
    return static_cast<T*>(static_cast<void*>(state)) + first;
  }
  template <bool non_negative, int half, class T, class Random>
  static void close(std::byte*, std::size_t, std::size_t, auto, const T*, const Random&) {}
};

/// Numbers in bfloat16: half the bytes of fp32.
struct Bf16Moments {
  static constexpr StateForm form = StateForm::bf16;

  template <bool non_negative, class T>
  static T* open(std::byte* state, std::size_t, std::size_t first, auto count, T* buffer) {
    const auto* from = static_cast<const bfloat16*>(static_cast<const void*>(state)) + first;
    for (std::size_t i = 0; i < count; ++i) buffer[i] = static_cast<T>(to_float(from[i]));
    return buffer;
  }
  template <bool non_negative, int half, class T, class Random>
  static void close(std::byte* state, std::size_t, std::size_t first, auto count, const T* values,
                    const Random& random) {
    auto* to = static_cast<bfloat16*>(static_cast<void*>(state)) + first;
    for (std::size_t i = 0; i < count; ++i)
      to[i] = to_bfloat16(static_cast<float>(values[i]), random.template get<half>(i));
  }
};

/// Numbers in blocks of 8 bits: a quarter of fp32's bytes, and 1/32 byte per number for scales.
struct Int8Moments {
  static constexpr StateForm form = StateForm::int8;

  template <bool non_negative, class T>
  static T* open(std::byte* state, std::size_t elems, std::size_t first, auto count, T* buffer) {
    const auto* codes = static_cast<const std::uint8_t*>(static_cast<const void*>(state)) + first;
    const float unit = units(state, elems)[first / moment_lanes];
    for (std::size_t i = 0; i < count; ++i)
      buffer[i] = static_cast<T>(decoded<non_negative>(codes[i], unit));
    return buffer;
  }

  template <bool non_negative, int half, class T, class Random>
  static void close(std::byte* state, std::size_t elems, std::size_t first, auto count,
                    const T* values, const Random& random) {
    alignas(64) std::uint32_t bits[moment_lanes];
    // Read as integers, magnitudes are ordered like their numbers, with infinities and NaNs on top.
    std::uint32_t largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      bits[i] = detail::bits_as<std::uint32_t>(static_cast<float>(values[i]));
      const std::uint32_t magnitude = bits[i] & 0x7FFFFFFF;
      largest = largest < magnitude ? magnitude : largest;
    }
    const Scale scale = scale_of<non_negative>(largest);
    units(state, elems)[first / moment_lanes] = scale.unit;
    auto* codes = static_cast<std::uint8_t*>(static_cast<void*>(state)) + first;
    for (std::size_t i = 0; i < count; ++i) {
      const float y = detail::bits_as<float>(bits[i] & 0x7FFFFFFF) * scale.reciprocal + 1;
      codes[i] = code_of<non_negative>(bits[i], y, random.template get<half>(i));
    }
  }

  /// The scale of a block.
  struct Scale {
    float unit, reciprocal;
  };
  /// @param largest the largest magnitude of the block, as bits
  template <bool non_negative>
  ADACC_HD static constexpr Scale scale_of(std::uint32_t largest) {
    const float top = detail::bits_as<float>((most<non_negative> << cut) + one) - 1;
    const float unit = detail::bits_as<float>(largest) / top;
    // A smaller unit would have an infinite reciprocal.
    return unit < 1e-37F ? Scale{0, 0} : Scale{unit, 1 / unit};
  }
  /// The code of a number.
  /// @param bits     of the number
  /// @param y        its magnitude in units, and 1
  /// @param random16 the random bits that it is rounded by
  template <bool non_negative>
  ADACC_HD static constexpr std::uint8_t code_of(std::uint32_t bits, float y,
                                                 std::uint32_t random16) {
    // 16 bits, and half the weight of the last one: numbers with an exact code keep it.
    const std::uint32_t drawn = random16 << (cut - 16) | 1U << (cut - 17);
    std::uint32_t code = (detail::bits_as<std::uint32_t>(y) - one + drawn) >> cut;
    code = code < most<non_negative> ? code : most<non_negative>;
    if (non_negative) code = code == 0 && (bits & 0x7FFFFFFF) != 0 ? 1 : code;
    else code |= bits >> 24 & 0x80;
    return static_cast<std::uint8_t>(code);
  }
  /// The number of a code.
  template <bool non_negative>
  ADACC_HD static constexpr float decoded(std::uint8_t code, float unit) {
    const std::uint32_t magnitude = non_negative ? code : code & 0x7FU;
    const float y = detail::bits_as<float>((magnitude << cut) + one);
    const float x = (y - 1) * unit;
    const std::uint32_t sign = non_negative ? 0 : (code & 0x80U) << 24;
    return detail::bits_as<float>(detail::bits_as<std::uint32_t>(x) | sign);
  }

 private:
  static constexpr int cut = 19;  ///< bits of a float's mantissa missing in codes
  static constexpr std::uint32_t one = 0x3F800000;
  template <bool non_negative>
  static constexpr std::uint32_t most = non_negative ? 0xFF : 0x7F;

  /// The scales are behind the codes.
  static float* units(std::byte* state, std::size_t elems) {
    return static_cast<float*>(static_cast<void*>(state + align_up(elems)));
  }
};

ADACC_TARGET_CODE_END

namespace detail {

/// Visits the form class of `form`: for conversions (rounding to nearest) and for tests.
template <bool non_negative, class T, class Visit>
void visit_form(StateForm form, const Visit& visit) {
  switch (form) {
    case StateForm::full: return visit(FullMoments{});
    case StateForm::bf16: return visit(Bf16Moments{});
    case StateForm::int8: return visit(Int8Moments{});
  }
}

template <bool non_negative, class T>
void convert_state(StateForm from, std::byte* source, StateForm to, std::byte* target,
                   std::size_t elems) {
  visit_form<non_negative, T>(from, [&](auto read) {
    visit_form<non_negative, T>(to, [&](auto written) {
      using Read = decltype(read);
      using Written = decltype(written);
      for (std::size_t i = 0; i < elems; i += moment_lanes) {
        const std::size_t left = elems - i, count = left < moment_lanes ? left : moment_lanes;
        T values[moment_lanes], unused[moment_lanes];
        const T* x = Read::template open<non_negative>(source, elems, i, count, values);
        if constexpr (Written::form == StateForm::full) {
          T* place = Written::template open<non_negative>(target, elems, i, count, unused);
          for (std::size_t j = 0; j < count; ++j) place[j] = x[j];
        } else {
          Written::template close<non_negative, 0>(target, elems, i, count, x, NearestHalves{});
        }
      }
    });
  });
}

}  // namespace detail

}}  // namespace adacc::v0_1
