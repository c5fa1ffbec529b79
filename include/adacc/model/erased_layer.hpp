// SPDX-License-Identifier: MIT
/// A functor's declarations, with the type erased, for the lowering and for steps.
///
/// A network may have hundreds of types of functors, and a template over them is compiled for each. So their types end
/// here, in tables: declarations as data, functions as pointers (null for the default). Readers of these tables are no
/// templates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec_traits.hpp"
#include "contract.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// A functor whose type is known to the functions in the tables.
struct AnyFunctor {
  const void* object = nullptr;
};

/// No constant expression may cast a void*: so the lowering brings the typed pointer, too.
template <class F>
struct TypedFunctor : AnyFunctor {
  const F* typed = nullptr;
};

template <class F>
[[gnu::always_inline]] constexpr const F& functor_in(const AnyFunctor& any) {
  if (__builtin_is_constant_evaluated()) return *static_cast<const TypedFunctor<F>&>(any).typed;
  return *static_cast<const F*>(any.object);
}

/// Sets `spec` to parameter number i of a layer; false if there are no more.
using ParameterGetter = bool (*)(const AnyFunctor&, Shape in, std::size_t i, ParameterSpec& spec);

/// Enough of a layer to tell whether a node can have been made from it: steps compare signatures.
struct LayerSignature {
  const char* name = "";
  Reads reads = Reads::none;
  Split split = Split::none;
  Shape (*output_shape)(const AnyFunctor&, Shape in) = nullptr;
  ParameterGetter parameter = nullptr;
  Reads (*reads_when)(const AnyFunctor&, Wanted) = nullptr;

  /// The tensors read by backward if the gradients `wanted` are.
  constexpr Reads reads_for(const AnyFunctor& functor, Wanted wanted) const {
    return reads_when == nullptr || wanted.everything() ? reads : reads_when(functor, wanted);
  }
  constexpr Shape output_for(const AnyFunctor& functor, Shape in) const {
    return output_shape == nullptr ? in : output_shape(functor, in);
  }
};

/// More questions of the lowering to a layer or a loss. Programs lowered by the compiler alone need not contain the
/// answers.
using NeedsGetter = LayerNeeds (*)(const AnyFunctor&, Shape in, const NeedsQuery&);

/// All that the lowering reads of a layer.
struct LayerDeclarations {
  const LayerSignature* signature = nullptr;
  NeedsGetter needs = nullptr;
  CodecSpan input_codecs;
  CodecSpan output_codecs;
  double input_sensitivity = 1;
  double output_sensitivity = 1;
  Dtype token_type = Dtype::i32;
  bool takes_tokens = false;
  bool accepts_empty_dx = false;
  bool takes_padding = false;
  LayerFacts facts;
  bool adds_residual = false;
  bool adds_gradient = false;
};

/// Targets of the pointers.
template <class F>
struct Answers {
  static constexpr Shape output_shape(const AnyFunctor& any, Shape in) {
    return functor_in<F>(any).output_shape(in);
  }
  static constexpr bool parameter(const AnyFunctor& any, Shape in, std::size_t i,
                                  ParameterSpec& spec) {
    const auto specs = functor_in<F>(any).parameters(in);
    require_list(specs);
    if (i >= specs.size()) return false;
    spec = specs[i];
    return true;
  }
  static constexpr Reads reads_when(const AnyFunctor& any, Wanted wanted) {
    return functor_in<F>(any).reads_when(wanted);
  }
};

template <class F>
constexpr ParameterGetter parameter_getter() {
  if constexpr (layer_traits<F>::has_parameters) return &Answers<F>::parameter;
  else return nullptr;
}

template <class F>
constexpr LayerSignature make_signature() {
  using traits = layer_traits<F>;
  static_assert(
      traits::has_reads_when || !requires { F::accepts_empty_dx; },
      "adacc: a layer that skips an empty dx says so by reads_when(Wanted), in place of "
      "accepts_empty_dx (model/contract.hpp)");
  LayerSignature signature{traits::name(), traits::backward_reads(), traits::split(), nullptr,
                           parameter_getter<F>()};
  if constexpr (traits::has_output_shape) signature.output_shape = &Answers<F>::output_shape;
  if constexpr (traits::has_reads_when) signature.reads_when = &Answers<F>::reads_when;
  return signature;
}

/// The needs of a layer in `Context`, as answered by the layer, or by its twin for this context.
template <class F, class Context>
struct Needs {
  static constexpr bool of_twin = requires(const F& f, Shape in) {
    kernel<F, Context>::needs(f, in, NeedsQuery{});
  };
  static constexpr bool runs_in_bf16 = layer_traits<F>::template runs<Context, bfloat16>;
  static constexpr LayerNeeds of(const AnyFunctor& any, Shape in, const NeedsQuery& query) {
    if constexpr (!runs_in_bf16)
      if (query.scalar == Dtype::bf16)
        return {.error = Error::say(layer_traits<F>::name(),
                                    " has no form in bf16 on threads of the host: f32 and f64 are "
                                    "possible there")};
    if constexpr (of_twin) return kernel<F, Context>::needs(functor_in<F>(any), in, query);
    else return layer_traits<F>::needs(functor_in<F>(any), in, query);
  }
  static constexpr NeedsGetter getter() {
    if constexpr (of_twin || layer_traits<F>::says_needs || !runs_in_bf16) return &of;
    else return nullptr;
  }
};

template <class F>
inline constexpr LayerSignature layer_signature = make_signature<F>();

template <class F, class Context>
inline constexpr LayerDeclarations layer_declarations{&layer_signature<F>,
                                                      Needs<F, Context>::getter(),
                                                      ToleratedBy<F>::Input::span(),
                                                      ToleratedBy<F>::Output::span(),
                                                      ToleratedBy<F>::input_sensitivity,
                                                      ToleratedBy<F>::output_sensitivity,
                                                      dtype_of<input_type_of<F, std::int32_t>>,
                                                      layer_traits<F>::takes_tokens,
                                                      layer_traits<F>::has_reads_when,
                                                      layer_traits<F>::takes_padding(),
                                                      layer_traits<F>::facts(),
                                                      adds_residual<F, Context>,
                                                      adds_gradient<F, Context>};

}}}  // namespace adacc::v0_1::detail
