// SPDX-License-Identifier: MIT
/// The form of a saved tensor until backward, returned by policies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include <c10/core/ScalarType.h>

#include "../../codec/bf16.hpp"
#include "../../codec/codec.hpp"
#include "../../codec/int4_outlier.hpp"
#include "../../codec/int8_outlier.hpp"
#include "device_codec.hpp"
#include "encoding_error.hpp"
#include "step_record.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// A codec for elements whose type is known at run time. The codec takes Float, Double and BFloat16; half precision
/// is converted first (elements.hpp).
struct TensorCodec {
  const CodecInfo* info;
  Error (*encode)(Cpu&, c10::ScalarType, const void* x, Shape, Bytes blob);
  Error (*decode)(Cpu&, c10::ScalarType, ConstBytes blob, void* x, Shape);
  /// The error of `blob` as an encoding of x.
  EncodingError (*error)(Cpu&, c10::ScalarType, const void* x, Shape, Measure, ConstBytes blob);
  const TensorCodec* for_unlike_rows;  ///< null if the codec names none (codec/codec.hpp)
  const TensorCodec* with_gates;       ///< see keeping_gates(); null: none
  /// On a device, for Float and BFloat16; null: the codec has no kernels.
  Error (*encode_on)(const DeviceWork&, c10::ScalarType, const void* x, Shape, Bytes blob,
                     std::byte* kept);
  Error (*decode_on)(const DeviceWork&, c10::ScalarType, ConstBytes blob, void* x, Shape);
  RowScales (*scales)(c10::ScalarType, Shape);  ///< of blobs made there
};

/// Calls call(T{}) with adacc's type for the elements of `type`; an Error if there is none.
template <class Call>
Error with_element(c10::ScalarType type, const Call& call) {
  switch (type) {
    case c10::ScalarType::Float: return call(float{});
    case c10::ScalarType::Double: return call(double{});
    case c10::ScalarType::BFloat16: return call(bfloat16{});
    default: return Error::say("codecs take Float, Double and BFloat16, not ", c10::toString(type));
  }
}

namespace detail {

template <class Codec>
constexpr const TensorCodec* codec_for_unlike_rows();
template <class Codec>
constexpr const TensorCodec* codec_with_gates();
template <class Codec>
constexpr decltype(TensorCodec::encode_on) encode_on();
template <class Codec>
constexpr decltype(TensorCodec::decode_on) decode_on();
template <class Codec>
constexpr decltype(TensorCodec::scales) scales_on();

}  // namespace detail

template <class Codec>
inline constexpr TensorCodec tensor_codec{
    &codec_info<Codec>,
    [](Cpu& cpu, c10::ScalarType type, const void* x, Shape shape, Bytes blob) {
      return with_element(type, [&]<class T>(T) {
        return Codec::encode(cpu, View<const T>(static_cast<const T*>(x), shape), blob);
      });
    },
    [](Cpu& cpu, c10::ScalarType type, ConstBytes blob, void* x, Shape shape) {
      return with_element(type, [&]<class T>(T) {
        return Codec::decode(cpu, blob, View<T>(static_cast<T*>(x), shape));
      });
    },
    [](Cpu& cpu, c10::ScalarType type, const void* x, Shape shape, Measure measure,
       ConstBytes blob) {
      EncodingError error;
      static_cast<void>(with_element(type, [&]<class T>(T) {
        error = encoding_error<Codec>(cpu, View<const T>(static_cast<const T*>(x), shape), measure,
                                      blob);
        return Error();
      }));
      return error;
    },
    detail::codec_for_unlike_rows<Codec>(),
    detail::codec_with_gates<Codec>(),
    detail::encode_on<Codec>(),
    detail::decode_on<Codec>(),
    detail::scales_on<Codec>()};

namespace detail {

template <class Codec>
constexpr const TensorCodec* codec_for_unlike_rows() {
  if constexpr (requires { typename Codec::for_unlike_rows; })
    return &tensor_codec<typename Codec::for_unlike_rows>;
  else return nullptr;
}

/// The options that keep gates, packed as PackedQuantCodec takes them; 0: no such options.
constexpr std::uint64_t options_with_gates(QuantOptions options) {
  if (options.positive || options.symmetric || options.rounding != Rounding::nearest) return 0;
  options.positive = true;
  return quant::packed_options(options);
}

template <class Codec>
constexpr const TensorCodec* codec_with_gates() {
  if constexpr (requires { Codec::options.positive; }) {
    constexpr std::uint64_t packed = options_with_gates(Codec::options);
    if constexpr (packed != 0) return &tensor_codec<PackedQuantCodec<Codec::bits, packed>>;
    else return nullptr;
  } else {
    return nullptr;
  }
}

template <class Codec>
constexpr decltype(TensorCodec::encode_on) encode_on() {
  if constexpr (kernel_name<Codec> == nullptr) return nullptr;
  else
    return [](const DeviceWork& work, c10::ScalarType type, const void* x, Shape shape, Bytes blob,
              std::byte* kept) {
      return with_device_element(type, [&]<class T>(T, const char* name) {
        return DeviceCodec<Codec>::encode(
            work, name, View<const T>(static_cast<const T*>(x), shape), blob, kept);
      });
    };
}
template <class Codec>
constexpr decltype(TensorCodec::decode_on) decode_on() {
  if constexpr (kernel_name<Codec> == nullptr) return nullptr;
  else
    return [](const DeviceWork& work, c10::ScalarType type, ConstBytes blob, void* x, Shape shape) {
      return with_device_element(type, [&]<class T>(T, const char* name) {
        return DeviceCodec<Codec>::decode(work, name, blob, View<T>(static_cast<T*>(x), shape));
      });
    };
}
template <class Codec>
constexpr decltype(TensorCodec::scales) scales_on() {
  if constexpr (kernel_name<Codec> == nullptr) return nullptr;
  else
    return [](c10::ScalarType type, Shape shape) {
      RowScales scales;
      static_cast<void>(with_device_element(type, [&]<class T>(T, const char*) {
        scales = row_scales<Codec, T>(shape.rows(), shape.cols());
        return Error();
      }));
      return scales;
    };
}

}  // namespace detail

/// The codec of as many bytes with gates: if no element is negative, positive elements decode to more than 0.
inline const TensorCodec& keeping_gates(const TensorCodec& codec) {
  return codec.with_gates != nullptr ? *codec.with_gates : codec;
}

/// A form. Masks of two values become bits without loss, whichever form a policy chooses, except as_is().
class Keep {
 public:
  /// Without loss: masks as bits, integers in as few bytes as their range needs, all else unchanged.
  constexpr Keep() = default;
  /// Unchanged and unread.
  static constexpr Keep as_is() {
    Keep keep;
    keep.untouched_ = true;
    return keep;
  }
  /// Encoded by Codec if the elements are floating-point numbers, otherwise without loss.
  template <class Codec>
  static constexpr Keep as() {
    Keep keep;
    keep.codec_ = &tensor_codec<Codec>;
    return keep;
  }

  /// No bytes: an operator makes the elements again (made_again.hpp).
  static constexpr Keep again();

  /// The form to try after this one was declined: first the codec's for_unlike_rows, in about as many bytes; then 8
  /// bits for 4, 16 bits for 8, and none for any other codec.
  constexpr Keep milder() const;
  /// Whether milder() is as small as this form.
  constexpr bool has_form_for_unlike_rows() const {
    return codec_ != nullptr && codec_->for_unlike_rows != nullptr;
  }

  constexpr bool untouched() const { return untouched_; }
  constexpr bool runs_again() const;
  /// Null: none.
  constexpr const TensorCodec* codec() const { return codec_; }

 private:
  const TensorCodec* codec_ = nullptr;
  bool untouched_ = false;
};

/// Encodes nothing.
inline constexpr TensorCodec no_codec_but_again{&operator_again, nullptr, nullptr, nullptr, nullptr,
                                                nullptr,         nullptr, nullptr, nullptr};
constexpr Keep Keep::again() {
  Keep keep;
  keep.codec_ = &no_codec_but_again;
  return keep;
}
constexpr bool Keep::runs_again() const { return codec_ == &no_codec_but_again; }

/// The forms of ready policies, and of plans, the mildest first.
inline constexpr Keep ready_forms[] = {Keep(), Keep::as<Bf16>(), Keep::as<Int8Outlier>(),
                                       Keep::as<Int4Outlier>()};

constexpr Keep Keep::milder() const {
  if (has_form_for_unlike_rows()) {
    Keep keep;
    keep.codec_ = codec_->for_unlike_rows;
    return keep;
  }
  for (std::size_t i = 1; i < std::size(ready_forms); ++i) {
    const TensorCodec* const codec = ready_forms[i].codec_;
    if (codec_ == codec || codec_ == codec->for_unlike_rows) return ready_forms[i - 1];
  }
  return {};
}

}}}  // namespace adacc::v0_1::torch
