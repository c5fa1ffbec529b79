// SPDX-License-Identifier: MIT
// A small trainer in CUDA as others write one: products by cuBLAS, kernels with tanhf, pinned memory. argv[1] is what
// it does: `fine` compares with loops on the host; the others make one mistake.
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace {

constexpr int size = 4096;

__global__ void tanh_of(const float* x, float* y, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n)
    y[i] = tanhf(x[i]), y[n + i] = static_cast<float>(copysign(2.0, static_cast<double>(x[i])));
}

bool near(float a, double b) { return std::fabs(a - b) <= 2e-6 * std::fabs(b) + 1e-6; }

/// op(a) op(b) alpha + c beta, of columns, element (i, j).
double expected(const float* a, const float* b, const float* c, bool turn_a, bool turn_b, int lda,
                int ldb, int ldc, int k, int i, int j) {
  double sum = 0;
  for (int p = 0; p < k; ++p)
    sum += static_cast<double>(turn_a ? a[i * lda + p] : a[p * lda + i]) *
           (turn_b ? b[p * ldb + j] : b[j * ldb + p]);
  return 0.5 * sum - 2.0 * c[j * ldc + i];
}

int wrong(const char* what, int i, int j, float found, double wanted) {
  std::printf("%s (%d, %d): %g, and %g is wanted\n", what, i, j, static_cast<double>(found),
              wanted);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "fine";
  float *h = nullptr, *d = nullptr;
  cudaStream_t stream = nullptr;
  cublasHandle_t blas = nullptr;
  if (cudaMallocHost(&h, 4 * size * sizeof(float)) != cudaSuccess ||
      cudaMalloc(&d, 4 * size * sizeof(float)) != cudaSuccess ||
      cudaStreamCreate(&stream) != cudaSuccess || cublasCreate(&blas) != CUBLAS_STATUS_SUCCESS ||
      cublasSetStream(blas, stream) != CUBLAS_STATUS_SUCCESS ||
      cublasSetMathMode(blas, CUBLAS_DEFAULT_MATH) != CUBLAS_STATUS_SUCCESS)
    return std::printf("set-up failed\n"), 1;
  float *const a = d, *const b = d + size, *const c = d + 2 * size, *const y = d + 3 * size;
  for (int i = 0; i < 3 * size; ++i) h[i] = static_cast<float>((i * 37) % 101 - 50) / 32;
  const int copied = std::strcmp(what, "unwritten") == 0 ? size : 3 * size;
  cudaMemcpyAsync(d, h, static_cast<size_t>(copied) * sizeof(float), cudaMemcpyHostToDevice,
                  stream);
  const float alpha = 0.5F, beta = -2;
  constexpr int m = 7, n = 5, k = 9, ld = 11;

  if (std::strcmp(what, "outside") == 0)
    cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &alpha, a, ld, b, ld, &beta, y + size - 8,
                ld);
  if (std::strcmp(what, "unwritten") == 0)
    cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &alpha, a, ld, b, ld, &beta, c, ld);
  if (std::strcmp(what, "fine") == 0) {
    for (const bool turn_a : {false, true})
      for (const bool turn_b : {false, true}) {
        // Two products of a batch, whose matrices are 150, 160 and 100 elements apart.
        cudaMemcpyAsync(c, h + 2 * size, size * sizeof(float), cudaMemcpyHostToDevice, stream);
        if (cublasSgemmStridedBatched(
                blas, turn_a ? CUBLAS_OP_T : CUBLAS_OP_N, turn_b ? CUBLAS_OP_T : CUBLAS_OP_N, m, n,
                k, &alpha, a, ld, 150, b, ld, 160, &beta, c, ld, 100, 2) != CUBLAS_STATUS_SUCCESS)
          return std::printf("a batch is refused\n"), 1;
        cudaMemcpyAsync(h + 3 * size, c, size * sizeof(float), cudaMemcpyDeviceToHost, stream);
        cudaStreamSynchronize(stream);
        for (int e = 0; e < 2; ++e)
          for (int i = 0; i < ld; ++i)
            for (int j = 0; j < n; ++j) {
              const float found = h[3 * size + e * 100 + j * ld + i];
              const double wanted =
                  i >= m ? h[2 * size + e * 100 + j * ld + i]
                         : expected(h + e * 150, h + size + e * 160, h + 2 * size + e * 100, turn_a,
                                    turn_b, ld, ld, ld, k, i, j);
              if (!near(found, wanted)) return wrong("product", i, j, found, wanted);
            }
      }
    for (const bool turn : {false, true}) {
      cudaMemcpyAsync(c, h + 2 * size, size * sizeof(float), cudaMemcpyHostToDevice, stream);
      if (cublasSgemv(blas, turn ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, &alpha, a, ld, b, 2, &beta, c,
                      3) != CUBLAS_STATUS_SUCCESS)
        return std::printf("a product with a vector is refused\n"), 1;
      cudaMemcpyAsync(h + 3 * size, c, size * sizeof(float), cudaMemcpyDeviceToHost, stream);
      cudaStreamSynchronize(stream);
      for (int i = 0; i < (turn ? n : m); ++i) {
        double wanted = -2.0 * h[2 * size + 3 * i];
        for (int j = 0; j < (turn ? m : n); ++j)
          wanted +=
              0.5 * static_cast<double>(turn ? h[i * ld + j] : h[j * ld + i]) * h[size + 2 * j];
        if (!near(h[3 * size + 3 * i], wanted))
          return wrong("vector", i, 0, h[3 * size + 3 * i], wanted);
      }
    }
    tanh_of<<<1, 128, 0, stream>>>(a, y, 101);
    cudaMemcpyAsync(h + 3 * size, y, 202 * sizeof(float), cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    for (int i = 0; i < 101; ++i) {
      if (!near(h[3 * size + i], std::tanh(static_cast<double>(h[i]))))
        return wrong("tanh", i, 0, h[3 * size + i], std::tanh(h[i]));
      if (h[3 * size + 101 + i] != std::copysign(2.0F, h[i]))
        return wrong("copysign", i, 0, h[3 * size + 101 + i], 2);
    }
    if (cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &alpha, a, m - 1, b, ld, &beta, c,
                    ld) != CUBLAS_STATUS_INVALID_VALUE)
      return std::printf("columns shorter than a matrix are taken\n"), 1;
  }
  const cudaError_t e = cudaStreamSynchronize(stream);
  std::printf("%s: %s\n", what, cudaGetErrorString(e));
  cublasDestroy(blas);
  cudaStreamDestroy(stream);
  cudaFree(d);
  cudaFreeHost(h);
  return e == cudaSuccess ? 0 : 1;
}
