// SPDX-License-Identifier: MIT
/// The codec contract: an activation in fewer bytes, and back.
///
/// A codec is a stateless type (its options are template arguments) with
///
///     static constexpr const char* name;             // unique among codecs, options included
///     static constexpr std::size_t encoded_bytes(std::size_t rows, std::size_t cols, Dtype);
///     template <class T> static Error encode(Cpu&, View<const T> x, Bytes blob);
///     template <class T> static Error decode(Cpu&, ConstBytes blob, View<T> x);
///     static constexpr bool lossless = true;         // default: false
///     static constexpr bool keeps_values = false;    // default: true; false if decode gives
///                                                    // no more than certain readers need (a mask)
///     static CodecStatistics statistics(ConstBytes blob, std::size_t rows, std::size_t cols,
///                                       Dtype);      // optional: of encode's input (statistics.hpp)
///     static constexpr Pieces watched(std::size_t rows, std::size_t cols, Dtype);
///     static CodecStatistics seen(const std::byte* pieces, std::size_t stride, std::size_t rows,
///                                 std::size_t cols);  // optional, both: see below
///     template <class T> static RowErrors row_errors(Cpu&, View<const T> x, ConstBytes blob, Part);
///     static constexpr double row_bound = 0.05;      // optional, both: see below
///     using for_unlike_rows = OtherCodec;            // optional: see below
///     using tolerated_as = OtherCodec;               // optional: see below
///     static constexpr std::size_t split_items(std::size_t rows, std::size_t cols);  // see below
///     static constexpr std::size_t item_elements(std::size_t cols);                // see below
///     static constexpr bool draws_numbers = true;    // optional: blobs depend on Cpu::key
///     static constexpr double noise = 1e-6;          // optional: E|x' - x|^2 / |x|^2 of Gaussian x,
///                                                    // if not estimated_error()'s (estimated_error.hpp)
///
/// The size of the blob depends on rows, columns, dtype and options alone: layouts are static. The size is 0 if the
/// codec cannot encode such a tensor. `blob` starts 64-byte aligned and has exactly encoded_bytes(x.rows(), x.cols(),
/// dtype_of<T>) bytes; encode writes all of them. The x written by decode starts 64-byte aligned, too. The x read by
/// encode may be memory of somebody else's trainer (stash/), and starts at any multiple of alignof(T). Equal input
/// and equal `Cpu::key` give equal bytes, whatever the addresses and the number of threads. A NaN or an infinity in x
/// is not finite after decode either. Arguments that do not fit are an Error, and nothing is written. Decode stays
/// within its spans for any bytes of a blob.
///
/// watched() names the pieces of a blob, beside the header, from which statistics() computes. seen() computes the
/// same from copies of these pieces, `stride` bytes apart: so a codec can be watched if the host cannot read blobs.
/// Bytes and distances of pieces are even.
///
/// row_errors() judges an encode (codec/row_errors.hpp): x is what encode has read, blob is what it has written.
/// It counts the rows of `part` (all of them by default) whose sum of (decoded x - x)^2 exceeds row_bound times
/// their sum of x^2, outliers that the blob keeps exactly aside. It writes nothing, and costs little where
/// no row is near the bound. for_unlike_rows is a codec with about as many bits whose scales serve one row each: an
/// activation whose rows are over the bound may be held by that codec, which judges its own blob. A device twin of a
/// codec with split_items may judge, too, without a wait of the host:
///
///     template <class T> static Error queue_row_errors(Cuda&, View<const T> x, ConstBytes blob, RowErrors* errors);
///
/// queues the writing of errors[i], in memory of the device, for each item i.
///
/// tolerated_as is a codec with as many bits and errors as large, and this one keeps something more: where one
/// reader of an activation asks for that and lists this codec, other readers need to list only tolerated_as.
///
/// A codec with split_items can be cut for steps in slices (model/split.hpp): encode and decode take one more
/// argument, `Part part = {}`, and process this run of items alone. All parts together, in any order, write what the
/// whole call writes. x and blob are always whole. With item_elements, item i stands for elements [i n, (i + 1) n) of
/// x, row by row, where n = item_elements(x.cols()), and touches no others. Then only these elements of x need to be
/// in memory, and the codec may take part in loops over rows (program/passes/loops.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "../core/cpu.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/view.hpp"
#include "blob.hpp"
#include "row_errors.hpp"
#include "statistics.hpp"

namespace adacc { inline namespace v0_1 {

/// The facts about a codec that a plan needs; the address is the codec's identity within a program.
struct CodecInfo {
  const char* name;
  std::size_t (*encoded_bytes)(std::size_t rows, std::size_t cols, Dtype dtype);
  bool lossless;
  bool keeps_values;
  std::uint32_t id = 0;  ///< fnv1a(name), as in blobs
  /// The number of items into which the work can be cut; null if it cannot be cut.
  std::size_t (*split_items)(std::size_t rows, std::size_t cols) = nullptr;
  const char* offloaded_name = "offload_codec";  ///< "offload_" and the name
  double noise = 0;                              ///< as declared; 0: estimated from its size
  /// Elements of x per item; null if undeclared.
  std::size_t (*item_elements)(std::size_t cols) = nullptr;
  bool draws_numbers = false;                  ///< blobs depend on the context's random key
  double row_bound = 0;                        ///< of row_errors(); 0: it judges no encode
  const CodecInfo* for_unlike_rows = nullptr;  ///< null if the codec names none
  const CodecInfo* tolerated_as = nullptr;  ///< null if other readers have to list the codec itself
};

namespace detail {

/// "offload_" and the codec's name, for as long as the program lives.
template <class Codec>
struct OffloadedName {
  char text[64] = {};
  constexpr OffloadedName() {
    std::size_t size = 0;
    for (const char* part : {"offload_", Codec::name})
      for (; *part != '\0' && size + 1 < sizeof text; ++part) text[size++] = *part;
  }
};
template <class Codec>
inline constexpr OffloadedName<Codec> offloaded_name{};

}  // namespace detail

template <class Codec>
struct CodecInfoFor {
  static constexpr bool complete = requires {
    {Codec::encoded_bytes(std::size_t{1}, std::size_t{1}, Dtype::f32)};
    {Codec::name};
  };
  static constexpr bool lossless = [] {
    if constexpr (requires { Codec::lossless; }) return Codec::lossless;
    else return false;
  }();
  static constexpr bool keeps_values = [] {
    if constexpr (requires { Codec::keeps_values; }) return Codec::keeps_values;
    else return true;
  }();
  static constexpr bool splits = requires { Codec::split_items(std::size_t{1}, std::size_t{1}); };
  static constexpr auto split_items() -> std::size_t (*)(std::size_t, std::size_t) {
    if constexpr (splits) return &Codec::split_items;
    else return nullptr;
  }
  static constexpr auto item_elements() -> std::size_t (*)(std::size_t) {
    if constexpr (requires { Codec::item_elements(std::size_t{1}); }) return &Codec::item_elements;
    else return nullptr;
  }
  static constexpr bool draws_numbers = requires { requires Codec::draws_numbers; };
  static constexpr double row_bound() {
    if constexpr (requires(Cpu & cpu, View<const float> x, ConstBytes blob) {
                    RowErrors{Codec::row_errors(cpu, x, blob, Part{})};
                    double{Codec::row_bound};
                  })
      return Codec::row_bound;
    else return 0;
  }
  static constexpr double noise() {
    if constexpr (requires { Codec::noise; }) return Codec::noise;
    else return 0;
  }
};

namespace detail {
template <class Codec>
constexpr const CodecInfo* info_for_unlike_rows();
template <class Codec>
constexpr const CodecInfo* info_tolerated_as();
}  // namespace detail

template <class Codec>
inline constexpr CodecInfo codec_info{Codec::name,
                                      &Codec::encoded_bytes,
                                      CodecInfoFor<Codec>::lossless,
                                      CodecInfoFor<Codec>::keeps_values,
                                      fnv1a(Codec::name),
                                      CodecInfoFor<Codec>::split_items(),
                                      detail::offloaded_name<Codec>.text,
                                      CodecInfoFor<Codec>::noise(),
                                      CodecInfoFor<Codec>::item_elements(),
                                      CodecInfoFor<Codec>::draws_numbers,
                                      CodecInfoFor<Codec>::row_bound(),
                                      detail::info_for_unlike_rows<Codec>(),
                                      detail::info_tolerated_as<Codec>()};

namespace detail {

template <class Codec>
constexpr const CodecInfo* info_for_unlike_rows() {
  if constexpr (requires { typename Codec::for_unlike_rows; })
    return &codec_info<typename Codec::for_unlike_rows>;
  else return nullptr;
}
template <class Codec>
constexpr const CodecInfo* info_tolerated_as() {
  if constexpr (requires { typename Codec::tolerated_as; })
    return &codec_info<typename Codec::tolerated_as>;
  else return nullptr;
}

}  // namespace detail

/// How a codec runs in a context: calls the codec's members, unless specialized (a device twin).
template <class Codec, class Context>
struct codec_kernel {
  /// Whether the codec runs in this context: a list of codecs may name some without a twin for the context.
  template <class T>
  static constexpr bool runs = requires(Context& context, View<const T> x, View<T> y, Bytes blob) {
    Codec::encode(context, x, blob);
    Codec::decode(context, ConstBytes(blob), y);
  };

  template <class T>
  static Error encode(Context& context, View<const T> x, Bytes blob) {
    constexpr bool has = requires { Error{Codec::encode(context, x, blob)}; };
    static_assert(has,
                  "adacc: a codec needs static Error encode(Context&, View<const T> x, "
                  "Bytes blob)");
    if constexpr (has) return Codec::encode(context, x, blob);
    else return {};
  }
  template <class T>
  static Error decode(Context& context, ConstBytes blob, View<T> x) {
    constexpr bool has = requires { Error{Codec::decode(context, blob, x)}; };
    static_assert(has,
                  "adacc: a codec needs static Error decode(Context&, ConstBytes blob, "
                  "View<T> x)");
    if constexpr (has) return Codec::decode(context, blob, x);
    else return {};
  }

  /// Encode and decode a part, for codecs that can be cut.
  template <class T>
  static Error encode(Context& context, View<const T> x, Bytes blob,
                      Part part) requires CodecInfoFor<Codec>::splits {
    return Codec::encode(context, x, blob, part);
  }
  template <class T>
  static Error decode(Context& context, ConstBytes blob, View<T> x,
                      Part part) requires CodecInfoFor<Codec>::splits {
    return Codec::decode(context, blob, x, part);
  }

  /// How well a blob holds the rows of a part of x, for codecs with row_errors().
  template <class T>
  static RowErrors row_errors(Context& context, View<const T> x, ConstBytes blob,
                              Part part) requires requires {
    RowErrors{Codec::row_errors(context, x, blob, part)};
  }
  { return Codec::row_errors(context, x, blob, part); }

  /// Statistics of encode's input, from a blob that the host can read.
  static CodecStatistics statistics(ConstBytes blob, std::size_t rows, std::size_t cols,
                                    Dtype dtype) requires requires {
    Codec::statistics(blob, rows, cols, dtype);
  }
  { return Codec::statistics(blob, rows, cols, dtype); }
};

}}  // namespace adacc::v0_1
