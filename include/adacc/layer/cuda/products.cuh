// SPDX-License-Identifier: MIT
/// Products of matrices on a CUDA device, by cuBLASLt: link with cublasLt.
///
/// The handle is made once, at set-up, and lent to contexts as the stream is. The algorithm of a product is chosen when
/// its shape is first seen, and remembered: every later product of the shape takes the same one, a recomputed
/// activation has the bits of the first, and choosing costs nothing. Threads may share the handle: their calls wait for
/// each other, not for the device. Descriptions live on the stack: a step allocates nothing. fp32 is fp32, not TF32.
/// Products of bfloat16 are summed in fp32, and come out in either.
///
/// By default the first algorithm of cuBLASLt's that can run is taken. choose_by_time() has each product timed when its
/// shape is first seen, and the fastest algorithm taken. Such choices may differ from run to run, and so may bits, unless
/// choices() of one run are lent to the next.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <string>

#include "../../core/cuda.cuh"
#include "../../core/cuda_handle.cuh"
#include "../../core/device_block.cuh"
#include "../../core/dtype.hpp"
#include "product_choices.hpp"

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
/// Memory for a product's operands, and times of its algorithms.
class ProductTimer {
 public:
  enum Part : int { a, b, c, bias, workspace };

  /// Fails if the stream is captured, or memory is short.
  template <class T, class Out>
  Error take(cudaStream_t stream, const CudaProduct<T, Out>& product, std::size_t room) {
    cudaStreamCaptureStatus capture{};
    if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess ||
        capture != cudaStreamCaptureStatusNone)
      return Error::say("it is seen first while its stream is captured");
    const auto rows_of = [](std::size_t rows, std::size_t cols, std::size_t stride) {
      return rows * (stride != 0 ? stride : cols);
    };
    const std::size_t of_a = product.a_transposed ? rows_of(product.k, product.m, product.a_stride)
                                                  : rows_of(product.m, product.k, product.a_stride);
    const std::size_t bytes[] = {of_a * sizeof(T), product.k * product.n * sizeof(T),
                                 rows_of(product.m, product.n, product.c_stride) * sizeof(Out),
                                 product.n * sizeof(Out), room};
    std::size_t end = 0;
    for (int i = 0; i < 5; ++i) {
      places_[i] = end;
      end += div_up(bytes[i], product_boundary) * product_boundary;
    }
    auto block = DeviceBlock<std::byte>::make(end + product_boundary, "operands of a product");
    if (!block) return block.error;
    block_ = static_cast<DeviceBlock<std::byte>&&>(*block);
    for (auto& event : events_)
      if (cudaEventCreate(event.place()) != cudaSuccess) return Error::say("CUDA makes no event");
    stream_ = stream;
    // Numbers of about 0.01 in both types: zeros would need less power, and run faster than numbers do.
    if (cudaMemsetAsync(block_.data(), 0x3C, block_.size(), stream) != cudaSuccess)
      return Error::say("CUDA fills no memory");
    return {};
  }
  std::byte* at(Part part) const { return const_cast<std::byte*>(block_.data()) + places_[part]; }
  /// Microseconds of a call of `queue`, which says whether that went well: the least of several; 0: it did not.
  template <class Queue>
  double time(const Queue& queue) const {
    float least = 0;
    for (int round = 0; round < rounds; ++round) {  // the first warms up
      bool fine = cudaEventRecord(events_[0].get(), stream_) == cudaSuccess;
      for (int i = 0; i < calls; ++i) fine = fine && queue();
      float took = 0;
      if (!fine || cudaEventRecord(events_[1].get(), stream_) != cudaSuccess ||
          cudaEventSynchronize(events_[1].get()) != cudaSuccess ||
          cudaEventElapsedTime(&took, events_[0].get(), events_[1].get()) != cudaSuccess)
        return 0;
      if (round > 0 && (least == 0 || took < least)) least = took;
    }
    return 1e3 * static_cast<double>(least) / calls;
  }

 private:
  static constexpr int rounds = 5, calls = 5;

  DeviceBlock<std::byte> block_;
  std::size_t places_[5] = {};
  CudaHandle<cudaEvent_t, &cudaEventDestroy> events_[2];
  cudaStream_t stream_ = nullptr;
};
}  // namespace detail

class CudaProducts {
  using ProductTimer = detail::ProductTimer;

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

  /// Products seen from now on are timed, each once, and take the fastest of the algorithms that cuBLASLt offers; none
  /// is timed whose choice is in `known`. Timing waits for the stream, and takes device memory for the operands
  /// meanwhile. Two kinds of product take the first algorithm, and remark() says so: one seen first while its stream is
  /// captured, and one for whose operands there is no memory. If the known choices are another device's, or of another
  /// version of cuBLASLt, remark() says so, and all are made anew.
  Error choose_by_time(const ProductChoices& known = {}) {
    const std::lock_guard<std::mutex> held(lock_);
    cudaDeviceProp properties{};
    if (const cudaError_t status = cudaGetDeviceProperties(&properties, device_);
        status != cudaSuccess)
      return Error::say("products: CUDA does not describe the device: ",
                        cudaGetErrorString(status));
    device_name_ = properties.name;
    library_ = "cuBLASLt " + std::to_string(cublasLtGetVersion());
    by_time_ = true;
    count_ = timed_ = 0;
    remark_ = {};
    if (known.list.empty()) return {};
    if (known.library != library_ || known.device != device_name_) {
      remark_ = Error::say("the known algorithms of products are those of ", known.library.c_str(),
                           " on ", known.device.c_str(), ", and this is ", library_.c_str(), " on ",
                           device_name_.c_str(), ": they are chosen anew");
      return {};
    }
    for (const ProductChoice& choice : known.list)
      if (count_ < most_known) known_[count_++] = {choice, false};
    return {};
  }
  /// The choices by time so far, known ones included.
  ProductChoices choices() {
    const std::lock_guard<std::mutex> held(lock_);
    ProductChoices all{library_, device_name_, {}};
    for (std::size_t i = 0; i < count_; ++i) all.list.push_back(known_[i].choice);
    return all;
  }
  /// Products that were timed since choose_by_time(): choices() has more than it was given.
  std::size_t timed() const { return timed_; }
  /// Why products take other algorithms than the known or fastest ones; none if they do not.
  const Error& remark() const { return remark_; }

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

    cublasLtMatmulAlgo_t algorithm{};
    const Plan plan{name, stream, task, left, right, out};
    if (const Error why = find(plan, product, room, algorithm)) return why;
    const Out* const before = product.added != nullptr ? product.added : product.c;
    const float scale = product.scale,
                old = product.accumulates || product.added != nullptr ? 1 : 0;
    status = cublasLtMatmul(handle_.get(), &task, &scale, product.b, &left, product.a, &right, &old,
                            before, &out, product.c, &out, &algorithm, product.workspace.data(),
                            product.workspace.size(), stream);
    if (status != CUBLAS_STATUS_SUCCESS) return failure(name, status);
    return {};
  }

 private:
  struct Known {
    ProductChoice choice;
    bool used = true;  ///< false: it came from elsewhere, and cuBLASLt has not looked at it
  };
  /// A product as cuBLASLt has it.
  struct Plan {
    const char* name;
    cudaStream_t stream;
    cublasLtMatmulDescOpaque_t& task;
    cublasLtMatrixLayoutOpaque_t &left, &right, &out;
  };
  static constexpr std::size_t most_known = 128;
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

  static cublasLtMatmulAlgo_t in_form_of_library(const ProductAlgorithm& from) {
    cublasLtMatmulAlgo_t to{};
    static_assert(sizeof to == sizeof from.word, "adacc: an algorithm of cuBLASLt has 64 bytes");
    std::memcpy(&to, from.word, sizeof to);
    return to;
  }

  template <class T, class Out>
  Error find(const Plan& plan, const CudaProduct<T, Out>& product, std::size_t room,
             cublasLtMatmulAlgo_t& found) {
    const ProductKey key{
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
    std::size_t place = 0;
    while (place < count_ && !(known_[place].choice.key == key)) ++place;
    if (place < count_) {
      Known& known = known_[place];
      found = in_form_of_library(known.choice.algorithm);
      if (known.used || runs(plan, room, found)) {
        known.used = true;
        return {};
      }
      remark_ =
          Error::say(plan.name, ": cuBLASLt does not run a known algorithm of a product of ", key.m,
                     " x ", key.k, " and ", key.k, " x ", key.n, ": it is chosen anew");
    }
    ProductChoice choice{.key = key};
    if (const Error why = choose(plan, product, choice)) return why;
    found = in_form_of_library(choice.algorithm);
    if (place == count_ && count_ < most_known) ++count_;
    if (place < count_) known_[place] = {choice, true};
    return {};
  }

  /// Whether cuBLASLt runs an algorithm for a product with so much workspace.
  bool runs(const Plan& plan, std::size_t room, const cublasLtMatmulAlgo_t& algorithm) const {
    cublasLtMatmulHeuristicResult_t result{};
    return cublasLtMatmulAlgoCheck(handle_.get(), &plan.task, &plan.left, &plan.right, &plan.out,
                                   &plan.out, &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
           result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= room;
  }

  template <class T, class Out>
  Error choose(const Plan& plan, const CudaProduct<T, Out>& product, ProductChoice& choice) {
    const ProductKey& key = choice.key;
    cublasLtMatmulPreferenceOpaque_t wishes{};
    cublasLtMatmulHeuristicResult_t offered[most_offered] = {};
    int results = 0;
    cublasStatus_t status = cublasLtMatmulPreferenceInit(&wishes);
    const auto wish = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasLtMatmulPreferenceSetAttribute(&wishes, what, &value, sizeof value);
    };
    wish(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{key.room});
    for (const auto what :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      wish(what, key.boundary);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = cublasLtMatmulAlgoGetHeuristic(handle_.get(), &plan.task, &plan.left, &plan.right,
                                              &plan.out, &plan.out, &wishes, most_offered, offered,
                                              &results);
    if (status != CUBLAS_STATUS_SUCCESS) return failure(plan.name, status);
    int best = 0;
    while (best < results && offered[best].state != CUBLAS_STATUS_SUCCESS) ++best;
    if (best == results)
      return Error::say(plan.name, ": cuBLASLt has no algorithm for a product of ", key.m, " x ",
                        key.k, " and ", key.k, " x ", key.n);
    if (by_time_) {
      ProductTimer timer;
      if (const Error why = timer.take(plan.stream, product, key.room)) {
        remark_ = Error::say(plan.name, ": a product of ", key.m, " x ", key.k, " and ", key.k,
                             " x ", key.n, " takes the first algorithm: ", why.text());
      } else {
        ++timed_;
        choose_fastest(plan, product, timer, offered, results, best, choice);
      }
    }
    choice.heuristic = best;
    std::memcpy(choice.algorithm.word, &offered[best].algo, sizeof choice.algorithm.word);
    return {};
  }

  /// Sets `best`, the first algorithm that can run, to the fastest, unless the first is as fast within 2 %.
  template <class T, class Out>
  void choose_fastest(const Plan& plan, const CudaProduct<T, Out>& product,
                      const ProductTimer& timer, const cublasLtMatmulHeuristicResult_t* offered,
                      int results, int& best, ProductChoice& choice) {
    const float scale = product.scale,
                old = product.accumulates || product.added != nullptr ? 1 : 0;
    cublasLtMatmulDescOpaque_t task = plan.task;
    if (product.bias != nullptr) {
      const void* const bias = timer.at(ProductTimer::bias);
      static_cast<void>(cublasLtMatmulDescSetAttribute(&task, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                       &bias, sizeof bias));
    }
    const int first = best;
    double first_time = 0;
    for (int i = first; i < results; ++i) {
      if (offered[i].state != CUBLAS_STATUS_SUCCESS) continue;
      const double time = timer.time([&] {
        return cublasLtMatmul(handle_.get(), &task, &scale, timer.at(ProductTimer::b), &plan.left,
                              timer.at(ProductTimer::a), &plan.right, &old,
                              timer.at(ProductTimer::c), &plan.out, timer.at(ProductTimer::c),
                              &plan.out, &offered[i].algo, timer.at(ProductTimer::workspace),
                              choice.key.room, plan.stream) == CUBLAS_STATUS_SUCCESS;
      });
      if (!(time > 0)) continue;
      if (i == first) first_time = time;
      const bool faster = choice.microseconds == 0 || time < choice.microseconds;
      if (!faster || (i != first && first_time > 0 && time > 0.98 * first_time)) continue;
      choice.microseconds = time;
      best = i;
    }
  }

  detail::CudaHandle<cublasLtHandle_t, &cublasLtDestroy> handle_;
  detail::OwnMutex lock_;  ///< of all below
  int device_ = 0;
  cudaStream_t stream_ = nullptr;  ///< known to belong to the device
  bool has_stream_ = false;
  std::size_t count_ = 0;
  Known known_[most_known];
  bool by_time_ = false;
  std::size_t timed_ = 0;
  Error remark_;
  std::string library_, device_name_;
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
