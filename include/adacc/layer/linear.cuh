// SPDX-License-Identifier: MIT
/// The linear layer on a CUDA device: three products by cuBLASLt, the bias joined to the first.
#pragma once

#include "cuda_products.cuh"
#include "cuda_sums.cuh"
#include "linear.hpp"

namespace adacc { inline namespace v0_1 {

template <>
struct kernel<Linear, Cuda> {
  static constexpr std::size_t workspace_bytes(const Linear& f, Shape in, Dtype scalar, int,
                                               Pass pass) {
    const std::size_t rows = in.rows(), cols = in.cols();
    if (pass == Pass::forward) return cuda_product_bytes(rows, f.out, cols, scalar);
    const std::size_t needs[] = {
        cuda_product_bytes(f.out, cols, rows, scalar),
        pass == Pass::backward ? cuda_product_bytes(rows, cols, f.out, scalar) : 0,
        f.bias ? detail::CudaChunks{rows}.bytes(1, f.out, scalar) : 0};
    std::size_t most = 0;
    for (const std::size_t bytes : needs)
      if (bytes > most) most = bytes;
    return most;
  }

  template <class T>
  static void forward(const Linear& f, Cuda& cuda, const Params<const T>& params,
                      const View<const T>& x, const View<T>& y, const Bytes&,
                      const Bytes& workspace) {
    const std::size_t rows = x.rows(), in = x.cols();
    product(cuda,
            {.m = rows,
             .n = f.out,
             .k = in,
             .a = x.data(),
             .a_transposed = false,
             .b = params[0].data(),
             .b_transposed = true,
             .c = y.data(),
             .bias = f.bias ? params[1].data() : nullptr},
            workspace);
  }

  template <class T>
  static void backward(const Linear& f, Cuda& cuda, const Params<const T>& params,
                       const View<const T>& x, const View<const T>&, const View<const T>& dy,
                       const View<T>& dx, const Params<T>& dparams, const ConstBytes&,
                       const Bytes& workspace) {
    const std::size_t rows = dy.rows(), in = params[0].cols();
    if (!dx.empty())
      product(cuda,
              {.m = rows,
               .n = in,
               .k = f.out,
               .a = dy.data(),
               .a_transposed = false,
               .b = params[0].data(),
               .b_transposed = false,
               .c = dx.data()},
              workspace);
    if (!dparams[0].empty())
      product(cuda,
              {.m = f.out,
               .n = in,
               .k = rows,
               .a = dy.data(),
               .a_transposed = true,
               .b = x.data(),
               .b_transposed = false,
               .c = dparams[0].data(),
               .accumulates = true},
              workspace);
    if (f.bias && !dparams[1].empty())
      detail::add_column_sums<T>(cuda, Linear::name, rows, f.out,
                                 detail::MatrixBody<T>{dy.data(), f.out},
                                 reinterpret_cast<T*>(workspace.data()), {dparams[1].data()});
  }

 private:
  /// With as much of the workspace as the product can use.
  static void product(Cuda& cuda, CudaProduct<float> product, Bytes workspace) {
    product.workspace = {workspace.data(),
                         Shape(cuda_product_bytes(product.m, product.n, product.k, Dtype::f32))};
    detail::cuda_multiply(cuda, Linear::name, product);
  }
};

}}  // namespace adacc::v0_1
