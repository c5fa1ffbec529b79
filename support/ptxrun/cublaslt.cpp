// SPDX-License-Identifier: MIT
// The functions of cuBLASLt that adacc calls, on the executor's memory: products of fp32, or of bfloat16,
// which are summed in fp32 and come out in either.
//
// Every algorithm it offers uses all of the workspace that it may, and leaves rubbish there, as a
// real one might. The first of several cannot run, and its state says so. The others cut the sums into 1, 2 and 3
// pieces, so their products differ in bits. PTXRUN_FAST_PRODUCT=2: products in other pieces than 2 take a
// millisecond more. PTXRUN_CUBLASLT_VERSION is the library's.
#include <cublasLt.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "host_matrix.hpp"

using namespace ptxrun;

struct cublasLtContext {
  int products = 0;
  std::atomic<int> choosing{0};  ///< threads that are being offered algorithms
};

namespace {

struct Task {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t left, right;
  cublasLtEpilogue_t epilogue;
  const void* bias;
  cudaDataType_t bias_type;
};
struct Wishes {
  u64 workspace;
  std::uint32_t boundary[4];
  std::uint32_t pieces;  ///< of an algorithm
};

template <class Known, class Opaque>
Known read(const Opaque& opaque) {
  static_assert(sizeof(Known) <= sizeof(Opaque));
  Known known;
  std::memcpy(&known, &opaque, sizeof known);
  return known;
}
template <class Known, class Opaque>
void write(Opaque& opaque, const Known& known) {
  std::memcpy(&opaque, &known, sizeof known);
}
template <class Value>
bool take(Value& to, const void* from, size_t size) {
  if (size != sizeof to) return false;
  std::memcpy(&to, from, size);
  return true;
}
cublasStatus_t status_of(bool fine) {
  return fine ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

bool aligned(const void* p, std::uint32_t boundary) {
  return reinterpret_cast<u64>(p) % boundary == 0;
}
/// cuBLAS's conditions for tensor cores, as its manual has them ("Tensor Core Usage"), of one matrix of a product.
bool aligned(const void* p, const Matrix& matrix) {
  const u64 size = size_of(matrix.type);
  return aligned(p, 16) && matrix.rows * size % 16 == 0 &&
         static_cast<u64>(matrix.ld) * size % 16 == 0;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE: return "an unsupported value or parameter was passed";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality requested is not supported";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the GPU program failed to execute";
    default: return "an error";
  }
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t task, size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  write(*task, Task{compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr,
                    CUDA_R_32F});
  return status_of(size == sizeof *task);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t opaque,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void* value, size_t size) {
  Task task = read<Task>(*opaque);
  bool fine = false;
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA: fine = take(task.left, value, size); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: fine = take(task.right, value, size); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: fine = take(task.epilogue, value, size); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: fine = take(task.bias, value, size); break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: fine = take(task.bias_type, value, size); break;
    default: break;
  }
  write(*opaque, task);
  return status_of(fine);
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t matrix, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld) {
  write(*matrix, Matrix{type, rows, cols, ld});
  return status_of(size == sizeof *matrix && ld >= static_cast<int64_t>(rows));
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t wishes,
                                                     size_t size) {
  write(*wishes, Wishes{0, {256, 256, 256, 256}, 1});
  return status_of(size == sizeof *wishes);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t opaque,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* value, size_t size) {
  Wishes wishes = read<Wishes>(*opaque);
  bool fine = false;
  switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      fine = take(wishes.workspace, value, size);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      fine = take(wishes.boundary[0], value, size);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      fine = take(wishes.boundary[1], value, size);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      fine = take(wishes.boundary[2], value, size);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      fine = take(wishes.boundary[3], value, size);
      break;
    default: break;
  }
  write(*opaque, wishes);
  return status_of(fine);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t opaque,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  *found = 0;
  const Task task = read<Task>(*opaque);
  if (handle == nullptr || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  // Whoever keeps a table of algorithms has to choose in one thread at a time, which shows here.
  handle->choosing += 1;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (handle->choosing-- != 1) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (task.compute != CUBLAS_COMPUTE_32F || task.scale != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const Wishes wishes = read<Wishes>(*preference);
  if (wanted > 1) {
    results[0] = {};
    results[0].state = CUBLAS_STATUS_NOT_SUPPORTED;
    Wishes never = wishes;
    never.workspace = ~u64{0};
    write(results[0].algo, never);
    *found = 1;
  }
  Wishes algorithm = wishes;  // what it was chosen for is what it needs
  for (; *found < wanted && algorithm.pieces <= 3; ++algorithm.pieces, ++*found) {
    cublasLtMatmulHeuristicResult_t& result = results[*found];
    result = {};
    result.state = CUBLAS_STATUS_SUCCESS;
    result.workspaceSize = wishes.workspace;
    write(result.algo, algorithm);
  }
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() {
  const char* const text = std::getenv("PTXRUN_CUBLASLT_VERSION");
  return text == nullptr ? 130100 : std::strtoull(text, nullptr, 10);
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const Wishes needs = read<Wishes>(*algorithm);
  *result = {};
  if (needs.pieces < 1 || needs.pieces > 3) return CUBLAS_STATUS_NOT_SUPPORTED;
  result->workspaceSize = needs.workspace;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t opaque,
                              const void* alpha, const void* left, cublasLtMatrixLayout_t left_at,
                              const void* right, cublasLtMatrixLayout_t right_at, const void* beta,
                              const void* old, cublasLtMatrixLayout_t old_at, void* out,
                              cublasLtMatrixLayout_t out_at, const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr || algorithm == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const Task task = read<Task>(*opaque);
  const Wishes needs = read<Wishes>(*algorithm);
  const Matrix l = read<Matrix>(*left_at), r = read<Matrix>(*right_at), o = read<Matrix>(*old_at),
               d = read<Matrix>(*out_at);
  const bool turned_l = task.left == CUBLAS_OP_T, turned_r = task.right == CUBLAS_OP_T;
  const u64 m = turned_l ? l.cols : l.rows, k = turned_l ? l.rows : l.cols;
  const u64 n = turned_r ? r.rows : r.cols;
  if (d.rows != m || d.cols != n || (turned_r ? r.cols : r.rows) != k || o.rows != m ||
      o.cols != n || o.ld != d.ld)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!aligned(left, needs.boundary[0]) || !aligned(right, needs.boundary[1]) ||
      !aligned(old, needs.boundary[2]) || !aligned(out, needs.boundary[3]) ||
      workspace_bytes < needs.workspace)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // "Must be 256B aligned", says the manual of cublasLtMatmul, and the library says so, too.
  if (!aligned(workspace, 256)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool biased = task.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (task.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !biased) return CUBLAS_STATUS_NOT_SUPPORTED;
  // What cuBLASLt's table of types has: A and B alike, C as D, which are as A or fp32, and so the bias.
  if (!known(l.type) || r.type != l.type || o.type != d.type ||
      (d.type != l.type && d.type != CUDA_R_32F) || (biased && task.bias_type != d.type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  float factor = 0, kept = 0;
  std::memcpy(&factor, alpha, sizeof factor), std::memcpy(&kept, beta, sizeof kept);
  handle->products += 1;
  if (l.type == CUDA_R_16BF)
    count_product(aligned(left, l) && aligned(right, r) && aligned(out, d));
  const Product product{factor,
                        kept,
                        {left, l, turned_l},
                        {right, r, turned_r},
                        {old, o, false},
                        {out, d, false},
                        biased ? task.bias : nullptr,
                        "cublasLtMatmul",
                        needs.pieces};
  const char* const fast = std::getenv("PTXRUN_FAST_PRODUCT");
  const bool slow = fast != nullptr && std::strtoul(fast, nullptr, 10) != needs.pieces;
  const cudaError_t status = enqueue(stream, [=]() -> cudaError_t {
    if (needs.workspace != 0) {
      u8* const scratch = device_bytes(workspace, workspace_bytes, true, product.who);
      if (!scratch) return cudaErrorIllegalAddress;
      std::memset(scratch, 0xC7, workspace_bytes);
    }
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return product.run();
  });
  return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
