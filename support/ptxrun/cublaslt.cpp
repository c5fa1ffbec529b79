// SPDX-License-Identifier: MIT
// The functions of cuBLASLt that adacc calls, on the executor's memory: products of fp32, or of bfloat16,
// which are summed in fp32 and come out in either.
//
// Every algorithm it offers uses all of the workspace that it may, and leaves rubbish there, as a
// real one might.
#include <cublasLt.h>

#include <bit>
#include <cstring>
#include <vector>

#include "host.hpp"

using namespace ptxrun;

struct cublasLtContext {
  int products = 0;
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
struct Matrix {
  cudaDataType_t type;
  u64 rows, cols;
  std::int64_t ld;
};
struct Wishes {
  u64 workspace;
  std::uint32_t boundary[4];
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

bool known(cudaDataType_t type) { return type == CUDA_R_32F || type == CUDA_R_16BF; }
u64 size_of(cudaDataType_t type) { return type == CUDA_R_16BF ? 2 : 4; }

/// Number i at `stored`, which are of a known type.
float number_at(const u8* stored, cudaDataType_t type, u64 i) {
  if (type == CUDA_R_16BF) {
    std::uint16_t upper = 0;
    std::memcpy(&upper, stored + 2 * i, sizeof upper);
    return std::bit_cast<float>(u32{upper} << 16);
  }
  float number = 0;
  std::memcpy(&number, stored + 4 * i, sizeof number);
  return number;
}
/// The other way; bfloat16 is rounded to the nearest.
void put_number(u8* stored, cudaDataType_t type, u64 i, float number) {
  if (type == CUDA_R_16BF) {
    const u32 bits = std::bit_cast<u32>(number);
    const bool nan = number != number;
    const auto upper =
        static_cast<std::uint16_t>(nan ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    std::memcpy(stored + 2 * i, &upper, sizeof upper);
  } else {
    std::memcpy(stored + 4 * i, &number, sizeof number);
  }
}

/// op(stored), row by row.
std::vector<float> rows_of(const u8* stored, const Matrix& m, bool transposed) {
  std::vector<float> out(m.rows * m.cols);
  const u64 ld = static_cast<u64>(m.ld);
  for (u64 c = 0; c < m.cols; ++c)
    for (u64 r = 0; r < m.rows; ++r)
      out[transposed ? c * m.rows + r : r * m.cols + c] = number_at(stored, m.type, c * ld + r);
  return out;
}
bool aligned(const void* p, std::uint32_t boundary) {
  return reinterpret_cast<u64>(p) % boundary == 0;
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
  write(*wishes, Wishes{0, {256, 256, 256, 256}});
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
  if (task.compute != CUBLAS_COMPUTE_32F || task.scale != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const Wishes wishes = read<Wishes>(*preference);
  results[0] = {};
  results[0].workspaceSize = wishes.workspace;
  write(results[0].algo, wishes);  // what it was chosen for is what it needs
  *found = 1;
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
  const cudaError_t status = enqueue(stream, [=]() -> cudaError_t {
    const auto span = [](const Matrix& at) {
      return ((at.cols - 1) * static_cast<u64>(at.ld) + at.rows) * size_of(at.type);
    };
    const auto device = [](const void* p, u64 bytes, bool writes) {
      return device_bytes(p, bytes, writes, "cublasLtMatmul");
    };
    const u8* const a = device(left, span(l), false);
    const u8* const b = device(right, span(r), false);
    const u8* const c = kept != 0 ? device(old, span(o), false) : nullptr;
    const u8* const bias = biased ? device(task.bias, m * size_of(d.type), false) : nullptr;
    if (!a || !b || (kept != 0 && !c) || (biased && !bias)) return cudaErrorIllegalAddress;
    const std::vector<float> x = rows_of(a, l, turned_l), y = rows_of(b, r, turned_r);
    std::vector<float> sums(m * n);
    for (u64 i = 0; i < m; ++i)
      for (u64 p = 0; p < k; ++p)
        for (u64 j = 0; j < n; ++j) sums[i * n + j] += x[i * k + p] * y[p * n + j];
    for (u64 j = 0; j < n; ++j)
      for (u64 i = 0; i < m; ++i) {
        float& value = sums[i * n + j];
        value *= factor;
        if (kept != 0) value += kept * number_at(c, o.type, j * static_cast<u64>(o.ld) + i);
        if (biased) value += number_at(bias, d.type, i);
      }
    if (needs.workspace != 0) {
      u8* const scratch = device_bytes(workspace, workspace_bytes, true, "cublasLtMatmul");
      if (!scratch) return cudaErrorIllegalAddress;
      std::memset(scratch, 0xC7, workspace_bytes);
    }
    u8* const to = device(out, span(d), true);
    if (!to) return cudaErrorIllegalAddress;
    for (u64 j = 0; j < n; ++j)
      for (u64 i = 0; i < m; ++i)
        put_number(to, d.type, j * static_cast<u64>(d.ld) + i, sums[i * n + j]);
    return cudaSuccess;
  });
  return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
