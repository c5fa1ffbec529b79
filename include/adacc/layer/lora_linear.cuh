// SPDX-License-Identifier: MIT
/// A linear layer with a thin product beside it, on a CUDA device: the linear layer's twin, and products by cuBLASLt.
#pragma once

#include "linear.cuh"
#include "lora_linear.hpp"

namespace adacc { inline namespace v0_1 {

template <>
struct kernel<LoraLinear, Cuda> {
  static constexpr bool writes_gradients = true;

  static constexpr LayerNeeds needs(const LoraLinear& f, Shape in, NeedsQuery query) {
    LayerNeeds needs = f.needs(in, query);
    if (needs.error) return needs;
    needs.workspace = workspace_bytes(f, in, query);
    needs.decode_room = detail::cuda_decode_room(query.scalar);
    return needs;
  }

  /// The most of the linear layer's and of each product's; in backward behind the gradient of h. A product with a factor
  /// begins its workspace with a copy, if activations are in bfloat16.
  static constexpr std::size_t workspace_bytes(const LoraLinear& f, Shape in, NeedsQuery query) {
    const std::size_t rows = in.rows(), cols = in.cols();
    std::size_t most = kernel<Linear, Cuda>::workspace_bytes(f.linear(), in, query);
    const auto include = [&](std::size_t factor, std::size_t m, std::size_t n, std::size_t k) {
      const std::size_t bytes = detail::bytes_behind(detail::cuda_copy_bytes(factor, query.scalar),
                                                     cuda_product_bytes(m, n, k, query.scalar));
      if (bytes > most) most = bytes;
    };
    if (query.pass == Pass::forward) {
      include(f.rank * cols, rows, f.rank, cols);
      include(f.out * f.rank, rows, f.out, f.rank);
      return most;
    }
    include(f.out * f.rank, rows, f.rank, f.out);
    include(f.rank * cols, rows, cols, f.rank);
    include(0, f.rank, cols, rows);
    include(0, f.out, f.rank, rows);
    return align_up(rows * f.rank * bytes_of(query.scalar)) + most;
  }

  template <class T>
  static void forward(const LoraLinear& f, Cuda& cuda, const ForwardCall<T>& call) {
    Bytes aux = call.aux;
    const std::size_t rows = call.x.rows(), in = call.x.cols();
    const View<T> h = carve<T>(aux, rows * f.rank);
    kernel<Linear, Cuda>::forward(f.linear(), cuda, call);
    Bytes left = call.workspace;
    const T* const a = factor<T>(cuda, call.params, f.a_index(), left);
    product<T>(cuda,
               {.m = rows,
                .n = f.rank,
                .k = in,
                .a = call.x.data(),
                .a_transposed = false,
                .b = a,
                .b_transposed = true,
                .c = h.data(),
                .scale = f.factor<float>()},
               left);
    left = call.workspace;
    const T* const b = factor<T>(cuda, call.params, f.a_index() + 1, left);
    product<T>(cuda,
               {.m = rows,
                .n = f.out,
                .k = f.rank,
                .a = h.data(),
                .a_transposed = false,
                .b = b,
                .b_transposed = true,
                .c = call.y.data(),
                .accumulates = true},
               left);
  }

  template <class T>
  static void backward(const LoraLinear& f, Cuda& cuda, const BackwardCall<T>& call) {
    using W = Wide<T>;
    ConstBytes aux = call.aux;
    const std::size_t rows = call.dy.rows(), in = call.params.shape(0).cols();
    const View<const T> h = carve<T>(aux, rows * f.rank);
    BackwardCall<T> base = call;
    const View<T> dh = carve<T>(base.workspace, rows * f.rank);
    const View<W> da = call.dparams[f.a_index()], db = call.dparams[f.a_index() + 1];
    kernel<Linear, Cuda>::backward(f.linear(), cuda, base);
    if (!call.dx.empty() || !da.empty()) {
      Bytes left = base.workspace;
      const T* const b = factor<T>(cuda, call.params, f.a_index() + 1, left);
      product<T>(cuda,
                 {.m = rows,
                  .n = f.rank,
                  .k = f.out,
                  .a = call.dy.data(),
                  .a_transposed = false,
                  .b = b,
                  .b_transposed = false,
                  .c = dh.data(),
                  .scale = f.factor<float>()},
                 left);
    }
    if (!call.dx.empty()) {
      Bytes left = base.workspace;
      const T* const a = factor<T>(cuda, call.params, f.a_index(), left);
      product<T>(cuda,
                 {.m = rows,
                  .n = in,
                  .k = f.rank,
                  .a = dh.data(),
                  .a_transposed = false,
                  .b = a,
                  .b_transposed = false,
                  .c = call.dx.data(),
                  .accumulates = true},
                 left);
    }
    if (!da.empty())
      product<T, W>(cuda,
                    {.m = f.rank,
                     .n = in,
                     .k = rows,
                     .a = dh.data(),
                     .a_transposed = true,
                     .b = call.x.data(),
                     .b_transposed = false,
                     .c = da.data(),
                     .accumulates = !call.begins(f.a_index())},
                    base.workspace);
    if (!db.empty())
      product<T, W>(cuda,
                    {.m = f.out,
                     .n = f.rank,
                     .k = rows,
                     .a = call.dy.data(),
                     .a_transposed = true,
                     .b = h.data(),
                     .b_transposed = false,
                     .c = db.data(),
                     .accumulates = !call.begins(f.a_index() + 1)},
                    base.workspace);
  }

 private:
  template <class T>
  static const T* factor(Cuda& cuda, const Params<const Wide<T>>& params, std::size_t i,
                         Bytes& workspace) {
    return detail::in_activation_type<T>(cuda, LoraLinear::name, params, i, workspace);
  }

  template <class T, class Out = T>
  static void product(Cuda& cuda, const CudaProduct<T, Out>& product, Bytes workspace) {
    detail::cuda_multiply(cuda, LoraLinear::name, product, workspace);
  }
};

}}  // namespace adacc::v0_1
