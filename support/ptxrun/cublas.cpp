// SPDX-License-Identifier: MIT
// The functions of cuBLAS that small trainers call, on the executor's memory: products of matrices, one or a strided
// batch, and of a matrix and a vector. Sums are fp32 in order, so math modes change nothing here; numbers have the
// precision that a device has without tensor cores.
//
// Scalars are read from the host when a function is called. Pointers to scalars on the device, arrays of pointers,
// doubles and steps below 0 are refused: CUBLAS_STATUS_NOT_SUPPORTED.
#include <cublasLt.h>
#include <cublas_v2.h>

#include "host_matrix.hpp"

using namespace ptxrun;

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
};

namespace {

/// A product as cuBLAS is asked for it: m, n, k are those of op(left) op(right).
struct Call {
  cublasOperation_t turn_left, turn_right;
  int m, n, k;
  const void *alpha, *beta;
  const void* left;
  cudaDataType_t left_type;
  int left_ld;
  const void* right;
  cudaDataType_t right_type;
  int right_ld;
  void* out;
  cudaDataType_t out_type;
  int out_ld;
  // Elements from one product of a batch to the next.
  long long left_stride, right_stride, out_stride;
  int count;
  const char* who;
};

cublasStatus_t multiply(cublasHandle_t handle, const Call& call) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool turned_left = call.turn_left != CUBLAS_OP_N,
             turned_right = call.turn_right != CUBLAS_OP_N;
  const int left_rows = turned_left ? call.k : call.m, right_rows = turned_right ? call.n : call.k;
  if (call.m < 0 || call.n < 0 || call.k < 0 || call.count < 0 || call.left_ld < left_rows ||
      call.left_ld < 1 || call.right_ld < right_rows || call.right_ld < 1 || call.out_ld < call.m ||
      call.out_ld < 1 || call.alpha == nullptr || call.beta == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!known(call.left_type) || call.right_type != call.left_type ||
      (call.out_type != call.left_type && call.out_type != CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (call.m == 0 || call.n == 0) return CUBLAS_STATUS_SUCCESS;
  float alpha = 0, beta = 0;
  std::memcpy(&alpha, call.alpha, sizeof alpha), std::memcpy(&beta, call.beta, sizeof beta);
  const auto operand = [](const void* at, cudaDataType_t type, int rows, int cols, int ld,
                          bool turned, long long elements) {
    const Matrix stored{type, static_cast<u64>(turned ? cols : rows),
                        static_cast<u64>(turned ? rows : cols), ld};
    const auto bytes = elements * static_cast<long long>(size_of(type));
    return Operand{static_cast<const u8*>(at) + bytes, stored, turned};
  };
  for (int i = 0; i < call.count; ++i) {
    const Operand out =
        operand(call.out, call.out_type, call.m, call.n, call.out_ld, false, i * call.out_stride);
    const Product product{alpha,
                          beta,
                          operand(call.left, call.left_type, call.m, call.k, call.left_ld,
                                  turned_left, i * call.left_stride),
                          operand(call.right, call.right_type, call.k, call.n, call.right_ld,
                                  turned_right, i * call.right_stride),
                          out,
                          out,
                          nullptr,
                          call.who};
    if (enqueue(handle->stream, [=] { return product.run(); }) != cudaSuccess)
      return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  *mode = handle->math;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  return mode == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
/// Memory that is lent for workspaces must be there; no product here needs any.
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (bytes != 0 && device_bytes(workspace, bytes, true, "cublasSetWorkspace") == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t status) { return cublasLtGetStatusString(status); }

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t left,
                              cublasOperation_t right, int m, int n, int k, const float* alpha,
                              const float* a, int lda, const float* b, int ldb, const float* beta,
                              float* c, int ldc) {
  return multiply(
      handle, {left,       right, m, n,          k,   alpha, beta, a, CUDA_R_32F, lda,          b,
               CUDA_R_32F, ldb,   c, CUDA_R_32F, ldc, 0,     0,    0, 1,          "cublasSgemm"});
}
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t left,
                                         cublasOperation_t right, int m, int n, int k,
                                         const float* alpha, const float* a, int lda,
                                         long long a_stride, const float* b, int ldb,
                                         long long b_stride, const float* beta, float* c, int ldc,
                                         long long c_stride, int count) {
  return multiply(
      handle,
      {left,       right,      m,        n,        k,          alpha, beta,
       a,          CUDA_R_32F, lda,      b,        CUDA_R_32F, ldb,   c,
       CUDA_R_32F, ldc,        a_stride, b_stride, c_stride,   count, "cublasSgemmStridedBatched"});
}
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t left, cublasOperation_t right,
                            int m, int n, int k, const void* alpha, const void* a,
                            cudaDataType a_type, int lda, const void* b, cudaDataType b_type,
                            int ldb, const void* beta, void* c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
  if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return multiply(handle, {left,   right, m, n,      k,   alpha, beta, a, a_type, lda,           b,
                           b_type, ldb,   c, c_type, ldc, 0,     0,    0, 1,      "cublasGemmEx"});
}
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t left,
                                          cublasOperation_t right, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType a_type,
                                          int lda, long long a_stride, const void* b,
                                          cudaDataType b_type, int ldb, long long b_stride,
                                          const void* beta, void* c, cudaDataType c_type, int ldc,
                                          long long c_stride, int count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t) {
  if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return multiply(
      handle, {left,   right,  m,        n,        k,        alpha, beta,
               a,      a_type, lda,      b,        b_type,   ldb,   c,
               c_type, ldc,    a_stride, b_stride, c_stride, count, "cublasGemmStridedBatchedEx"});
}
/// y = alpha op(A) x + beta y. A vector is a matrix of one row, its step the distance of columns.
cublasStatus_t cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t turn, int m, int n,
                              const float* alpha, const float* a, int lda, const float* x,
                              int x_step, const float* beta, float* y, int y_step) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (m < 0 || n < 0 || lda < m || lda < 1 || x_step == 0 || y_step == 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (x_step < 0 || y_step < 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
  const bool turned = turn != CUBLAS_OP_N;
  const u64 rows = static_cast<u64>(m), cols = static_cast<u64>(n);
  const auto vector = [](const void* at, u64 count, int step) {
    return Operand{at, {CUDA_R_32F, 1, count, step}, true};
  };
  const Operand out = vector(y, turned ? cols : rows, y_step);
  const Product product{*alpha,
                        *beta,
                        {a, {CUDA_R_32F, rows, cols, lda}, turned},
                        vector(x, turned ? rows : cols, x_step),
                        out,
                        out,
                        nullptr,
                        "cublasSgemv"};
  return enqueue(handle->stream, [=] { return product.run(); }) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
