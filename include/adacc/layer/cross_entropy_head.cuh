// SPDX-License-Identifier: MIT
/// The output head of a language model on a CUDA device: logits, softmax cross-entropy and their
/// gradients, some rows at a time.
///
/// A tile has all words of some rows: their logits are computed once, and become their gradient in
/// place. That is less work than blocks of the vocabulary, and a tile of 256 rows is enough for the
/// products to fill a device.
#pragma once

#include "cross_entropy_head.hpp"
#include "cuda_products.cuh"
#include "cuda_softmax.cuh"
#include "cuda_weights.cuh"

namespace adacc { inline namespace v0_1 {

template <>
struct kernel<CrossEntropyHead, Cuda> {
  static constexpr std::size_t tile_rows = 256;

  /// The losses of all rows, a copy of the weight if activations are in bfloat16, a tile of logits, which are
  /// then in bfloat16, too, and what the products need.
  static constexpr std::size_t workspace_bytes(const CrossEntropyHead& f, Shape in, Dtype scalar,
                                               int, Pass pass) {
    const std::size_t rows = in.rows() < tile_rows ? in.rows() : tile_rows;
    std::size_t product = product_bytes(rows, f.vocab, in.cols(), scalar);
    if (pass != Pass::forward)
      for (const std::size_t bytes : {product_bytes(f.vocab, in.cols(), rows, scalar),
                                      product_bytes(rows, in.cols(), f.vocab, scalar)})
        if (bytes > product) product = bytes;
    return align_up(in.rows() * sizeof(double)) +
           align_up(detail::cuda_copy_bytes(f.vocab * in.cols(), scalar)) +
           align_up(rows * f.vocab * bytes_of(scalar)) + product;
  }

  template <class T>
  static void loss(const CrossEntropyHead& f, Cuda& cuda, const Params<const Wide<T>>& params,
                   const View<const T>& x, const View<const std::int32_t>& targets,
                   const Bytes& workspace, Cuda::Loss& into) {
    run(f, cuda, params, x, targets, View<T>(), Params<Wide<T>>(), workspace, into);
  }

  template <class T>
  static void loss_gradient(const CrossEntropyHead& f, Cuda& cuda,
                            const Params<const Wide<T>>& params, const View<const T>& x,
                            const View<const std::int32_t>& targets, const View<T>& dx,
                            const Params<Wide<T>>& dparams, const Bytes& workspace,
                            Cuda::Loss& into) {
    run(f, cuda, params, x, targets, dx, dparams, workspace, into);
  }

 private:
  static constexpr std::size_t product_bytes(std::size_t m, std::size_t n, std::size_t k,
                                             Dtype scalar) {
    return cuda_product_bytes(m, n, k, scalar);
  }

  template <class T>
  static void run(const CrossEntropyHead& f, Cuda& cuda, const Params<const Wide<T>>& params,
                  View<const T> x, View<const std::int32_t> targets, View<T> dx,
                  Params<Wide<T>> dparams, Bytes workspace, Cuda::Loss& into) {
    constexpr const char* name = CrossEntropyHead::name;
    const std::size_t all = x.rows(), channels = x.cols(), vocab = f.vocab;
    const std::size_t most = all < tile_rows ? all : tile_rows;
    double* const losses = carve<double>(workspace, all).data();
    const std::size_t all_rows = detail::cuda_mean_rows(cuda, all);
    const T* const weight = detail::in_activation_type<T>(
        cuda, name, View<const Wide<T>>(params[0].data(), Shape(vocab, channels)), workspace);
    T* const logits = carve<T>(workspace, most * vocab).data();
    const auto multiply = [&]<class Out>(CudaProduct<T, Out> product) {
      const std::size_t bytes = product_bytes(product.m, product.n, product.k, dtype_of<T>);
      product.workspace = {workspace.data(),
                           Shape(bytes < workspace.size() ? bytes : workspace.size())};
      detail::cuda_multiply(cuda, name, product);
    };
    for (std::size_t first = 0; first < all; first += most) {
      const std::size_t rows = all - first < most ? all - first : most;
      const T* const x_tile = x.data() + first * channels;
      multiply(CudaProduct<T>{rows, vocab, channels, x_tile, false, weight, true, logits});
      detail::softmax_loss(cuda, name, rows, vocab, vocab, logits, targets.data() + first, all_rows,
                           losses + first, dx.empty() ? nullptr : logits);
      if (dx.empty()) continue;
      // The weight's gradient first: dx may overwrite x.
      if (!dparams[0].empty())
        multiply(CudaProduct<T, Wide<T>>{vocab, channels, rows, logits, true, x_tile, false,
                                         dparams[0].data(), true});
      multiply(CudaProduct<T>{rows, channels, vocab, logits, false, weight, false,
                              dx.data() + first * channels});
    }
    detail::add_losses(cuda, name, all, losses, all_rows, into);
  }
};

}}  // namespace adacc::v0_1
