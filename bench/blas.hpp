// SPDX-License-Identifier: MIT
/// cblas_sgemm of a library that is on the machine or not: it is looked for when the program runs.
///
/// MKL is in a package of PyPI's:
///
///     python3 -m venv build/mkl && build/mkl/bin/pip install mkl
///     LD_LIBRARY_PATH=build/mkl/lib build/release/bench/gemm_bench
///
/// ADACC_BLAS names another library that has cblas_sgemm (with indices of 32 bits), such as
/// libopenblas.so.0. It gets one thread: MKL and OpenBLAS are told so, and others have to be.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace bench {

class Blas {
 public:
  /// The one of this process, if there is one.
  static const Blas& get() {
    static const Blas mine;
    return mine;
  }

  explicit operator bool() const { return sgemm_ != nullptr; }
  /// Which, or why there is none.
  const std::string& words() const { return words_; }

  /// C = A B, row by row; A is m x k with `lda` elements from row to row, or transposed, k x m. B likewise.
  void sgemm(bool transpose_a, bool transpose_b, long m, long n, long k, const float* a, long lda,
             const float* b, long ldb, float* c, long ldc) const {
    constexpr int row_major = 101, as_is = 111, transposed = 112;
    const auto narrow = [](long value) { return static_cast<int>(value); };
    sgemm_(row_major, transpose_a ? transposed : as_is, transpose_b ? transposed : as_is, narrow(m),
           narrow(n), narrow(k), 1, a, narrow(lda), b, narrow(ldb), 0, c, narrow(ldc));
  }

 private:
  using Sgemm = void(int, int, int, int, int, int, float, const float*, int, const float*, int,
                     float, float*, int);

  Blas() {
    // Before MKL is loaded; its threads would spin beside those of who is measured next.
    setenv("MKL_THREADING_LAYER", "SEQUENTIAL", /*overwrite=*/0);
    if (const char* const named = std::getenv("ADACC_BLAS")) {
      open(named);
      return;
    }
    for (const char* const name : {"libmkl_rt.so", "libmkl_rt.so.3", "libmkl_rt.so.2"})
      if (open(name)) return;
    words_ =
        "none: no libmkl_rt.so, .so.3 or .so.2 (LD_LIBRARY_PATH, or ADACC_BLAS names a library)";
  }

  bool open(const char* name) {
    void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      words_ = std::string("none: ") + dlerror();
      return false;
    }
    sgemm_ = reinterpret_cast<Sgemm*>(dlsym(library, "cblas_sgemm"));
    words_ = sgemm_ != nullptr ? name : std::string("none: ") + name + " has no cblas_sgemm";
    for (const char* const setter : {"MKL_Set_Num_Threads", "openblas_set_num_threads"})
      if (void* const found = dlsym(library, setter)) reinterpret_cast<void (*)(int)>(found)(1);
    return sgemm_ != nullptr;
  }

  Sgemm* sgemm_ = nullptr;
  std::string words_;
};

}  // namespace bench
