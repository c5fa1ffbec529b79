// SPDX-License-Identifier: MIT
/// Causal attention in bfloat16 on a GPU: attention_cuda_bench [--tiles | --cudnn] [batch heads time head_size].
///
/// Forward and backward of a few shapes, or of the one that is named, timed with events: medians of
/// rounds, in which all that is compared takes turns. TFLOP/s counts the products over the positions that
/// queries see, two in forward and five in backward; backward is measured with forward's output at hand
/// ("exact"), and without it, where statistics are computed again. Before, outputs and gradients of
/// the first and the last head are compared with plain fp32 kernels: "error" is the largest distance of a
/// row from theirs, relative to its length (or the rows' mean length). No time is reported where it is more
/// than 0.02.
///
/// --tiles measures each kernel with other sizes of tiles beside those of TensorSizes.
///
/// --cudnn measures cuDNN's attention, too, in a program built with it (-DADACC_CUDNN=ON), with the same checks, and
/// that a second run has the bits of the first. cuDNN is the library in the environment variable ADACC_CUDNN_LIBRARY,
/// or the loader's. "computed again" is forward and backward there. The last number is MiB of workspace in backward.
#include <adacc/core/random.hpp>
#include <adacc/layer/attention.cuh>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <support/cuda/cudnn_attention.hpp>

namespace {

using namespace adacc;

constexpr int rounds = 15, per_round = 4;

[[noreturn]] void stop(const char* what, const char* why) {
  std::fprintf(stderr, "attention_cuda_bench: %s: %s\n", what, why);
  std::exit(1);
}
void ok(cudaError_t status) {
  if (status != cudaSuccess) stop("CUDA", cudaGetErrorString(status));
}

struct Sizes {
  std::size_t batch, heads, time, size;
  std::size_t channels() const { return heads * size; }
  Shape in() const { return Shape(batch, time, 3 * channels()); }
  /// Of one product over what queries see.
  double operations() const {
    return static_cast<double>(batch * heads) * static_cast<double>(time) *
           static_cast<double>(time) * static_cast<double>(size);
  }
};

template <class T>
struct Device {
  explicit Device(std::size_t elems) { resize(elems); }
  ~Device() { cudaFree(data); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  void resize(std::size_t elems) {
    ok(cudaFree(data));
    void* made = nullptr;
    ok(cudaMalloc(&made, elems * sizeof(T)));
    data = static_cast<T*>(made);
    count = elems;
  }
  T* data = nullptr;
  std::size_t count = 0;
};

__global__ void fill(bfloat16* x, std::size_t n, std::uint32_t stream) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    const PhiloxBlock r = random_block({.seed = 1, .step = stream, .purpose = Purpose::data}, i);
    // A sum of four uniform numbers, of variance 1.
    float sum = -2;
    for (const std::uint32_t w : r.word) sum += unit_float(w);
    x[i] = to_bfloat16(1.7320508F * sum);
  }
}

// ---- the reference: a block for each row of one head, no tiles, fp32 ----

/// Of head `head`: its outputs and gradients, (time, size).
struct Reference {
  float *out, *dq, *dk, *dv, *log_sums, *inner;
};

__device__ float dot(const bfloat16* a, const bfloat16* b, std::size_t n) {
  float sum = 0;
  for (std::size_t c = 0; c < n; ++c) sum += to_float(a[c]) * to_float(b[c]);
  return sum;
}
/// A block for each query, with weights and their gradients in shared memory.
__global__ void reference_queries(std::size_t time, std::size_t size, std::size_t channels,
                                  const bfloat16* qkv, const bfloat16* dout, Reference to) {
  extern __shared__ float numbers[];
  const std::size_t t = blockIdx.x, stride = 3 * channels;
  float *const weight = numbers, *const gradient = numbers + time;
  const float scale = 1 / sqrtf(static_cast<float>(size));
  const bfloat16 *const keys = qkv + channels, *const values = qkv + 2 * channels;
  for (std::size_t k = threadIdx.x; k <= t; k += blockDim.x) {
    weight[k] = scale * dot(qkv + t * stride, keys + k * stride, size);
    gradient[k] = dot(dout + t * channels, values + k * stride, size);
  }
  __syncthreads();
  float top = weight[0], total = 0, inner = 0;
  for (std::size_t k = 0; k <= t; ++k) top = fmaxf(top, weight[k]);
  for (std::size_t k = 0; k <= t; ++k) total += expf(weight[k] - top);
  for (std::size_t k = 0; k <= t; ++k) inner += expf(weight[k] - top) / total * gradient[k];
  for (std::size_t c = threadIdx.x; c < size; c += blockDim.x) {
    float out = 0, dq = 0;
    for (std::size_t k = 0; k <= t; ++k) {
      const float p = expf(weight[k] - top) / total;
      out += p * to_float(values[k * stride + c]);
      dq += p * (gradient[k] - inner) * to_float(keys[k * stride + c]);
    }
    to.out[t * size + c] = out, to.dq[t * size + c] = scale * dq;
  }
  if (threadIdx.x == 0) to.log_sums[t] = top + logf(total), to.inner[t] = inner;
}
__global__ void reference_keys(std::size_t time, std::size_t size, std::size_t channels,
                               const bfloat16* qkv, const bfloat16* dout, Reference to) {
  extern __shared__ float numbers[];
  const std::size_t k = blockIdx.x, stride = 3 * channels;
  float *const weight = numbers, *const dscore = numbers + time;
  const float scale = 1 / sqrtf(static_cast<float>(size));
  const bfloat16 *const key = qkv + k * stride + channels, *const value = key + channels;
  for (std::size_t t = k + threadIdx.x; t < time; t += blockDim.x) {
    weight[t] = expf(scale * dot(qkv + t * stride, key, size) - to.log_sums[t]);
    dscore[t] = weight[t] * scale * (dot(dout + t * channels, value, size) - to.inner[t]);
  }
  __syncthreads();
  for (std::size_t c = threadIdx.x; c < size; c += blockDim.x) {
    float dk = 0, dv = 0;
    for (std::size_t t = k; t < time; ++t) {
      dk += dscore[t] * to_float(qkv[t * stride + c]);
      dv += weight[t] * to_float(dout[t * channels + c]);
    }
    to.dk[k * size + c] = dk, to.dv[k * size + c] = dv;
  }
}

/// The memory of one shape.
struct Case {
  Sizes sizes;
  CausalAttention layer;
  cudaStream_t stream;
  cudaEvent_t before, after;
  Device<bfloat16> qkv, out, dout, dqkv;
  Device<float> sums, statistics;
  Device<std::byte> workspace{1};
  CudaAttention* lent = nullptr;  ///< runs instead of our own kernels

  explicit Case(const Sizes& of)
      : sizes(of), layer{.heads = of.heads}, qkv(of.in().elems()), out(qkv.count / 3),
        dout(out.count), dqkv(qkv.count), sums(of.batch * of.heads * of.time),
        statistics(2 * sums.count) {
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ok(cudaEventCreate(&before));
    ok(cudaEventCreate(&after));
    fill<<<256, 256, 0, stream>>>(qkv.data, qkv.count, 0);
    fill<<<256, 256, 0, stream>>>(dout.data, dout.count, 1);
    clear();
  }
  ~Case() {
    cudaEventDestroy(before);
    cudaEventDestroy(after);
    cudaStreamDestroy(stream);
  }
  /// Results become NaNs.
  void clear() {
    ok(cudaMemsetAsync(out.data, 0xFF, out.count * sizeof(bfloat16), stream));
    ok(cudaMemsetAsync(dqkv.data, 0xFF, dqkv.count * sizeof(bfloat16), stream));
    ok(cudaMemsetAsync(statistics.data, 0xFF, statistics.count * sizeof(float), stream));
    ok(cudaStreamSynchronize(stream));
  }
  /// Lends the context attention from now on; the error says why the sizes are refused.
  Error lend(CudaAttention& attention) {
    const CudaAttention::Answer& answer = attention.prepare(detail::lent_sizes(layer, sizes.in()));
    if (answer.refused) return answer.refused;
    workspace.resize(detail::lent_workspace(answer, Pass::backward));
    lent = &attention;
    return {};
  }
  template <class Work>
  float milliseconds(const Work& work) {
    Cuda cuda(stream, nullptr, lent);
    ok(cudaEventRecord(before, stream));
    for (int i = 0; i < per_round; ++i) work(cuda);
    ok(cudaEventRecord(after, stream));
    ok(cudaEventSynchronize(after));
    if (const Error why = cuda.take_error()) stop("kernel", why.text());
    float time = 0;
    ok(cudaEventElapsedTime(&time, before, after));
    return time / per_round;
  }
};

/// The largest distance of a row from its reference, relative to the row's length or to the mean one,
/// whichever is larger.
double distance(const std::vector<bfloat16>& made, std::size_t stride,
                const std::vector<float>& expected, std::size_t size) {
  const std::size_t rows = expected.size() / size;
  double mean = 0, worst = 0;
  for (const float x : expected) mean += double{x} * double{x};
  mean = std::sqrt(mean / static_cast<double>(rows));
  for (std::size_t r = 0; r < rows; ++r) {
    double error = 0, length = 0;
    for (std::size_t c = 0; c < size; ++c) {
      const double x = double{expected[r * size + c]};
      const double off = double{to_float(made[r * stride + c])} - x;
      error += off * off, length += x * x;
    }
    const double relative = std::sqrt(error) / std::max(std::sqrt(length), mean);
    if (!(relative <= worst)) worst = relative;
  }
  return worst;
}

/// How far out and dqkv are from the reference at most; says so if that is too far.
constexpr double far = 0.02;
double error_of(Case& of, const char* what) {
  const auto [batch, heads, time, size] = of.sizes;
  const std::size_t channels = of.sizes.channels(), elems = time * size;
  const Device<float> memory(4 * elems + 2 * time);
  float* const m = memory.data;
  const Reference reference{
      m, m + elems, m + 2 * elems, m + 3 * elems, m + 4 * elems, m + 4 * elems + time};
  std::vector<float> expected(memory.count);
  double worst = 0;
  const std::size_t last = (batch - 1) * time;
  for (const bool first : {true, false}) {
    const std::size_t row = first ? 0 : last, column = first ? 0 : channels - size;
    const bfloat16 *const qkv = of.qkv.data + row * 3 * channels + column, *const dout =
                                                                               of.dout.data +
                                                                               row * channels +
                                                                               column;
    const auto shared = static_cast<unsigned>(2 * time * sizeof(float));
    const auto blocks = static_cast<unsigned>(time);
    reference_queries<<<blocks, 128, shared, of.stream>>>(time, size, channels, qkv, dout,
                                                          reference);
    reference_keys<<<blocks, 128, shared, of.stream>>>(time, size, channels, qkv, dout, reference);
    ok(cudaGetLastError());
    ok(cudaMemcpyAsync(expected.data(), m, memory.count * sizeof(float), cudaMemcpyDeviceToHost,
                       of.stream));
    ok(cudaStreamSynchronize(of.stream));
    for (std::size_t i = 0; i < 4; ++i) {
      const char* const names[] = {"output", "queries' gradients", "keys' gradients",
                                   "values' gradients"};
      const std::size_t stride = i == 0 ? channels : 3 * channels;
      const bfloat16* const from =
          i == 0 ? of.out.data + row * channels + column
                 : of.dqkv.data + row * 3 * channels + (i - 1) * channels + column;
      std::vector<bfloat16> made((time - 1) * stride + size);
      ok(cudaMemcpy(made.data(), from, made.size() * sizeof(bfloat16), cudaMemcpyDeviceToHost));
      const double off = distance(made, stride,
                                  {expected.begin() + static_cast<std::ptrdiff_t>(i * elems),
                                   expected.begin() + static_cast<std::ptrdiff_t>((i + 1) * elems)},
                                  size);
      if (!(off <= far))
        std::printf("WRONG: %s, head size %zu: %s are off by %.3g\n", what, size, names[i], off);
      if (!(off <= worst)) worst = off;
    }
  }
  return worst;
}

double median(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return double{values[values.size() / 2]};
}

View<const bfloat16> qkv_of(const Case& of) { return {of.qkv.data, of.sizes.in()}; }
View<bfloat16> rows_of(const Case& of, const Device<bfloat16>& block) {
  return {block.data, of.layer.output_shape(of.sizes.in())};
}
Bytes sums_of(const Case& of) {
  return {reinterpret_cast<std::byte*>(of.sums.data), Shape(of.sums.count * sizeof(float))};
}

void forward(Case& of, Cuda& cuda) {
  if (of.lent != nullptr) {
    ForwardCall<bfloat16> call;
    call.x = qkv_of(of), call.y = rows_of(of, of.out), call.aux = sums_of(of);
    call.workspace = {of.workspace.data, Shape(of.workspace.count)};
    return kernel<CausalAttention, Cuda>::forward(of.layer, cuda, call);
  }
  detail::tensor_attention_forward(
      of.layer, cuda, View<const bfloat16>(of.qkv.data, of.sizes.in()),
      View<bfloat16>(of.out.data, of.layer.output_shape(of.sizes.in())), of.sums.data);
}
void backward(Case& of, Cuda& cuda, bool exact) {
  if (of.lent != nullptr) {
    BackwardCall<bfloat16> call;
    call.x = qkv_of(of), call.y = rows_of(of, of.out), call.dy = rows_of(of, of.dout);
    call.dx = {of.dqkv.data, of.sizes.in()}, call.aux = sums_of(of);
    call.workspace = {of.workspace.data, Shape(of.workspace.count)};
    call.exact_input = call.exact_output = exact;
    return kernel<CausalAttention, Cuda>::backward(of.layer, cuda, call);
  }
  detail::tensor_attention_backward(
      of.layer, cuda, View<const bfloat16>(of.qkv.data, of.sizes.in()),
      exact ? of.out.data : nullptr, of.dout.data, of.dqkv.data, of.sums.data, of.statistics.data);
}

/// Gradients and output of one more run, for comparison bit for bit.
std::vector<bfloat16> results(Case& of) {
  of.clear();
  Cuda cuda(of.stream, nullptr, of.lent);
  forward(of, cuda);
  backward(of, cuda, true);
  if (const Error why = cuda.take_error()) stop("kernel", why.text());
  std::vector<bfloat16> all(of.out.count + of.dqkv.count);
  ok(cudaStreamSynchronize(of.stream));
  ok(cudaMemcpy(all.data(), of.out.data, of.out.count * sizeof(bfloat16), cudaMemcpyDeviceToHost));
  ok(cudaMemcpy(all.data() + of.out.count, of.dqkv.data, of.dqkv.count * sizeof(bfloat16),
                cudaMemcpyDeviceToHost));
  return all;
}

bool measure(const Sizes& sizes, CudaAttention* lent = nullptr) {
  Case of(sizes);
  if (lent != nullptr)
    if (const Error why = of.lend(*lent)) {
      std::printf("%s\n", why.text());
      return true;
    }
  double off = 0;
  for (const bool exact : {true, false}) {
    of.clear();
    Cuda cuda(of.stream, nullptr, lent);
    forward(of, cuda);
    backward(of, cuda, exact);
    if (const Error why = cuda.take_error()) stop("kernel", why.text());
    const double here = error_of(of, exact ? "an exact output" : "statistics computed again");
    if (!(here <= far)) return false;
    off = std::max(off, here);
  }
  const std::vector<bfloat16> first = results(of);
  for (int again = 0; again < 3; ++again)
    if (const std::vector<bfloat16> next = results(of);
        std::memcmp(first.data(), next.data(), first.size() * sizeof(bfloat16)) != 0) {
      std::printf("WRONG: a second run has other bits, head size %zu%s\n", sizes.size,
                  lent != nullptr ? ", cuDNN" : "");
      return false;
    }
  std::vector<float> times[3];
  for (int round = -2; round < rounds; ++round) {  // two to warm up
    const float t[3] = {of.milliseconds([&](Cuda& cuda) { forward(of, cuda); }),
                        of.milliseconds([&](Cuda& cuda) { backward(of, cuda, true); }),
                        of.milliseconds([&](Cuda& cuda) { backward(of, cuda, false); })};
    for (int i = 0; i < 3 && round >= 0; ++i) times[i].push_back(t[i]);
  }
  std::printf("%5zu %5zu %5zu %4zu", sizes.batch, sizes.heads, sizes.time, sizes.size);
  for (int i = 0; i < 3; ++i)
    std::printf(" %9.3f %7.1f", median(times[i]),
                (i == 0 ? 2.0 : 5.0) * sizes.operations() / median(times[i]) / 1e9);
  std::printf(" %8.4f", off);
  if (lent != nullptr)
    std::printf("  %s %8.1f", lent->name(), static_cast<double>(of.workspace.count) / MiB);
  std::printf("\n");
  return true;
}

// ---- other tiles ----

struct Timed {
  const char* kernel;
  double products;
  unsigned warps, rows, others, wide;
  bool keeps;
  unsigned blocks;
  std::vector<float> times;
};

template <class... Tiles>
struct List {};

/// `work(tile, cuda)` for each tile, in rounds.
template <class Work, class... Tiles>
bool compare(Case& of, const char* kernel, double products, List<Tiles...>, const Work& work) {
  std::vector<Timed> all = {{kernel,
                             products,
                             Tiles::threads / 32,
                             Tiles::warp_rows,
                             Tiles::other_rows,
                             Tiles::wide,
                             Tiles::keeps,
                             Tiles::blocks,
                             {}}...};
  bool same = true;
  const auto check = [&](auto tile) {
    of.clear();
    Cuda cuda(of.stream);
    forward(of, cuda);
    backward(of, cuda, false);
    work(tile, cuda);
    if (const Error why = cuda.take_error()) stop("kernel", why.text());
    same = error_of(of, kernel) <= far && same;
  };
  (check(Tiles{}), ...);
  for (int round = -2; round < rounds; ++round) {
    std::size_t i = 0;
    const auto time = [&](auto tile) {
      const float t = of.milliseconds([&](Cuda& cuda) { work(tile, cuda); });
      if (round >= 0) all[i].times.push_back(t);
      ++i;
    };
    (time(Tiles{}), ...);
  }
  for (const Timed& one : all)
    std::printf("%-12s %4zu %5u %11u %6u %5u %5s %6u %9.3f %7.1f\n", one.kernel, of.sizes.size,
                one.warps, one.rows, one.others, one.wide, one.keeps ? "yes" : "no", one.blocks,
                median(one.times), one.products * of.sizes.operations() / median(one.times) / 1e9);
  return same;
}

template <class Forward, class OfQueries, class OfKeys>
bool compare_tiles(const Sizes& sizes, Forward forwards, OfQueries of_queries, OfKeys of_keys) {
  Case of(sizes);
  const Shape in = sizes.in();
  bool same = compare(of, "forward", 2, forwards, [&](auto tile, Cuda& cuda) {
    detail::launch_tensor_forward<decltype(tile)>(of.layer, cuda, in, of.qkv.data, of.out.data,
                                                  of.sums.data);
  });
  same = compare(of, "of queries", 3, of_queries,
                 [&](auto tile, Cuda& cuda) {
                   detail::launch_tensor_backward<true, decltype(tile)>(
                       of.layer, cuda, in, of.qkv.data, of.dout.data, of.statistics.data,
                       of.dqkv.data);
                 }) &&
         same;
  return compare(of, "of keys", 4, of_keys,
                 [&](auto tile, Cuda& cuda) {
                   detail::launch_tensor_backward<false, decltype(tile)>(
                       of.layer, cuda, in, of.qkv.data, of.dout.data, of.statistics.data,
                       of.dqkv.data);
                 }) &&
         same;
}

/// Warps, rows of 16, others, wide, whether own rows are kept, and blocks on a processor.
template <unsigned warps, unsigned tall, unsigned others, unsigned wide, bool keeps = true,
          unsigned blocks = 2>
using Of64 = detail::TensorTile<64, warps, tall, others, wide, keeps, blocks>;
template <unsigned warps, unsigned tall, unsigned others, unsigned wide, bool keeps = true,
          unsigned blocks = 2>
using Of128 = detail::TensorTile<128, warps, tall, others, wide, keeps, blocks>;

bool measure_tiles() {
  std::printf("%-12s %4s %5s %11s %6s %5s %5s %6s %9s %7s\n", "kernel", "size", "warps",
              "warp's rows", "others", "wide", "keeps", "blocks", "ms", "TFLOP/s");
  const bool small = compare_tiles(
      {8, 12, 1024, 64},
      List<Of64<4, 2, 64, 64>, Of64<4, 2, 64, 64, false>, Of64<4, 2, 64, 64, false, 3>,
           Of64<4, 1, 64, 64, true, 3>, Of64<4, 2, 32, 32, true, 3>>{},
      List<Of64<4, 2, 64, 16>, Of64<4, 2, 64, 32>, Of64<4, 2, 64, 32, false, 3>,
           Of64<4, 1, 64, 16, true, 4>, Of64<4, 1, 64, 32, true, 4>, Of64<4, 1, 64, 32, true, 3>>{},
      List<Of64<4, 1, 64, 32, true, 3>, Of64<4, 1, 64, 16, true, 3>, Of64<4, 1, 64, 16, true, 4>,
           Of64<4, 2, 64, 16>, Of64<4, 2, 64, 32, false>, Of64<4, 2, 32, 16>>{});
  return compare_tiles(
             {4, 8, 2048, 128},
             List<Of128<4, 1, 64, 64, true, 3>, Of128<4, 1, 64, 64>, Of128<4, 2, 64, 64, false>,
                  Of128<4, 2, 32, 32, false>>{},
             List<Of128<4, 1, 64, 32>, Of128<4, 1, 64, 16, true, 3>, Of128<4, 2, 64, 32, false>>{},
             List<Of128<4, 1, 64, 16>, Of128<4, 1, 32, 16>, Of128<4, 1, 64, 32, false>,
                  Of128<8, 1, 64, 16, true, 1>>{}) &&
         small;
}

}  // namespace

int main(int count, char** arguments) {
  const bool tiles = count == 2 && std::strcmp(arguments[1], "--tiles") == 0;
  const bool with_cudnn = count > 1 && std::strcmp(arguments[1], "--cudnn") == 0;
  if (with_cudnn) --count, ++arguments;
  std::vector<Sizes> shapes = {{8, 12, 1024, 64}, {4, 16, 2048, 64}, {2, 16, 4096, 64},
                               {4, 8, 2048, 128}, {2, 8, 4096, 128}, {8, 12, 1024, 63}};
  if (count == 5) {
    const auto number = [&](int i) {
      return static_cast<std::size_t>(std::strtoul(arguments[i], nullptr, 10));
    };
    shapes = {{number(1), number(2), number(3), number(4)}};
    const Sizes& s = shapes[0];
    if (s.batch * s.heads * s.time * s.size == 0 || s.time > 6144 || s.size > 128)
      stop("shape", "batch and heads are 1 or more, time is 1 to 6144, head sizes are 1 to 128");
  } else if (count != 1 && !tiles) {
    std::fprintf(stderr,
                 "usage: attention_cuda_bench [--tiles | --cudnn] [batch heads time head_size]\n");
    return 2;
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("attention_cuda_bench: there is no CUDA device, so nothing is measured\n");
    return 77;
  }
  cudaDeviceProp properties;
  ok(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s, bfloat16, causal\n", properties.name);
  if (tiles) return measure_tiles() ? 0 : 1;
  std::printf("%5s %5s %5s %4s %17s %17s %17s\n%5s %5s %5s %4s", "", "", "", "", "forward",
              "backward, exact", "computed again", "batch", "heads", "time", "size");
  for (int i = 0; i < 3; ++i) std::printf(" %9s %7s", "ms", "TFLOP/s");
  std::printf(" %8s\n", "error");
  bool same = true;
  std::unique_ptr<CudaAttention> cudnn;
  if (with_cudnn) {
    auto made = support::make_cudnn_attention();
    if (!made) stop("cuDNN", made.error.text());
    cudnn = std::move(*made);
  }
  for (const Sizes& shape : shapes) {
    same = measure(shape) && same;
    if (cudnn != nullptr) same = measure(shape, cudnn.get()) && same;
  }
  return same ? 0 : 1;
}
