// SPDX-License-Identifier: MIT
/// The output head of a language model on a CUDA device: logits, softmax cross-entropy and their
/// gradients, some rows at a time.
///
/// A tile has all words of some rows: their logits are computed once, and become their gradient in place. This is less
/// work than blocks of the vocabulary, and a tile of 256 rows is enough for the products to fill a device. Each tile
/// reads and writes the weight's gradient once, which takes as long as the products of about 200 rows: an eighth of all
/// rows is a tile, up to 2048, unless the layer states a number (CrossEntropyHead::device_tile_rows), which may be chosen for a
/// budget (train/tile_rows.hpp). The number follows from layer and shape alone, since the order of sums depends on the
/// number: all plans have the same bits.
///
/// Rows of logits begin 64 numbers apart, or a multiple: products of a vocabulary of 50257 words take five
/// times as long if rows begin where no wide access can. In bfloat16 products have a multiple of 64 words as well
/// (cuda_padded_rows): words behind the vocabulary have a weight of zeros, and logits whose gradient is zero. The weight's
/// gradient has no rows for them: the last words, if the vocabulary is no multiple of 8, have a product of their own.
#pragma once

#include "cross_entropy_head.hpp"
#include "cuda/products.cuh"
#include "cuda/softmax.cuh"
#include "cuda/weights.cuh"

namespace adacc { inline namespace v0_1 {

template <>
struct kernel<CrossEntropyHead, Cuda> {
  static constexpr bool writes_gradients = true;

  /// Rows of tiles to choose from: fewer do not fill a device, and more hardly make products faster.
  static constexpr std::size_t least_tile_rows = 256, most_tile_rows = 8192;
  /// The most rows of a tile that nobody chose: a compromise between time and memory.
  static constexpr std::size_t most_rows_by_rule = 2048;

  /// Rows of a tile, and numbers from one row of logits to the next.
  static constexpr std::size_t tile_rows(const CrossEntropyHead& f, std::size_t rows) {
    const std::size_t eighth = div_up(rows, 8 * 128) * 128;
    const std::size_t by_rule = eighth < least_tile_rows     ? least_tile_rows
                                : eighth > most_rows_by_rule ? most_rows_by_rule
                                                             : eighth;
    const std::size_t tile = f.device_tile_rows != 0 ? f.device_tile_rows : by_rule;
    return rows < tile ? rows : tile;
  }
  static constexpr std::size_t stride(const CrossEntropyHead& f) {
    return div_up(f.vocab, 64) * 64;
  }

  static constexpr LayerNeeds needs(const CrossEntropyHead& f, Shape in, NeedsQuery query) {
    LayerNeeds needs = f.needs(in, query);
    if (needs.error) return needs;
    const std::size_t rows = tile_rows(f, in.rows());
    if (std::size_t bytes = 0;
        !multiply(rows, stride(f), bytes) || !multiply(bytes, sizeof(double), bytes))
      return {.error = Error::say(CrossEntropyHead::name, ": logits of ", rows, " rows of ",
                                  f.vocab, " words need more bytes than can be addressed")};
    needs.tile_rows = rows;
    needs.workspace = workspace_bytes(f, in, query);
    needs.copies = copy_bytes(f, in, query);
    needs.decode_room = detail::cuda_decode_room(query.scalar);
    return needs;
  }

  /// The losses of all rows, their divisor, a copy of the weight if activations are in bfloat16, a tile of logits, which
  /// are then in bfloat16, too, the gradient of the last words, and the workspace of the products.
  static constexpr std::size_t workspace_bytes(const CrossEntropyHead& f, Shape in,
                                               NeedsQuery query) {
    const std::size_t rows = tile_rows(f, in.rows()), channels = in.cols();
    const Words words(f, query.scalar);
    const bool backward = query.pass != Pass::forward;
    std::size_t product = product_bytes(rows, words.padded, channels, query.scalar);
    if (backward)
      for (const std::size_t bytes :
           {product_bytes(words.whole, channels, rows, query.scalar),
            words.last == 0 ? 0 : product_bytes(Words::unit, channels, rows, query.scalar),
            product_bytes(rows, channels, words.padded, query.scalar)})
        if (bytes > product) product = bytes;
    return align_up((in.rows() + 1) * sizeof(double)) + align_up(copy_bytes(f, in, query)) +
           align_up(rows * stride(f) * bytes_of(query.scalar)) +
           align_up(backward ? words.scratch(channels) * bytes_of(wide(query.scalar)) : 0) +
           product;
  }
  /// Of the weight, with the rows that products read behind it.
  static constexpr std::size_t copy_bytes(const CrossEntropyHead& f, Shape in, NeedsQuery query) {
    return detail::cuda_copy_bytes(detail::cuda_padded_rows(f.vocab, query.scalar) * in.cols(),
                                   query.scalar);
  }

  template <class T>
  static void forward(const CrossEntropyHead& f, Cuda& cuda, const LossCall<T, std::int32_t>& call,
                      Cuda::Loss& into) {
    run(f, cuda, call, into);
  }

  template <class T>
  static void forward_backward(const CrossEntropyHead& f, Cuda& cuda,
                               const LossCall<T, std::int32_t>& call, Cuda::Loss& into) {
    run(f, cuda, call, into);
  }

 private:
  /// How products divide the vocabulary.
  struct Words {
    static constexpr std::size_t unit = 8;  ///< 16 bytes of bfloat16

    std::size_t padded,  ///< of logits
        whole,           ///< of the weight's gradient, in one product
        last;            ///< behind them, in another product

    constexpr Words(const CrossEntropyHead& f, Dtype scalar)
        : padded(detail::cuda_padded_rows(f.vocab, scalar)), whole(f.vocab), last(0) {
      if (scalar != Dtype::bf16 || f.vocab % unit == 0) return;
      whole = div_up(f.vocab, unit) * unit;
      if (f.padded_vocab >= whole) return;  // rows behind the vocabulary get zeros added
      whole -= unit;
      last = f.vocab - whole;
    }
    /// Numbers of the second product, whose rows are a unit.
    constexpr std::size_t scratch(std::size_t channels) const {
      return last == 0 ? 0 : unit * channels;
    }
  };

  static constexpr std::size_t product_bytes(std::size_t m, std::size_t n, std::size_t k,
                                             Dtype scalar) {
    return cuda_product_bytes(m, n, k, scalar);
  }

  template <class T>
  static void run(const CrossEntropyHead& f, Cuda& cuda, const LossCall<T, std::int32_t>& call,
                  Cuda::Loss& into) {
    using W = Wide<T>;
    Bytes workspace = call.workspace;
    constexpr const char* name = CrossEntropyHead::name;
    const std::size_t all = call.x.rows(), channels = call.x.cols(), vocab = f.vocab;
    const std::size_t most = tile_rows(f, all), apart = stride(f);
    const Words words(f, dtype_of<T>);
    const bool backward = !call.dx.empty(), of_weight = backward && !call.dparams[0].empty();
    double* const losses = carve<double>(workspace, all + 1).data();
    double* const divisor = losses + all;
    detail::count_targets(cuda, name, call, vocab, divisor, into);
    const T* const weight = detail::padded_in_activation_type<T>(cuda, name, call.params, 0,
                                                                 Shape(vocab, channels), workspace);
    T* const logits = carve<T>(workspace, most * apart).data();
    const View<W> last = carve<W>(workspace, backward ? words.scratch(channels) : 0);
    const auto multiply = [&]<class Out>(CudaProduct<T, Out> product) {
      const std::size_t bytes = product_bytes(product.m, product.n, product.k, dtype_of<T>);
      product.workspace = {workspace.data(),
                           Shape(bytes < workspace.size() ? bytes : workspace.size())};
      detail::cuda_multiply(cuda, name, product);
    };
    for (std::size_t first = 0; first < all; first += most) {
      const std::size_t rows = all - first < most ? all - first : most;
      const T* const x_tile = call.x.data() + first * channels;
      multiply(CudaProduct<T>{.m = rows,
                              .n = words.padded,
                              .k = channels,
                              .a = x_tile,
                              .a_transposed = false,
                              .b = weight,
                              .b_transposed = true,
                              .c = logits,
                              .c_stride = apart});
      detail::softmax_loss(cuda, name, rows, vocab, apart, logits, call.targets.data() + first,
                           divisor, losses + first, backward ? logits : nullptr);
      if (!backward) continue;
      // `count` rows of the weight's gradient from `word` on.
      const auto add_weight_gradient = [&](std::size_t word, std::size_t count, W* to, bool adds) {
        multiply(CudaProduct<T, W>{.m = count,
                                   .n = channels,
                                   .k = rows,
                                   .a = logits + word,
                                   .a_transposed = true,
                                   .b = x_tile,
                                   .b_transposed = false,
                                   .c = to,
                                   .accumulates = adds,
                                   .a_stride = apart});
      };
      // The weight's gradient first: dx may overwrite x.
      if (of_weight && words.whole != 0)
        add_weight_gradient(0, words.whole, call.dparams[0].data(), first != 0 || !call.begins(0));
      if (of_weight && words.last != 0)
        add_weight_gradient(words.whole, Words::unit, last.data(), first != 0);
      multiply(CudaProduct<T>{.m = rows,
                              .n = channels,
                              .k = words.padded,
                              .a = logits,
                              .a_transposed = false,
                              .b = weight,
                              .b_transposed = false,
                              .c = call.dx.data() + first * channels,
                              .a_stride = apart});
    }
    if (of_weight && words.last != 0) {
      const Shape shape(words.last, channels);
      const View<W> to(call.dparams[0].data() + words.whole * channels, shape);
      if (call.begins(0)) cuda.copy(name, View<const W>(last.data(), shape), to);
      else cuda.accumulate(View<const W>(last.data(), shape), to);
    }
    if (of_weight && call.begins(0)) {  // rows of padding have no product
      const std::size_t written = (words.whole + words.last) * channels;
      detail::set_zero(cuda, name, call.dparams[0], written);
    }
    detail::add_losses(cuda, name, all, losses, divisor, into);
  }
};

}}  // namespace adacc::v0_1
