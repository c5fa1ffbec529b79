// SPDX-License-Identifier: MIT
/// Codecs tolerated by a layer's backward on input and output.
///
/// An activation's policy belongs to the layer producing the activation, but its readers in backward know the harm of a
/// codec. Each layer declares the codecs tolerated,
///
///     using input_codecs = adacc::CodecList<adacc::Int4Outlier, adacc::Int8Outlier>;
///     using output_codecs = adacc::CodecList<adacc::BitMask>;
///
/// in order of preference. The candidates of an activation are the codecs tolerated by all its readers
/// (Graph::candidates). A layer may also declare the harm of a lossy codec to its gradient,
///
///     static constexpr double input_sensitivity = 0.04;   // and output_sensitivity
///
/// as the gradient's relative squared error over the codec's, E|x' - x|^2 / |x|^2, all copies of the layer together
/// (bench/gradient_error measures this). Estimated costs need the figure until errors are probed; without a declaration
/// a layer counts as passing the codec's error on whole. Specialize codec_traits for a layer of somebody else's, before
/// the first network with this layer, if you know better.
#pragma once

#include "../codec/bf16.hpp"
#include "../codec/codec_list.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// The default: bfloat16 has float's range and a relative error of at most 1/256.
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
  using input = typename detail::InputCodecs<F>::type;    ///< on x, as read by backward
  using output = typename detail::OutputCodecs<F>::type;  ///< on y, as read by backward
};

namespace detail {

/// Sensitivity of backward to input and output, as declared by `Traits`, or else by `F`.
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
  static_assert(
      Input::is_list && Output::is_list && !requires { F::input_codecs; } &&
          !requires { F::output_codecs; },
      "adacc: what a layer tolerates is a CodecList<Codec...>, and a type (using "
      "input_codecs = ...; using output_codecs = ...; or codec_traits)");
};

}  // namespace detail

}}  // namespace adacc::v0_1
