// SPDX-License-Identifier: MIT
/// Products of matrices on a CUDA device, by cuBLASLt: link with cublasLt.
///
/// The handle is made once, at set-up, and lent to contexts as the stream is. The algorithm of a product is chosen when
/// its shape is first seen, and remembered: every later product of the shape takes the same one, a recomputed
/// activation has the bits of the first, and choosing costs nothing. Threads may share the handle: their calls wait for
/// each other, not for the device. Descriptions live on the stack: a step allocates nothing. fp32 is fp32, not TF32.
/// Products of bfloat16 are summed in fp32, and come out in either.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <mutex>

#include "../../core/cuda.cuh"
#include "../../core/cuda_handle.cuh"
#include "../../core/dtype.hpp"

namespace adacc { inline namespace v0_1 {

/// C = scale A B, or C += scale A B, of row-major matrices: A is m x k, B is k x n. A transposed operand lies in memory
/// as its transpose does, row by row. A bias has n elements, added to each row. `added`, if not null, is a matrix like C,
/// which may lie apart from C: C = scale A B + added. C, bias and `added` are of type Out: the type of A and B, or float.
/// Rows of A and C may lie further apart than they are long: their distance is the stride, in elements, if not 0.
template <class T, class Out = T>
struct CudaProduct {
  std::size_t m, n, k;
  const T* a;
  bool a_transposed;
  const T* b;
  bool b_transposed;
  Out* c;
  bool accumulates = false;
  float scale = 1;
  const Out* bias = nullptr;
  const Out* added = nullptr;
  std::size_t a_stride = 0, c_stride = 0;
  Bytes workspace{};
};

namespace detail {
/// Boundary of workspaces for cuBLASLt; arenas place tensors at multiples of less.
inline constexpr std::size_t product_boundary = 256;
}  // namespace detail

/// Bytes of workspace for a product: up to four partial sums of C (cuBLASLt can make them side by side if C has too few
/// tiles to fill a device and k is long), and the bytes lost to alignment. cuBLASLt may use less.
constexpr std::size_t cuda_product_bytes(std::size_t m, std::size_t n, std::size_t k,
                                         Dtype scalar) {
  constexpr std::size_t filled = 128 * 128 * 128;  // elements of C: as many tiles as processors
  if (m * n >= filled || k < 2 * (m < n ? m : n)) return 0;
  return 4 * m * n * bytes_of(wide(scalar)) + detail::product_boundary;
}

namespace detail {
template <class T>
inline constexpr cudaDataType_t cuda_type = CUDA_R_32F;
template <>
inline constexpr cudaDataType_t cuda_type<bfloat16> = CUDA_R_16BF;

/// A mutex of an object that may be moved while nobody holds it: the new place has a mutex of its own.
struct OwnMutex : std::mutex {
  OwnMutex() = default;
  OwnMutex(OwnMutex&&) noexcept {}
  OwnMutex& operator=(OwnMutex&&) noexcept { return *this; }
};
}  // namespace detail

class CudaProducts {
 public:
  /// On the current device, and for its streams.
  static Result<CudaProducts> make() {
    CudaProducts made;
    if (const cudaError_t status = cudaGetDevice(&made.device_); status != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return Error::say("products: there is no current device: CUDA says ",
                        cudaGetErrorString(status));
    }
    if (const cublasStatus_t status = cublasLtCreate(made.handle_.place());
        status != CUBLAS_STATUS_SUCCESS)
      return failure("no handle can be made", status);
    return static_cast<CudaProducts&&>(made);  // nvcc would copy it
  }

  /// Queues a product; `name` is for reports.
  template <class T, class Out>
  Error multiply(const char* name, cudaStream_t stream, CudaProduct<T, Out> product) {
    const std::lock_guard<std::mutex> held(lock_);
    if (const Error why = examine(name, stream)) return why;
    // The algorithm is chosen for the same room wherever the workspace lies. The product is lent all of it.
    const std::size_t room = room_of(product.workspace);
    product.workspace = placed(product.workspace);
    // Column by column, as cuBLASLt counts, the matrices are their transposes: C' = B' A'.
    cublasLtMatmulDescOpaque_t task{};
    cublasLtMatrixLayoutOpaque_t left{}, right{}, out{};
    const cublasOperation_t of_b = product.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t of_a = product.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t status = cublasLtMatmulDescInit(&task, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const auto keep = [&](cublasStatus_t next) {
      if (status == CUBLAS_STATUS_SUCCESS) status = next;
    };
    const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
      keep(cublasLtMatmulDescSetAttribute(&task, what, &value, sizeof value));
    };
    const auto layout = [&](cublasLtMatrixLayoutOpaque_t& matrix, std::size_t rows,
                            std::size_t cols, std::size_t stride,
                            cudaDataType_t type = detail::cuda_type<T>) {
      keep(cublasLtMatrixLayoutInit(&matrix, type, rows, cols,
                                    static_cast<std::int64_t>(stride != 0 ? stride : rows)));
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, of_b);
    set(CUBLASLT_MATMUL_DESC_TRANSB, of_a);
    if (product.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, detail::cuda_type<Out>);
    }
    if (product.b_transposed) layout(left, product.k, product.n, 0);
    else layout(left, product.n, product.k, 0);
    if (product.a_transposed) layout(right, product.m, product.k, product.a_stride);
    else layout(right, product.k, product.m, product.a_stride);
    layout(out, product.n, product.m, product.c_stride, detail::cuda_type<Out>);
    if (status != CUBLAS_STATUS_SUCCESS) return failure(name, status);

    Known known;
    if (const Error why = find(name, product, room, task, left, right, out, known)) return why;
    const Out* const before = product.added != nullptr ? product.added : product.c;
    const float scale = product.scale,
                old = product.accumulates || product.added != nullptr ? 1 : 0;
    status = cublasLtMatmul(handle_.get(), &task, &scale, product.b, &left, product.a, &right, &old,
                            before, &out, product.c, &out, &known.algorithm,
                            product.workspace.data(), product.workspace.size(), stream);
    if (status != CUBLAS_STATUS_SUCCESS) return failure(name, status);
    return {};
  }

 private:
  /// The choice of an algorithm depends on these.
  struct Key {
    std::size_t m = 0, n = 0, k = 0, a_stride = 0, c_stride = 0, room = 0;
    std::uint32_t boundary = 0, flags = 0;
    bool operator==(const Key&) const = default;
  };
  struct Known {
    Key key;
    cublasLtMatmulAlgo_t algorithm{};
  };
  static constexpr std::size_t most_known = 64;
  /// Algorithms that cuBLASLt is asked for, best first; those that cannot run are passed over.
  static constexpr int most_offered = 8;

  /// The part of a workspace from the first place good for cuBLASLt; the least size of this part.
  static Bytes placed(Bytes workspace) {
    constexpr std::size_t boundary = detail::product_boundary;
    if (workspace.size() <= boundary) return {};
    const std::size_t past = reinterpret_cast<std::uintptr_t>(workspace.data()) % boundary;
    const std::size_t skipped = past == 0 ? 0 : boundary - past;
    return {workspace.data() + skipped, Shape(workspace.size() - skipped)};
  }
  static std::size_t room_of(Bytes workspace) {
    constexpr std::size_t boundary = detail::product_boundary;
    return workspace.size() <= boundary ? 0 : workspace.size() - boundary;
  }
  /// Whether a stream is of the device. A step has one stream: CUDA is asked when another one comes.
  Error examine(const char* name, cudaStream_t stream) {
    if (has_stream_ && stream == stream_) return {};
    const Result<int> device = detail::device_of(stream);
    if (!device) return Error::say(name, ": ", device.error.text());
    if (*device != device_)
      return Error::misuse(name, ": the stream is of device ", *device,
                           ", and what it multiplies with was made on device ", device_);
    stream_ = stream;
    has_stream_ = true;
    return {};
  }
  static Error failure(const char* name, cublasStatus_t status) {
    return Error::say(name, ": cuBLASLt says ", cublasLtGetStatusString(status));
  }

  /// The largest power of 2, at most 64, that divides all addresses: tensors in an arena lie at multiples of 64. Beyond
  /// 64 an algorithm would depend on chance, and a recomputed activation, which lies elsewhere, would have other bits.
  template <class T, class Out>
  static std::uint32_t boundary_of(const CudaProduct<T, Out>& product) {
    std::uintptr_t bits = 64;
    for (const void* at : std::initializer_list<const void*>{product.a, product.b, product.c,
                                                             product.bias, product.added})
      bits |= reinterpret_cast<std::uintptr_t>(at);
    return static_cast<std::uint32_t>(bits & (~bits + 1));
  }

  template <class T, class Out>
  Error find(const char* name, const CudaProduct<T, Out>& product, std::size_t room,
             cublasLtMatmulDescOpaque_t& task, cublasLtMatrixLayoutOpaque_t& left,
             cublasLtMatrixLayoutOpaque_t& right, cublasLtMatrixLayoutOpaque_t& out, Known& found) {
    const Key key{
        product.m,
        product.n,
        product.k,
        product.a_stride,
        product.c_stride,
        room,
        boundary_of(product),
        static_cast<std::uint32_t>(
            (product.a_transposed ? 1 : 0) | (product.b_transposed ? 2 : 0) |
            (product.accumulates ? 4 : 0) | (product.bias != nullptr ? 8 : 0) |
            (dtype_of<T> == Dtype::bf16 ? 16 : 0) | (dtype_of<Out> == Dtype::bf16 ? 32 : 0) |
            (product.added != nullptr ? 64 : 0))};
    for (std::size_t i = 0; i < count_; ++i)
      if (known_[i].key == key) {
        found = known_[i];
        return {};
      }
    cublasLtMatmulPreferenceOpaque_t wishes{};
    cublasLtMatmulHeuristicResult_t offered[most_offered] = {};
    int results = 0;
    cublasStatus_t status = cublasLtMatmulPreferenceInit(&wishes);
    const auto wish = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(&wishes, what, &value, sizeof value);
    };
    wish(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{room});
    for (const auto what :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      wish(what, key.boundary);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulAlgoGetHeuristic(handle_.get(), &task, &left, &right, &out, &out,
                                              &wishes, most_offered, offered, &results);
    if (status != CUBLAS_STATUS_SUCCESS) return failure(name, status);
    int first = 0;
    while (first < results && offered[first].state != CUBLAS_STATUS_SUCCESS) ++first;
    if (first == results)
      return Error::say(name, ": cuBLASLt has no algorithm for a product of ", product.m, " x ",
                        product.k, " and ", product.k, " x ", product.n);
    found = {key, offered[first].algo};
    if (count_ < most_known) known_[count_++] = found;
    return {};
  }

  detail::CudaHandle<cublasLtHandle_t, &cublasLtDestroy> handle_;
  detail::OwnMutex lock_;  ///< of all below
  int device_ = 0;
  cudaStream_t stream_ = nullptr;  ///< known to belong to the device
  bool has_stream_ = false;
  std::size_t count_ = 0;
  Known known_[most_known];
};

namespace detail {

/// Queues a product, with the handle lent to the context.
template <class T, class Out>
void cuda_multiply(Cuda& cuda, const char* name, const CudaProduct<T, Out>& product) {
  if (cuda.products() == nullptr)
    return cuda.note(Error::misuse(name,
                                   ": the context has nothing to multiply with: lend it "
                                   "CudaProducts"));
  cuda.note(cuda.products()->multiply(name, cuda.stream(), product));
}

/// The same, with as much of a workspace as the product can use.
template <class T, class Out>
void cuda_multiply(Cuda& cuda, const char* name, CudaProduct<T, Out> product, Bytes workspace) {
  product.workspace = {workspace.data(),
                       Shape(cuda_product_bytes(product.m, product.n, product.k, dtype_of<T>))};
  cuda_multiply(cuda, name, product);
}

}  // namespace detail

}}  // namespace adacc::v0_1
