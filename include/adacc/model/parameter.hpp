// SPDX-License-Identifier: MIT
/// Parameters as declared by layers and as received by kernels.
///
/// All parameters of a model live in one block, owned by the trainer: first the trained ones, then the frozen ones.
/// Gradients and optimizer moments mirror the first part alone. A layer never holds parameters: they are passed at
/// every call.
///
/// The block may hold parameters in bfloat16, in half the bytes of fp32. Layers then compute on copies in the scalar
/// type. The step decodes these copies into the layer's workspace for each call, unless the layer reads and
/// decodes its parameters by rows (Params::rows).
///
/// On a device whose activations are in bfloat16, products read parameters in bfloat16, too. The block may then hold
/// each parameter twice: in full, for updates, and as a copy rounded to the nearest, for products. Whoever changes
/// parameters changes copies with them. Without copies, layers round their parameters in each call.
///
/// A frozen parameter may be in no block at all, but in a file (stored_parameter.hpp). Layers find its decoded copy in
/// their workspace, or decode parts of it themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../core/bfloat16.hpp"
#include "../core/bytes.hpp"
#include "../core/context.hpp"
#include "../core/dtype.hpp"
#include "../core/view.hpp"
#include "stored_parameter.hpp"

namespace adacc { inline namespace v0_1 {

/// The distribution a parameter is drawn from before training.
struct Init {
  enum class Kind : std::uint8_t { zeros, constant, normal, uniform };
  Kind kind = Kind::zeros;
  float scale = 0;  ///< the constant, the standard deviation, or the half width

  static constexpr Init zeros() { return {}; }
  static constexpr Init constant(float value) { return {Kind::constant, value}; }
  static constexpr Init normal(float stddev) { return {Kind::normal, stddev}; }
  static constexpr Init uniform(float half_width) { return {Kind::uniform, half_width}; }
};

/// A parameter as declared by the layer.
struct ParameterSpec {
  const char* name = "";
  Shape shape{};
  Init init{};
  bool decay = true;           ///< whether weight decay applies
  const char* tied = nullptr;  ///< layers with the same non-null name here share storage
  /// Never changes, and has no gradient. If several layers share storage, the first decides.
  bool frozen = false;
};

/// The parameters of a layer whose options say how many of `most` there are.
template <std::size_t most>
struct ParameterSpecs {
  ParameterSpec spec[most];
  std::size_t count = 0;
  constexpr std::size_t size() const { return count; }
  constexpr const ParameterSpec& operator[](std::size_t i) const { return spec[i]; }
};

/// Form of the numbers in the block of parameters: the scalar type of the layers' arithmetic, bfloat16, or the first
/// with a block of copies in bfloat16 beside it.
enum class ParameterForm : std::uint8_t { full, bf16, with_copies };

constexpr const char* name_of(ParameterForm form) {
  constexpr const char* names[] = {"full", "bf16", "full with copies in bf16"};
  return names[static_cast<int>(form)];
}
/// The type of the block's numbers for a graph of `scalar`.
constexpr Dtype dtype_in(ParameterForm form, Dtype scalar) {
  return form == ParameterForm::bf16 ? Dtype::bf16 : wide(scalar);
}

/// A block of parameters, lent to steps, which only read it: of T or of bfloat16, or of T with copies in bfloat16.
template <class T>
class ParameterBlock {
 public:
  constexpr ParameterBlock() = default;
  constexpr ParameterBlock(const T* full, Shape shape) : full_(full), size_(shape.elems()) {}
  constexpr ParameterBlock(const View<const T>& full)  // implicit: a parameter type
      : full_(full.data()), size_(full.size()) {}
  constexpr ParameterBlock(const View<T>& full) : full_(full.data()), size_(full.size()) {}
  constexpr ParameterBlock(const View<const bfloat16>& held)
      : held_(held.data()), size_(held.size()), form_(ParameterForm::bf16) {}
  constexpr ParameterBlock(const View<bfloat16>& held)
      : ParameterBlock(View<const bfloat16>(held)) {}
  /// `copies`: Graph::copy_elems numbers, at the parameters' places.
  /// `kept`: whoever changes parameters changes the copies. Otherwise each step begins by making the copies anew.
  constexpr ParameterBlock(const View<const T>& full, bfloat16* copies, bool kept)
      : full_(full.data()), copies_(copies), size_(full.size()), form_(ParameterForm::with_copies),
        kept_(kept) {}

  constexpr ParameterForm form() const { return form_; }
  constexpr std::size_t size() const { return size_; }         ///< elements, padding included
  constexpr const T* full() const { return full_; }            ///< null if they are in bfloat16
  constexpr const bfloat16* in_bf16() const { return held_; }  ///< null if they are not
  constexpr bfloat16* copies() const { return copies_; }       ///< null if there are none
  constexpr bool keeps_copies() const { return kept_; }
  constexpr void keep_no_copies() { kept_ = false; }
  constexpr const void* data() const {
    return form_ == ParameterForm::bf16 ? static_cast<const void*>(held_) : full_;
  }

 private:
  const T* full_ = nullptr;
  const bfloat16* held_ = nullptr;
  bfloat16* copies_ = nullptr;
  std::size_t size_ = 0;
  ParameterForm form_ = ParameterForm::full;
  bool kept_ = true;
};

namespace detail {

/// `elems` numbers from `held` to `to`, exactly.
template <class Context, class T>
void decode_parameters(Context& context, const bfloat16* held, T* to, std::size_t elems) {
  using Traits = context_traits<Context>;
  if constexpr (Traits::template widens<T>) {
    const Shape all(elems);
    context.widen("parameters", View<const bfloat16>(held, all), View<T>(to, all));
  } else if constexpr (!Traits::own_memory) {  // elsewhere a step refuses this form of parameters
    constexpr std::size_t chunk = 32768;
    for_tiles(context, div_up(elems, chunk), [&](std::size_t tile, int) {
      const std::size_t end = (tile + 1) * chunk < elems ? (tile + 1) * chunk : elems;
      for (std::size_t i = tile * chunk; i < end; ++i) to[i] = static_cast<T>(to_float(held[i]));
    });
  }
}

/// Rows [first, first + count) of a stored parameter to `to`; then they are released.
template <class Context, class T>
void decode_rows(Context& context, const StoredParameter& stored, std::size_t first,
                 std::size_t count, T* to) {
  const std::size_t cols = stored.cols();
  for_tiles(context, count,
            [&](std::size_t r, int) { stored.decode(first + r, 0, cols, to + r * cols); });
  stored.release(first, count);
}

}  // namespace detail

/// A parameter in the model's block.
struct Parameter : ParameterSpec {
  /// False if an earlier layer has brought this storage in, or the storage is no part of the block (`stored`).
  bool owner = true;
  int node = 0;            ///< the layer instance using this parameter (-1: the loss)
  std::size_t offset = 0;  ///< elements from the start of the block; 64-byte aligned
  int gradient = -1;       ///< into Graph::gradients; -1: frozen, or the graph lists none
  /// A frozen parameter's rows in a file. Its offset is one behind the block.
  const StoredParameter* stored = nullptr;
};

/// Elements of a parameter in a block where each starts 64-byte aligned, if activations are of `scalar`.
constexpr std::size_t padded_elems(Shape shape, Dtype scalar) {
  const std::size_t elem = bytes_of(wide(scalar));
  return align_up(shape.elems() * elem) / elem;
}

constexpr bool has_stored(const Parameter* first, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (first[i].stored != nullptr) return true;
  return false;
}

/// Elements of the decoded copies of the stored ones among these: of all, or of vectors alone.
constexpr std::size_t decoded_elems(const Parameter* first, std::size_t count, Dtype scalar,
                                    bool vectors_alone) {
  std::size_t elems = 0;
  for (std::size_t i = 0; i < count; ++i)
    if (first[i].stored != nullptr && !(vectors_alone && first[i].shape.rank() > 1))
      elems += padded_elems(first[i].shape, scalar);
  return elems;
}

/// Wanted::parameters (contract.hpp) of a layer with these: bit i is unset if parameter i is frozen; the
/// last bit, if all from the 64th on are.
constexpr std::uint64_t trained_bits(const Parameter* first, std::size_t count) {
  std::uint64_t bits = ~std::uint64_t{0};
  bool rest = count < 64;
  for (std::size_t i = 0; i < count; ++i) {
    if (i >= 63) rest = rest || !first[i].frozen;
    else if (first[i].frozen) bits &= ~(std::uint64_t{1} << i);
  }
  return rest ? bits : bits & ~(std::uint64_t{1} << 63);
}

/// A matrix among a layer's parameters, for products: rows of `data`, or of a stored parameter, from row `first` on.
/// Workers decode rows into `tiles`, each into its own.
template <class T>
struct ParameterMatrix {
  const T* data = nullptr;
  const StoredParameter* stored = nullptr;
  std::size_t first = 0;
  T* tiles = nullptr;
};

/// One layer's parameters (or their gradients): params[0], params[1], … in declaration order. The gradient of a frozen
/// parameter is empty, or, for layers without `reads_when`, scratch that nobody reads.
template <class T>
class Params {
 public:
  constexpr Params() = default;
  /// `scratch` has room for the frozen ones, each 64-byte aligned; null: their gradients are empty.
  /// `places`, if there are any, say by Parameter::gradient how many bytes behind `block` the others
  /// begin.
  constexpr Params(T* block, const Parameter* first, std::size_t count, T* scratch = nullptr,
                   const std::size_t* places = nullptr)
      : block_(block), scratch_(scratch), places_(places), first_(first), count_(count) {}
  /// Values in the block `held`, decoded to `window`: all of them, one behind the other, each 64-byte aligned, or the
  /// rows that a layer asks for.
  constexpr Params(std::remove_const_t<T>* window, const bfloat16* held, const Parameter* first,
                   std::size_t count)
      : block_(window), window_(window), held_(held), first_(first), count_(count) {}
  /// Has decoded copies of stored parameters in `window`, or room for the rows that a layer asks for. `tile_bytes`: the
  /// window begins with tiles, and has copies of vectors alone (LayerNeeds::decode_tiles).
  constexpr void set_window(std::remove_const_t<T>* window, std::size_t tile_bytes) {
    window_ = window;
    tile_elems_ = tile_bytes / sizeof(T);
  }

  constexpr std::size_t size() const { return count_; }
  constexpr const Shape& shape(std::size_t i) const { return first_[i].shape; }
  /// Parameter i in bfloat16: in the block of copies, or in the block itself if that is in bfloat16; else null. Rows behind the copy's own, as
  /// many as LayerNeeds::copies counts, can be read, too: a loss finds finite numbers there (Graph::copy_elems).
  constexpr const bfloat16* copy(std::size_t i) const {
    const bfloat16* const block = held_ != nullptr ? held_ : copies_;
    return block == nullptr ? nullptr : block + first_[i].offset;
  }
  constexpr void set_copies(const bfloat16* copies) { copies_ = copies; }
  /// Layers reading by rows (decode_room) may call this only if in_bf16() is false and the parameter is not stored.
  constexpr View<T> operator[](std::size_t i) const {
    if (held_ != nullptr) return {block_ + before(i), first_[i].shape};
    if constexpr (std::is_const_v<T>)
      if (first_[i].stored != nullptr) return {copy_of(i), first_[i].shape};
    if constexpr (!std::is_const_v<T>)
      if (first_[i].frozen) return of_frozen(i);
    if (places_ != nullptr)
      return {block_ + places_[first_[i].gradient] / sizeof(T), first_[i].shape};
    return {block_ + first_[i].offset, first_[i].shape};
  }

  /// The parameter where the file has it; null: it is in a block.
  constexpr const StoredParameter* stored(std::size_t i) const { return first_[i].stored; }
  constexpr bool any_stored() const { return has_stored(first_, count_); }
  /// Whether the window is for decoded copies, or for rows.
  constexpr bool has_window() const { return window_ != nullptr; }
  /// Whether products decode parameter i.
  constexpr bool in_tiles(std::size_t i) const {
    return first_[i].stored != nullptr && has_tile(i);
  }
  /// Parameter i for products, which decode it if it is stored and the layer has declared decode_tiles.
  constexpr ParameterMatrix<std::remove_const_t<T>> matrix(std::size_t i) const {
    if (in_tiles(i)) return {nullptr, first_[i].stored, 0, window_};
    return {(*this)[i].data()};
  }
  /// Rows from `first` on, as many as rows() is to decode if products do not.
  template <class Context>
  ParameterMatrix<std::remove_const_t<T>> matrix(Context& context, std::size_t i, std::size_t first,
                                                 std::size_t count) const {
    if (in_tiles(i)) return {nullptr, first_[i].stored, first, window_};
    return {rows(context, i, first, count)};
  }

  /// Decodes values to the window, where operator[] finds them: all in bfloat16, and the stored ones.
  template <class Context>
  void decode(Context& context) const {
    if (held_ != nullptr) return decode_held(context);
    for (std::size_t i = 0; i < count_; ++i)
      if (first_[i].stored != nullptr && !has_tile(i))
        detail::decode_rows(context, *first_[i].stored, 0, first_[i].shape.rows(), copy_of(i));
  }
  /// For layers with a decode_room: whether values are in bfloat16.
  constexpr bool in_bf16() const { return held_ != nullptr; }
  /// Row r of parameter i in bfloat16.
  constexpr const bfloat16* bf16_row(std::size_t i, std::size_t r) const {
    return held_ + first_[i].offset + r * first_[i].shape.cols();
  }
  /// Elements [first, first + n) of row r of parameter i, in any form.
  constexpr void decode_row(std::size_t i, std::size_t r, std::size_t first, std::size_t n,
                            std::remove_const_t<T>* to) const {
    if (first_[i].stored != nullptr) {
      first_[i].stored->decode(r, first, n, to);
      return first_[i].stored->release(r, 1);
    }
    const std::size_t at = r * first_[i].shape.cols() + first;
    for (std::size_t c = 0; c < n; ++c)
      to[c] = held_ != nullptr
                  ? static_cast<std::remove_const_t<T>>(to_float(held_[first_[i].offset + at + c]))
                  : (*this)[i].data()[at + c];
  }
  /// Rows [first, first + count) of parameter i, in any form; decoded rows stay until the next call. They are
  /// aligned as in a block of T, so that their products have the same bits.
  template <class Context>
  const T* rows(Context& context, std::size_t i, std::size_t first, std::size_t count) const {
    const std::size_t cols = first_[i].shape.cols();
    const StoredParameter* const stored = first_[i].stored;
    if (held_ == nullptr && stored == nullptr) return (*this)[i].row(first);
    std::remove_const_t<T>* const to = window_ + first * cols % (alignment / sizeof(T));
    if (stored != nullptr) detail::decode_rows(context, *stored, first, count, to);
    else detail::decode_parameters(context, bf16_row(i, first), to, count * cols);
    return to;
  }
  /// Bytes of so many elements in the window.
  static constexpr std::size_t window_bytes(std::size_t elems, Dtype scalar) {
    return elems * bytes_of(scalar) + alignment;
  }

 private:
  /// Elements of parameter i with its padding.
  constexpr std::size_t padded(std::size_t i) const {
    return padded_elems(first_[i].shape, dtype_of<std::remove_const_t<T>>);
  }
  constexpr std::size_t before(std::size_t i) const {
    std::size_t elems = 0;
    for (std::size_t k = 0; k < i; ++k) elems += padded(k);
    return elems;
  }
  /// Parameters that lie one behind the other in the block do so in the window, and are decoded together.
  template <class Context>
  void decode_held(Context& context) const {
    for (std::size_t i = 0; i < count_;) {
      const std::size_t first = i;
      std::size_t elems = 0, last = 0;
      for (; i < count_ && first_[i].offset == first_[first].offset + elems; ++i) {
        last = elems + first_[i].shape.elems();
        elems += padded(i);
      }
      detail::decode_parameters(context, bf16_row(first, 0), window_ + before(first), last);
    }
  }
  /// Whether products, and not decode(), decode parameter i, if it is stored.
  constexpr bool has_tile(std::size_t i) const {
    return tile_elems_ != 0 && first_[i].shape.rank() > 1;
  }
  /// The copy of a stored parameter: behind tiles and copies before it.
  constexpr std::remove_const_t<T>* copy_of(std::size_t i) const {
    return window_ + tile_elems_ +
           decoded_elems(first_, i, dtype_of<std::remove_const_t<T>>, tile_elems_ != 0);
  }
  constexpr View<T> of_frozen(std::size_t i) const {
    if (scratch_ == nullptr) return {};
    std::size_t before = 0;
    for (std::size_t k = 0; k < i; ++k)
      if (first_[k].frozen) before += padded_elems(first_[k].shape, dtype_of<T>);
    return {scratch_ + before, first_[i].shape};
  }

  T* block_ = nullptr;
  std::remove_const_t<T>* window_ = nullptr;
  std::size_t tile_elems_ = 0;
  const bfloat16* held_ = nullptr;
  const bfloat16* copies_ = nullptr;
  T* scratch_ = nullptr;
  const std::size_t* places_ = nullptr;
  const Parameter* first_ = nullptr;
  std::size_t count_ = 0;
};

}}  // namespace adacc::v0_1
