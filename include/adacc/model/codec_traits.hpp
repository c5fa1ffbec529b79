// SPDX-License-Identifier: MIT
/// Which codecs a layer's backward tolerates on what it reads.
///
/// The policy of an activation sits on the layer that produces it, but what the activation can bear
/// is known by those who read it in backward. A layer says so in its declarations,
///
///     using input_codecs = adacc::CodecList<adacc::Int4Outlier, adacc::Int8Outlier>;
///     using output_codecs = adacc::CodecList<adacc::BitMask>;
///
/// in order of preference, and the candidates of an activation are what all its readers tolerate
/// (Graph::candidates). How much the gradient suffers from what is not exact there can be said, too,
///
///     static constexpr double input_sensitivity = 0.04;   // and output_sensitivity
///
/// as the gradient's relative squared error over the codec's, E|x' - x|^2 / |x|^2, all copies of the
/// layer together (bench/gradient_error measures it). Estimated costs need it until errors are
/// probed; who says nothing is taken to pass the codec's error on whole. Whoever knows better about
/// a layer that is not theirs specializes codec_traits for it, before the first network with that
/// layer.
#pragma once

#include "../codec/bf16.hpp"
#include "../codec/codec_list.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// bfloat16 has float's range and a relative error of at most 1/256: whoever says nothing gets it.
template <class F>
struct InputCodecs {
  using type = CodecList<Bf16>;
};
template <class F>
  requires requires { typename F::input_codecs; }
struct InputCodecs<F> {
  using type = typename F::input_codecs;
};

template <class F>
struct OutputCodecs {
  using type = CodecList<Bf16>;
};
template <class F>
  requires requires { typename F::output_codecs; }
struct OutputCodecs<F> {
  using type = typename F::output_codecs;
};

}  // namespace detail

template <class F>
struct codec_traits {
  using input = typename detail::InputCodecs<F>::type;    ///< on the x that backward reads
  using output = typename detail::OutputCodecs<F>::type;  ///< on the y that backward reads
};

namespace detail {

/// What `Traits`, or else `F`, says of the sensitivity of backward to its input and its output.
template <class Traits, class F>
constexpr double input_sensitivity() {
  if constexpr (requires { Traits::input_sensitivity; }) return Traits::input_sensitivity;
  else if constexpr (requires { F::input_sensitivity; }) return F::input_sensitivity;
  else return 1;
}
template <class Traits, class F>
constexpr double output_sensitivity() {
  if constexpr (requires { Traits::output_sensitivity; }) return Traits::output_sensitivity;
  else if constexpr (requires { F::output_sensitivity; }) return F::output_sensitivity;
  else return 1;
}

/// codec_traits<F>, checked.
template <class F>
struct ToleratedBy {
  using Inputs = typename codec_traits<F>::input;
  using Outputs = typename codec_traits<F>::output;
  using Input = CodecTable<Inputs>;
  using Output = CodecTable<Outputs>;
  static constexpr double input_sensitivity = detail::input_sensitivity<codec_traits<F>, F>();
  static constexpr double output_sensitivity = detail::output_sensitivity<codec_traits<F>, F>();
  static_assert(Input::is_list && Output::is_list,
                "adacc: what a layer tolerates (input_codecs, output_codecs, or codec_traits) is a "
                "CodecList<Codec...>");
};

}  // namespace detail

}}  // namespace adacc::v0_1
