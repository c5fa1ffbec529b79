// SPDX-License-Identifier: MIT
/// The functions called by a step, with the types erased.
///
/// One entry per layer of the model (copies of a repeated block share one entry): a pointer to the user's functor and
/// two function pointers. So Step is templated on the scalar type and the context alone, and a functor used in many
/// layers is compiled once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../core/array.hpp"
#include "../core/config.hpp"
#include "../model/erased_layer.hpp"
#include "../model/graph.hpp"
#include "memory_check.hpp"
#include "positions_check.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// What layers and losses of a device do beside their own work (contract.hpp); on the host, nothing.
template <bool of_device>
struct DeviceWork {
  static constexpr bool writes_gradients = false, sums_dx = false;
  static constexpr signed char dy_sums = -1;
};
template <>
struct DeviceWork<true> {
  bool writes_gradients = false, sums_dx = false;
  signed char dy_sums = -1;  ///< the parameter; -1: none
};
template <class Context>
using DeviceWorkIn = DeviceWork<context_traits<Context>::own_memory>;

}  // namespace detail

/// x of a call is handed on as elements of T, whatever the layer's input_type; so are targets.
template <class T, class Context>
struct LayerDispatch {
  const void* functor = nullptr;
  void (*forward)(const void*, Context&, const ForwardCall<T>&) = nullptr;
  void (*backward)(const void*, Context&, const BackwardCall<T>&) = nullptr;
  const detail::LayerSignature* signature = nullptr;  ///< null: unchecked
  bool adds_residual = false, adds_gradient = false;  ///< see contract.hpp
  ADACC_NO_ROOM detail::DeviceWorkIn<Context> beside{};
};

template <class T, class Context>
struct LossDispatch {
  const void* functor = nullptr;
  using Loss = typename Context::Loss;
  void (*loss)(const void*, Context&, const LossCall<T>&, Loss&) = nullptr;
  void (*loss_gradient)(const void*, Context&, const LossCall<T>&, Loss&) = nullptr;
  /// Checks targets that are classes, and counts them; null: they are something else, or in a device's memory.
  Error (*count)(const LossNode&, const void* targets, TargetCount&) = nullptr;
  ADACC_NO_ROOM detail::DeviceWorkIn<Context> beside{};
};

template <class T, class Context>
struct CodecDispatch {
  const CodecInfo* info = nullptr;
  Error (*encode)(Context&, View<const T>, Bytes, Part) = nullptr;
  Error (*decode)(Context&, ConstBytes, View<T>, Part) = nullptr;
  /// Statistics of an encode, from its blob; null if the codec has none, or not in this context.
  CodecStatistics (*statistics)(ConstBytes, std::size_t rows, std::size_t cols, Dtype) = nullptr;
  /// Statistics from certain pieces of the blob; null if the codec names no pieces.
  Pieces (*watched)(std::size_t rows, std::size_t cols, Dtype) = nullptr;
  CodecStatistics (*seen)(const std::byte* pieces, std::size_t stride, std::size_t rows,
                          std::size_t cols) = nullptr;
  /// The errors of the rows of an encoded activation; null if the codec does not judge rows, or not in this context.
  RowErrors (*row_errors)(Context&, View<const T> x, ConstBytes blob, Part) = nullptr;
  /// Queues the judgement instead, of each of the codec's split_items, if the host would have to wait for it.
  Error (*queue_row_errors)(Context&, View<const T> x, ConstBytes blob, RowErrors*) = nullptr;
};

namespace detail {

/// How a codec runs in a context.
template <class Codec, class T, class Context>
constexpr CodecDispatch<T, Context> codec_dispatch() {
  using kernel = codec_kernel<Codec, Context>;
  CodecDispatch<T, Context> calls{
      &codec_info<Codec>,
      [](Context& context, View<const T> x, Bytes blob, Part part) {
        const MemoryIsChecked<Context> checked(context);
        if constexpr (requires { kernel::template encode<T>(context, x, blob, part); })
          return kernel::template encode<T>(context, x, blob, part);
        else return part.first == 0 ? kernel::template encode<T>(context, x, blob) : Error();
      },
      [](Context& context, ConstBytes blob, View<T> x, Part part) {
        const MemoryIsChecked<Context> checked(context);
        if constexpr (requires { kernel::template decode<T>(context, blob, x, part); })
          return kernel::template decode<T>(context, blob, x, part);
        else return part.first == 0 ? kernel::template decode<T>(context, blob, x) : Error();
      },
      nullptr};
  if constexpr (requires(ConstBytes blob) { kernel::statistics(blob, 1, 1, Dtype::f32); })
    calls.statistics = &kernel::statistics;
  if constexpr (requires(const std::byte* pieces) {
                  Pieces{Codec::watched(1, 1, Dtype::f32)};
                  CodecStatistics{Codec::seen(pieces, 1, 1, 1)};
                }) {
    calls.watched = &Codec::watched;
    calls.seen = &Codec::seen;
  }
  if constexpr (CodecInfoFor<Codec>::row_bound() > 0 &&
                requires(Context & context, View<const T> x, ConstBytes blob) {
                  kernel::row_errors(context, x, blob, Part{});
                })
    calls.row_errors = &kernel::template row_errors<T>;
  if constexpr (CodecInfoFor<Codec>::row_bound() > 0 && CodecInfoFor<Codec>::splits &&
                requires(Context & context, View<const T> x, ConstBytes blob, RowErrors * errors) {
                  kernel::queue_row_errors(context, x, blob, errors);
                })
    calls.queue_row_errors = [](Context& context, View<const T> x, ConstBytes blob,
                                RowErrors* errors) {
      const MemoryIsChecked<Context> checked(context);
      return kernel::template queue_row_errors<T>(context, x, blob, errors);
    };
  return calls;
}

/// The codec's functions if it runs in this context, otherwise nothing.
template <class Codec, class T, class Context>
constexpr CodecDispatch<T, Context> codec_dispatch_if_any() {
  constexpr bool runs = [] {
    using kernel = codec_kernel<Codec, Context>;
    if constexpr (requires { bool{kernel::template runs<T>}; }) return kernel::template runs<T>;
    else return true;  // a twin without this declaration
  }();
  if constexpr (runs) return codec_dispatch<Codec, T, Context>();
  else return {};
}

/// Functions of a list's codecs. Codecs that cannot run are empty entries; an empty list has one.
template <class List, class T, class Context>
inline constexpr CodecDispatch<T, Context> codec_twins[] = {{}};
template <class First, class... Rest, class T, class Context>
inline constexpr CodecDispatch<T, Context> codec_twins<CodecList<First, Rest...>, T, Context>[] = {
    codec_dispatch_if_any<First, T, Context>(), codec_dispatch_if_any<Rest, T, Context>()...};

/// The for_unlike_rows of a list's codecs. A codec without one stands for itself.
template <class Codec>
struct ForUnlikeRows {
  using type = Codec;
};
template <class Codec>
  requires requires { typename Codec::for_unlike_rows; }
struct ForUnlikeRows<Codec> {
  using type = typename Codec::for_unlike_rows;
};
template <class... Codecs>
struct ForUnlikeRows<CodecList<Codecs...>> {
  using type = CodecList<typename ForUnlikeRows<Codecs>::type...>;
};

}  // namespace detail

/// All functions of a network's steps in a context.
template <class T, class Context>
struct Dispatch {
  Array<LayerDispatch<T, Context>> layers;  ///< indexed by Node::layer
  LossDispatch<T, Context> loss;
  /// Checks what a step says of positions (check_positions()); null: no layer reads them.
  Error (*check_positions)(Context&, const Graph&, bool infers) = nullptr;
  /// Codecs of the policies, codecs tolerated by the layers, and added ones.
  Array<CodecDispatch<T, Context>> codecs;

  const CodecDispatch<T, Context>* find(const CodecInfo* info) const {
    for (const CodecDispatch<T, Context>& codec : codecs)
      if (codec.info == info) return &codec;
    return nullptr;
  }

  /// Makes `Codec` available to plans not fixed in types, with its codec for unlike rows.
  template <class Codec>
  void add_codec() {
    add_codec(detail::codec_dispatch<Codec, T, Context>());
    add_for_unlike_rows<CodecList<Codec>>();
  }
  /// Adds the codecs for unlike rows of a list's codecs, in contexts where encodes are judged.
  template <class List>
  void add_for_unlike_rows() {
    if constexpr (!context_traits<Context>::own_memory)
      add_codecs(detail::codec_twins<typename detail::ForUnlikeRows<List>::type, T, Context>);
  }
  void add_codec(const CodecDispatch<T, Context>& codec) {
    if (codec.info != nullptr && find(codec.info) == nullptr) codecs.push_back(codec);
  }
  template <std::size_t count>
  void add_codecs(const CodecDispatch<T, Context> (&list)[count]) {
    for (const CodecDispatch<T, Context>& codec : list) add_codec(codec);
  }
};

}}  // namespace adacc::v0_1
