// SPDX-License-Identifier: MIT
/// The linear layer on a CUDA device: three products by cuBLASLt, the bias joined to the first. Residual sums beside the
/// layer are formed by the products, too.
///
/// The bias's gradient is the sum of dy's rows, by one kernel of our own (sums.cuh), or by the layer behind. cuBLASLt could form these sums
/// beside the weight's gradient (BGRADB), in an order of its own: with a frozen weight, where nobody wants that
/// product, the bias's gradient would have other bits. And a launch to add the sums to the gradient would remain.
#pragma once

#include "cuda/products.cuh"
#include "cuda/sums.cuh"
#include "cuda/weights.cuh"
#include "linear.hpp"

namespace adacc { inline namespace v0_1 {

template <>
struct kernel<Linear, Cuda> {
  static constexpr bool adds_residual = true, adds_gradient = true, writes_gradients = true;
  static constexpr int dy_sums(const Linear& f) { return f.bias ? 1 : -1; }

  static constexpr LayerNeeds needs(const Linear& f, Shape in, NeedsQuery query) {
    LayerNeeds needs = f.needs(in, query);
    if (needs.error) return needs;
    needs.workspace = workspace_bytes(f, in, query);
    needs.copies = copy_bytes(f, in, query);
    needs.decode_room = detail::cuda_decode_room(query.scalar);
    return needs;
  }

  /// Copies of weight and bias, if activations are in bfloat16; behind them the workspace of products.
  static constexpr std::size_t workspace_bytes(const Linear& f, Shape in, NeedsQuery query) {
    const std::size_t rows = in.rows(), cols = in.cols();
    const std::size_t copies = copy_bytes(f, in, query);
    if (query.pass == Pass::forward)
      return detail::bytes_behind(copies, cuda_product_bytes(rows, f.out, cols, query.scalar));
    const bool dx = query.pass == Pass::backward;
    const std::size_t of_weight = cuda_product_bytes(f.out, cols, rows, query.scalar);
    const std::size_t of_dx = dx ? cuda_product_bytes(rows, cols, f.out, query.scalar) : 0;
    const std::size_t of_bias =
        f.bias ? detail::CudaChunks{rows}.all_bytes(1, f.out, wide(query.scalar)) : 0;
    const std::size_t of_product = of_dx > of_weight ? of_dx : of_weight;
    return detail::bytes_behind(copies, of_product > of_bias ? of_product : of_bias);
  }
  static constexpr std::size_t copy_bytes(const Linear& f, Shape in, NeedsQuery query) {
    if (query.pass == Pass::backward_without_dx) return 0;
    const std::size_t weight = detail::cuda_copy_bytes(in.cols() * f.out, query.scalar);
    if (query.pass == Pass::backward || !f.bias) return weight;
    return detail::bytes_behind(weight, detail::cuda_copy_bytes(f.out, query.scalar));
  }

  template <class T>
  static void forward(const Linear& f, Cuda& cuda, const ForwardCall<T>& call) {
    const std::size_t rows = call.x.rows(), in = call.x.cols();
    Bytes left = call.workspace;
    const T* const weight = detail::in_activation_type<T>(cuda, Linear::name, call.params, 0, left);
    const T* const bias =
        f.bias ? detail::in_activation_type<T>(cuda, Linear::name, call.params, 1, left) : nullptr;
    product<T>(cuda,
               {.m = rows,
                .n = f.out,
                .k = in,
                .a = call.x.data(),
                .a_transposed = false,
                .b = weight,
                .b_transposed = true,
                .c = call.y.data(),
                .bias = bias,
                .added = call.added.data()},
               left);
  }

  template <class T>
  static void backward(const Linear& f, Cuda& cuda, const BackwardCall<T>& call) {
    using W = Wide<T>;
    const std::size_t rows = call.dy.rows(), in = call.params.shape(0).cols();
    Bytes left = call.workspace;
    if (!call.dx.empty()) {
      const T* const weight =
          detail::in_activation_type<T>(cuda, Linear::name, call.params, 0, left);
      product<T>(cuda,
                 {.m = rows,
                  .n = in,
                  .k = f.out,
                  .a = call.dy.data(),
                  .a_transposed = false,
                  .b = weight,
                  .b_transposed = false,
                  .c = call.dx.data(),
                  .added = call.added.data()},
                 left);
    }
    if (!call.dparams[0].empty())
      product<T, W>(cuda,
                    {.m = f.out,
                     .n = in,
                     .k = rows,
                     .a = call.dy.data(),
                     .a_transposed = true,
                     .b = call.x.data(),
                     .b_transposed = false,
                     .c = call.dparams[0].data(),
                     .accumulates = !call.begins(0)},
                    left);
    if (f.bias && !call.dparams[1].empty() && !call.dy_is_summed)
      detail::add_matrix_sums(cuda, Linear::name, rows, f.out, call.dy.data(),
                              call.dparams[1].data(), call.begins(1), left);
  }

 private:
  template <class T, class Out = T>
  static void product(Cuda& cuda, const CudaProduct<T, Out>& product, Bytes workspace) {
    detail::cuda_multiply(cuda, Linear::name, product, workspace);
  }
};

}}  // namespace adacc::v0_1
