// SPDX-License-Identifier: MIT
/// The execution context of kernels on a CUDA device: the caller's stream, mode and randomness.
///
/// Work is queued on the stream and nothing waits for it: no launch allocates or synchronizes, so a step can be
/// captured in a CUDA graph. Tensors, blobs and losses are device memory. A call therefore reports only failures
/// known on the host: arguments that do not fit, and failed launches. Layers return nothing: the context keeps the
/// first failure, and the step asks for it at its end.
///
///     Result<Cuda> cuda = Cuda::make(stream, &products);   // looks at device and stream
///     step->bind(arena, params, gradients);                // views of device memory
///     step->bind_loss(Cuda::Loss(place, stream));          // a double of device memory
///     step->submit(*cuda, tokens, targets);                // returns once all is queued
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "bytes.hpp"
#include "config.hpp"
#include "context.hpp"
#include "cuda_launch.cuh"
#include "cuda_stream.cuh"
#include "dtype.hpp"
#include "error.hpp"
#include "packets.cuh"
#include "view.hpp"

namespace adacc { inline namespace v0_1 {

class CudaProducts;   // layer/cuda/products.cuh
class CudaAttention;  // layer/cuda/lent_attention.cuh

namespace detail {

/// The error of the last launch by `<<<>>>`, of the kernel called `name`, if there is one; clears CUDA's error.
inline Error launch_error(const char* name) {
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return {};
  return Error::say(name, ": CUDA did not start the kernel: ", cudaGetErrorString(status));
}

template <class T>
struct FillBody {
  T value;
  __device__ T operator()() const { return value; }
};
/// Stored numbers are rounded to the nearest.
struct NarrowBody {
  __device__ float operator()(float x) const { return x; }
};
struct SumBody {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

/// Copies two bytes at a time: pieces have an even number of bytes.
static __global__ void __launch_bounds__(cuda_threads)
    gather_kernel(const std::byte* from, Pieces pieces, std::byte* to) {
  const std::size_t each = pieces.bytes / 2;
  for (std::size_t i = std::size_t{blockIdx.x} * cuda_threads + threadIdx.x;
       i < each * pieces.count; i += std::size_t{gridDim.x} * cuda_threads)
    reinterpret_cast<std::uint16_t*>(to)[i] = *reinterpret_cast<const std::uint16_t*>(
        from + pieces.first + i / each * pieces.stride + i % each * 2);
}

static __global__ void add_loss_kernel(double* loss, double share) { *loss += share; }

}  // namespace detail

class Cuda : public KernelCall {
 public:
  static constexpr bool runs_parts = false;

  /// A context on the default stream.
  Cuda() = default;
  /// A context whose device and stream are not checked: see make(). Linear layers multiply with `products`. Attention
  /// in bfloat16 runs by `attention`, if it is lent and takes the sizes, or else by our own kernels.
  explicit Cuda(cudaStream_t stream, CudaProducts* products = nullptr,
                CudaAttention* attention = nullptr)
      : stream_(stream), products_(products), attention_(attention) {}

  /// Checks for a device that runs our kernels, and for a stream of the current device.
  /// Stream, products and attention must outlive the context and its copies.
  static Result<Cuda> make(cudaStream_t stream, CudaProducts* products = nullptr,
                           CudaAttention* attention = nullptr);

  cudaStream_t stream() const { return stream_; }
  CudaProducts* products() const { return products_; }
  CudaAttention* attention() const { return attention_; }

  int workers() const { return 1; }

  /// A step of a Training is captured as a CUDA graph once it has run under its plan, and replayed as long as
  /// the plan stands and batches lie where they lay. Steps that draw numbers (dropout, stochastic codecs), steps on
  /// the default stream, which CUDA does not capture, and those whose codecs are looked at run as they are.
  bool capture_steps = true;

  template <class T>
  void fill(View<T> to, T value) {
    const Wide<T> wide = [&] {
      if constexpr (dtype_of<T> == Dtype::bf16) return to_float(value);
      else return value;
    }();
    map("fill", to, detail::FillBody<Wide<T>>{wide});
  }
  template <class T>
  void accumulate(View<const T> from, View<T> to) {
    map("accumulate", to, detail::SumBody{}, to.data(), from.data());
  }

  /// Queues to[e] = body(from[e]...) for all elements; `to` may be one of `from`. The body takes and returns numbers
  /// as Wide<>. `name` is for error texts. See map_kernel (core/packets.cuh).
  template <class To, class Body, class... From>
  void map(const char* name, View<To> to, const Body& body, const From*... from) {
    if (to.empty()) return;
    constexpr unsigned count = detail::packet_elems<To, From...>;
    const bool aligned =
        (detail::packet_aligned<count>(to.data()) && ... && detail::packet_aligned<count>(from));
    launch(name, detail::cuda_grid(div_up(to.size(), count)), detail::cuda_threads,
           &detail::map_kernel<count, Body, To, From...>, to.size(), aligned, body, to.data(),
           from...);
  }

  /// Queues copies of `from`, rounded to the nearest, to as many places of `to`.
  void narrow(const char* name, View<const float> from, View<bfloat16> to) {
    map(name, View<bfloat16>(to.data(), from.shape()), detail::NarrowBody{}, from.data());
  }

  /// The reverse, which is exact.
  void widen(const char* name, View<const bfloat16> from, View<float> to) {
    map(name, to, detail::NarrowBody{}, from.data());
  }

  /// Queues a copy within device memory.
  template <class T>
  void copy(const char* name, View<const T> from, View<T> to) {
    const cudaError_t status = cudaMemcpyAsync(to.data(), from.data(), from.size() * sizeof(T),
                                               cudaMemcpyDeviceToDevice, stream_);
    if (status != cudaSuccess)
      note(Error::say(name, ": CUDA did not start a copy: ", cudaGetErrorString(status)));
  }

  /// Queues a fill of device memory: every byte becomes `value`.
  void set_bytes(const char* name, Bytes to, unsigned char value) {
    const cudaError_t status = cudaMemsetAsync(to.data(), value, to.size(), stream_);
    if (status != cudaSuccess)
      note(Error::say(name, ": CUDA did not start a fill: ", cudaGetErrorString(status)));
  }

  /// Queues a gather within device memory: the pieces of the memory at `from` are copied to `to`, one right behind
  /// the other. Bytes and distances are even.
  void gather(const std::byte* from, const Pieces& pieces, std::byte* to) {
    if (pieces.total() == 0) return;
    launch("gather", detail::cuda_grid(pieces.total() / 2), detail::cuda_threads,
           &detail::gather_kernel, from, pieces, to);
  }

  /// Keeps `error` unless there is an earlier one.
  void note(const Error& error) {
    if (error && !error_) error_ = error;
  }
  /// Queues a kernel, called `name` in errors, with these arguments:
  /// @param blocks  how many
  /// @param threads of each block
  /// A failed launch is noted.
  template <class... Parameters>
  void launch(const char* name, unsigned blocks, unsigned threads, void (*kernel)(Parameters...),
              std::type_identity_t<Parameters>... arguments) {
    note(detail::launch(name, {dim3(blocks), threads, stream_}, kernel, arguments...));
  }
  /// To be called after a launch by `<<<>>>` of the kernel `name`: notes the error if the launch failed. CUDA's last
  /// error is taken for the launch's, whoever caused the error: launch() is not misled by others.
  void launched(const char* name) { note(detail::launch_error(name)); }

  /// Returns the first error noted since the last call, or else an error of CUDA's after which every later call fails.
  /// Other errors kept by CUDA belong to others, and are left there.
  Error take_error() {
    Error taken = error_;
    error_ = {};
    const cudaError_t status = cudaPeekAtLastError();
    if (!taken && detail::ends_all_work(status))
      taken = Error::say("CUDA: ", cudaGetErrorString(status));
    return taken;
  }
  /// take_error(), or else the last error kept by CUDA, which is cleared: for launches of a stash's user, who queues
  /// kernels between calls of the stash.
  Error take_any_error() {
    Error taken = take_error();
    const cudaError_t status = cudaGetLastError();
    if (!taken && status != cudaSuccess) taken = Error::say("CUDA: ", cudaGetErrorString(status));
    return taken;
  }

  /// Why `bytes` bytes at `data` are no memory of the current device; empty if they are.
  static Error memory_fault(const char* name, const void* data, std::size_t bytes);
  /// Why `bytes` bytes at `data` are no memory readable by the host; empty if they are.
  static Error host_memory_fault(const char* name, const void* data, std::size_t bytes);

  /// Memory passed to a function by a caller.
  struct Lent {
    const char* name;
    const void* data;
    std::size_t bytes;
  };
  /// The fault of the first block outside of the current device's memory, in words that begin with `who`. Asks CUDA
  /// twice for each block, which may also be done while a stream is captured. Asks nothing within steps, which have
  /// already checked the memory.
  Error examine(const char* who, std::initializer_list<Lent> all) const {
    if (memory_is_checked) return {};
    for (const Lent& lent : all)
      if (lent.bytes != 0)
        if (const Error why = memory_fault(lent.name, lent.data, lent.bytes))
          return Error::misuse(who, ": ", why.text());
    return {};
  }
  bool memory_is_checked = false;  ///< set by steps around their calls of codecs

  /// The targets of a loss over classes, as seen by the device, which cannot return an error.
  struct TargetReport {
    std::uint64_t counted = 0;  ///< targets that are not ignored
    std::uint64_t wrong_at =
        0;  ///< the first target that is no class: its number, from 1 on; 0: there is none
    std::int64_t wrong = 0;  ///< this target
  };

  /// Numbers of device memory that the host reads behind a step, by one copy.
  struct StepResult {
    TargetReport report;
    double loss = 0;
    double norm = 0;  ///< of the gradients, if somebody queued it behind the step
  };

  /// A double in device memory, to which losses add their shares on the stream.
  class Loss {
   public:
    Loss() = default;
    /// The loss and its report in `all`, in device memory: value() also reads the rest, and nothing else waits.
    Loss(StepResult* all, cudaStream_t stream) : Loss(&all->loss, stream, &all->report) {
      all_ = all;
    }
    /// `place` stays the caller's and must outlive the steps. So does `report`, in device memory, too. Without a
    /// report, a target that is no class makes the loss NaN, and nobody knows how many targets counted.
    Loss(double* place, cudaStream_t stream, TargetReport* report = nullptr)
        : place_(place), report_(report), stream_(stream) {}

    void clear() {
      read_ = false;
      if (place_ != nullptr)
        lost_ = cudaMemsetAsync(place_, 0, sizeof(double), stream_) != cudaSuccess;
    }
    /// For losses computed on the host.
    void add(double share);
    /// Waits for all work queued on the stream; NaN if any of the work failed.
    double value() const {
      double loss = std::numeric_limits<double>::quiet_NaN();
      if (place_ == nullptr || lost_) return loss;
      if (all_ != nullptr) {
        read_ = fetch(seen_, all_);
        return read_ ? seen_.loss : loss;
      }
      return fetch(loss, place_) ? loss : std::numeric_limits<double>::quiet_NaN();
    }
    /// StepResult::norm as value() read it behind the last step; NaN if it did not.
    double norm() const { return read_ ? seen_.norm : std::numeric_limits<double>::quiet_NaN(); }
    Error fault() const {
      if (place_ == nullptr)
        return Error::misuse("the loss has no place: lend a double of device memory (bind_loss)");
      if (report_ != nullptr)
        if (const Error why = memory_fault("bytes of the report", report_, sizeof *report_))
          return why;
      return memory_fault("bytes of the loss", place_, sizeof(double));
    }

    /// Gives the last step's report to the host, once the stream has come so far; false if there is none. Waits, unless
    /// value() has read it.
    bool read_report(TargetReport& to) const {
      if (!read_) return report_ != nullptr && fetch(to, report_);
      to = seen_.report;
      return true;
    }

    double* place() const { return place_; }
    TargetReport* report() const { return report_; }

   private:
    template <class Numbers>
    bool fetch(Numbers& to, const Numbers* from) const {
      return cudaMemcpyAsync(&to, from, sizeof to, cudaMemcpyDeviceToHost, stream_) ==
                 cudaSuccess &&
             cudaStreamSynchronize(stream_) == cudaSuccess;
    }

    double* place_ = nullptr;
    TargetReport* report_ = nullptr;
    StepResult* all_ = nullptr;
    cudaStream_t stream_ = nullptr;
    bool lost_ = false;          ///< a share or the clearing could not be queued
    mutable bool read_ = false;  ///< `seen_` is of the last step
    mutable StepResult seen_;
  };

 private:
  cudaStream_t stream_ = nullptr;
  CudaProducts* products_ = nullptr;
  CudaAttention* attention_ = nullptr;
  Error error_;
};

namespace detail {

/// Why the first or the last byte of a block is no memory of the current device (`on_device`) or of the host.
inline Error place_fault(const char* name, const void* data, std::size_t bytes, bool on_device) {
  const auto first = static_cast<const char*>(data);
  for (const char* at : {first, first + bytes - 1}) {
    cudaPointerAttributes found{};
    const cudaError_t status = cudaPointerGetAttributes(&found, at);
    if (status != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return Error::say("the ", name,
                        ": CUDA does not know their memory: ", cudaGetErrorString(status));
    }
    const bool device = found.type == cudaMemoryTypeDevice || found.type == cudaMemoryTypeManaged;
    if (device && !on_device && found.type == cudaMemoryTypeDevice)
      return Error::misuse("the ", name, " lie in device memory, and host memory is wanted here");
    if (!on_device) continue;
    if (!device && at != first)
      return Error::misuse("the ", name, " are ", shown(bytes),
                           " of device memory, and the allocation that they lie in ends before");
    if (!device)
      return Error::misuse("the ", name, " lie in host memory, and device memory is wanted here");
    int current = 0;
    if (cudaGetDevice(&current) == cudaSuccess && found.type == cudaMemoryTypeDevice &&
        found.device != current)
      return Error::misuse("the ", name, " lie on device ", found.device, ", and device ", current,
                           " is the current one");
  }
  return {};
}

}  // namespace detail

inline void Cuda::Loss::add(double share) {
  if (detail::launch("loss", {dim3(1), 1, stream_}, &detail::add_loss_kernel, place_, share))
    lost_ = true;
}

inline Error Cuda::memory_fault(const char* name, const void* data, std::size_t bytes) {
  return detail::place_fault(name, data, bytes, true);
}
inline Error Cuda::host_memory_fault(const char* name, const void* data, std::size_t bytes) {
  return detail::place_fault(name, data, bytes, false);
}

inline Result<Cuda> Cuda::make(cudaStream_t stream, CudaProducts* products,
                               CudaAttention* attention) {
  const auto says = [](const char* what, cudaError_t status) {
    static_cast<void>(cudaGetLastError());
    return Error::say(what, ": CUDA says ", cudaGetErrorString(status));
  };
  int devices = 0, device = 0;
  const cudaError_t counted = cudaGetDeviceCount(&devices);
  if (counted == cudaErrorInsufficientDriver)
    return says("the driver is older than the CUDA runtime that this program was built with",
                counted);
  if (counted == cudaErrorNoDevice || (counted == cudaSuccess && devices == 0)) {
    static_cast<void>(cudaGetLastError());
    return Error::say("there is no CUDA device");
  }
  if (counted != cudaSuccess) return says("CUDA devices cannot be counted", counted);
  if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess)
    return says("there is no current device", status);
  if (const Error why = detail::stream_fault(stream)) return why;
  cudaFuncAttributes attributes{};
  const void* kernel = reinterpret_cast<const void*>(&detail::add_loss_kernel);
  if (const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
      status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    int major = 0, minor = 0;
    static_cast<void>(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    static_cast<void>(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    return Error::say("the program has no kernels for device ", device, ", of compute capability ",
                      major, ".", minor,
                      ": build it for that architecture (nvcc -arch); CUDA says ",
                      cudaGetErrorString(status));
  }
  return Cuda(stream, products, attention);
}

}}  // namespace adacc::v0_1
