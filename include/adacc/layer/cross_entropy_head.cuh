// SPDX-License-Identifier: MIT
/// The output head of a language model on a CUDA device: logits, softmax cross-entropy and their
/// gradients, some rows at a time.
///
/// A tile has all words of some rows: their logits are computed once, and become their gradient in place. This is less
/// work than blocks of the vocabulary, and a tile of 256 rows is enough for the products to fill a device. Each tile
/// reads and writes the weight's gradient once, which takes as long as the products of about 200 rows: an eighth of all
/// rows is a tile, up to 1024.
///
/// Rows of logits begin 64 numbers apart, or a multiple: products of a vocabulary of 50257 words take five
/// times as long if rows begin where no wide access can.
#pragma once

#include "cross_entropy_head.hpp"
#include "cuda/products.cuh"
#include "cuda/softmax.cuh"
#include "cuda/weights.cuh"

namespace adacc { inline namespace v0_1 {

template <>
struct kernel<CrossEntropyHead, Cuda> {
  /// Rows of a tile, and numbers from one row of logits to the next.
  static constexpr std::size_t tile_rows(std::size_t rows) {
    const std::size_t eighth = div_up(rows, 8 * 128) * 128;
    const std::size_t tile = eighth < 256 ? 256 : eighth > 1024 ? 1024 : eighth;
    return rows < tile ? rows : tile;
  }
  static constexpr std::size_t stride(const CrossEntropyHead& f) {
    return div_up(f.vocab, 64) * 64;
  }

  static constexpr LayerNeeds needs(const CrossEntropyHead& f, Shape in, NeedsQuery query) {
    LayerNeeds needs = f.needs(in, query);
    if (!needs.error) needs.workspace = workspace_bytes(f, in, query);
    return needs;
  }

  /// The losses of all rows, their divisor, a copy of the weight if activations are in bfloat16, a tile of logits, which are then in
  /// bfloat16, too, and the workspace of the products.
  static constexpr std::size_t workspace_bytes(const CrossEntropyHead& f, Shape in,
                                               NeedsQuery query) {
    const std::size_t rows = tile_rows(in.rows());
    std::size_t product = product_bytes(rows, f.vocab, in.cols(), query.scalar);
    if (query.pass != Pass::forward)
      for (const std::size_t bytes : {product_bytes(f.vocab, in.cols(), rows, query.scalar),
                                      product_bytes(rows, in.cols(), f.vocab, query.scalar)})
        if (bytes > product) product = bytes;
    return align_up((in.rows() + 1) * sizeof(double)) +
           align_up(detail::cuda_copy_bytes(f.vocab * in.cols(), query.scalar)) +
           align_up(rows * stride(f) * bytes_of(query.scalar)) + product;
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
  static constexpr std::size_t product_bytes(std::size_t m, std::size_t n, std::size_t k,
                                             Dtype scalar) {
    return cuda_product_bytes(m, n, k, scalar);
  }

  template <class T>
  static void run(const CrossEntropyHead& f, Cuda& cuda, const LossCall<T, std::int32_t>& call,
                  Cuda::Loss& into) {
    Bytes workspace = call.workspace;
    constexpr const char* name = CrossEntropyHead::name;
    const std::size_t all = call.x.rows(), channels = call.x.cols(), vocab = f.vocab;
    const std::size_t most = tile_rows(all), apart = stride(f);
    double* const losses = carve<double>(workspace, all + 1).data();
    double* const divisor = losses + all;
    detail::count_targets(cuda, name, call, vocab, divisor, into);
    const T* const weight = detail::in_activation_type<T>(
        cuda, name, View<const Wide<T>>(call.params[0].data(), Shape(vocab, channels)), workspace);
    T* const logits = carve<T>(workspace, most * apart).data();
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
                              .n = vocab,
                              .k = channels,
                              .a = x_tile,
                              .a_transposed = false,
                              .b = weight,
                              .b_transposed = true,
                              .c = logits,
                              .c_stride = apart});
      detail::softmax_loss(cuda, name, rows, vocab, apart, logits, call.targets.data() + first,
                           divisor, losses + first, call.dx.empty() ? nullptr : logits);
      if (call.dx.empty()) continue;
      // The weight's gradient first: dx may overwrite x.
      if (!call.dparams[0].empty())
        multiply(CudaProduct<T, Wide<T>>{.m = vocab,
                                         .n = channels,
                                         .k = rows,
                                         .a = logits,
                                         .a_transposed = true,
                                         .b = x_tile,
                                         .b_transposed = false,
                                         .c = call.dparams[0].data(),
                                         .accumulates = true,
                                         .a_stride = apart});
      multiply(CudaProduct<T>{.m = rows,
                              .n = channels,
                              .k = vocab,
                              .a = logits,
                              .a_transposed = false,
                              .b = weight,
                              .b_transposed = false,
                              .c = call.dx.data() + first * channels,
                              .a_stride = apart});
    }
    detail::add_losses(cuda, name, all, losses, divisor, into);
  }
};

}}  // namespace adacc::v0_1
