// SPDX-License-Identifier: MIT
/// What a functor declares, with its type erased, for the lowering and the runner.
///
/// A network may have hundreds of types of functors, and a template over them is compiled for each.
/// So their types end here, in tables: what a functor says as a type is data; what it computes is
/// behind pointers, null if the default serves; and what reads the tables is no template.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec_traits.hpp"
#include "contract.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// A functor whose type is known to the functions in its tables.
struct AnyFunctor {
  const void* object = nullptr;
};

/// No constant expression may cast a void*, so the lowering brings the pointer with its type, too.
template <class F>
struct TypedFunctor : AnyFunctor {
  const F* typed = nullptr;
};

template <class F>
[[gnu::always_inline]] constexpr const F& functor_in(const AnyFunctor& any) {
  if (__builtin_is_constant_evaluated()) return *static_cast<const TypedFunctor<F>&>(any).typed;
  return *static_cast<const F*>(any.object);
}

/// Sets `spec` to parameter number i of a layer; false if it has no more.
using ParameterGetter = bool (*)(const AnyFunctor&, Shape in, std::size_t i, ParameterSpec& spec);

/// What tells whether a node can have been made from a layer: the runner compares them.
struct LayerSignature {
  const char* name = "";
  Reads reads = Reads::none;
  Split split = Split::none;
  Shape (*output_shape)(const AnyFunctor&, Shape in) = nullptr;
  ParameterGetter parameter = nullptr;
  Reads (*reads_when)(const AnyFunctor&, Wanted) = nullptr;

  /// What backward reads if it is asked for `wanted`.
  constexpr Reads reads_for(const AnyFunctor& functor, Wanted wanted) const {
    return reads_when == nullptr || wanted.everything() ? reads : reads_when(functor, wanted);
  }
  constexpr Shape output_for(const AnyFunctor& functor, Shape in) const {
    return output_shape == nullptr ? in : output_shape(functor, in);
  }
};

/// What the lowering asks of a layer or a loss beyond that, which programs that are lowered by the
/// compiler alone need not contain.
struct LayerNeeds {
  Error (*validate)(const AnyFunctor&, Shape in) = nullptr;
  std::size_t (*split_items)(const AnyFunctor&, Shape in) = nullptr;
  std::size_t (*entry_items)(const AnyFunctor&, Shape in) = nullptr;
  std::size_t (*aux_bytes)(const AnyFunctor&, Shape in, Dtype) = nullptr;
  std::size_t (*workspace_bytes)(const AnyFunctor&, Shape in, Dtype, int workers, Pass) = nullptr;
  std::size_t (*packed_bytes)(const AnyFunctor&, Shape in, Dtype, Pass) = nullptr;
  double (*operations)(const AnyFunctor&, Shape in) = nullptr;
  std::size_t (*parameter_window)(const AnyFunctor&, Shape in, Dtype, Pass) = nullptr;
};

/// All that the lowering reads of a layer.
struct LayerDeclarations {
  const LayerSignature* signature = nullptr;
  LayerNeeds needs;
  CodecSpan input_codecs;
  CodecSpan output_codecs;
  double input_sensitivity = 1;
  double output_sensitivity = 1;
  Dtype token_type = Dtype::i32;
  bool takes_tokens = false;
  bool dx_overwrites_dy = false;
  bool accepts_empty_dx = false;
  bool draws_numbers = false;
};

/// What the pointers lead to.
template <class F>
struct Answers {
  static constexpr Shape output_shape(const AnyFunctor& any, Shape in) {
    return functor_in<F>(any).output_shape(in);
  }
  static constexpr bool parameter(const AnyFunctor& any, Shape in, std::size_t i,
                                  ParameterSpec& spec) {
    const auto specs = functor_in<F>(any).parameters(in);
    if (i >= specs.size()) return false;
    spec = specs[i];
    return true;
  }
  static constexpr Reads reads_when(const AnyFunctor& any, Wanted wanted) {
    return functor_in<F>(any).reads_when(wanted);
  }
  static constexpr Error validate(const AnyFunctor& any, Shape in) {
    return functor_in<F>(any).validate(in);
  }
  static constexpr std::size_t split_items(const AnyFunctor& any, Shape in) {
    return functor_in<F>(any).split_items(in);
  }
  static constexpr std::size_t entry_items(const AnyFunctor& any, Shape in) {
    return functor_in<F>(any).entry_items(in);
  }
  static constexpr std::size_t aux_bytes(const AnyFunctor& any, Shape in, Dtype scalar) {
    return functor_in<F>(any).aux_bytes(in, scalar);
  }
  static constexpr std::size_t workspace_bytes(const AnyFunctor& any, Shape in, Dtype scalar,
                                               int workers, Pass pass) {
    return functor_in<F>(any).workspace_bytes(in, scalar, workers, pass);
  }
  static constexpr std::size_t packed_bytes(const AnyFunctor& any, Shape in, Dtype scalar,
                                            Pass pass) {
    return functor_in<F>(any).packed_bytes(in, scalar, pass);
  }
  static constexpr double operations(const AnyFunctor& any, Shape in) {
    return functor_in<F>(any).operations(in);
  }
  static constexpr std::size_t parameter_window(const AnyFunctor& any, Shape in, Dtype scalar,
                                                Pass pass) {
    return functor_in<F>(any).parameter_window(in, scalar, pass);
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
  LayerSignature signature{traits::name(), traits::backward_reads(), traits::split(), nullptr,
                           parameter_getter<F>()};
  if constexpr (traits::has_output_shape) signature.output_shape = &Answers<F>::output_shape;
  if constexpr (traits::has_reads_when) signature.reads_when = &Answers<F>::reads_when;
  return signature;
}

/// A layer's device twin may ask for other workspaces than the layer, and refuse inputs.
template <class F, class Context>
struct TwinAnswers {
  using twin = kernel<F, Context>;
  static constexpr bool has_validate = requires(const F& f, Shape in) { twin::validate(f, in); };
  static constexpr bool has_workspace_bytes = requires(const F& f, Shape in) {
    twin::workspace_bytes(f, in, Dtype::f32, 1, Pass::forward);
  };
  static constexpr Error validate(const AnyFunctor& any, Shape in) {
    if (const Error why = layer_traits<F>::validate(functor_in<F>(any), in)) return why;
    return twin::validate(functor_in<F>(any), in);
  }
  static constexpr std::size_t workspace_bytes(const AnyFunctor& any, Shape in, Dtype scalar,
                                               int workers, Pass pass) {
    return twin::workspace_bytes(functor_in<F>(any), in, scalar, workers, pass);
  }
};

template <class F, class Context>
constexpr LayerNeeds make_needs() {
  using traits = layer_traits<F>;
  using Twin = TwinAnswers<F, Context>;
  LayerNeeds needs;
  if constexpr (Twin::has_validate) needs.validate = &Twin::validate;
  else if constexpr (traits::has_validate) needs.validate = &Answers<F>::validate;
  if constexpr (traits::has_split_items) needs.split_items = &Answers<F>::split_items;
  if constexpr (traits::has_entry_items) needs.entry_items = &Answers<F>::entry_items;
  if constexpr (traits::has_aux_bytes) needs.aux_bytes = &Answers<F>::aux_bytes;
  if constexpr (Twin::has_workspace_bytes) needs.workspace_bytes = &Twin::workspace_bytes;
  else if constexpr (traits::has_workspace_bytes)
    needs.workspace_bytes = &Answers<F>::workspace_bytes;
  if constexpr (traits::has_packed_bytes) needs.packed_bytes = &Answers<F>::packed_bytes;
  if constexpr (traits::has_operations) needs.operations = &Answers<F>::operations;
  if constexpr (traits::has_parameter_window)
    needs.parameter_window = &Answers<F>::parameter_window;
  return needs;
}

template <class F>
inline constexpr LayerSignature layer_signature = make_signature<F>();

template <class F, class Context>
inline constexpr LayerDeclarations layer_declarations{&layer_signature<F>,
                                                      make_needs<F, Context>(),
                                                      ToleratedBy<F>::Input::span(),
                                                      ToleratedBy<F>::Output::span(),
                                                      ToleratedBy<F>::input_sensitivity,
                                                      ToleratedBy<F>::output_sensitivity,
                                                      dtype_of<input_type_of<F, std::int32_t>>,
                                                      layer_traits<F>::takes_tokens,
                                                      layer_traits<F>::dx_overwrites_dy,
                                                      layer_traits<F>::accepts_empty_dx,
                                                      layer_traits<F>::draws_numbers};

}}}  // namespace adacc::v0_1::detail
