// SPDX-License-Identifier: MIT
/// Attention in bfloat16 on a GPU:
/// attention_cuda_bench [--tiles | --cudnn] [batch heads time head_size [key_heads [both_ways]]].
///
/// Forward and backward of a few shapes, or of the one that is named (causal, with as many heads of keys and values as of
/// queries, unless more is said), timed with events: medians of rounds, in which all that is compared takes turns.
/// TFLOP/s counts the products over the positions that queries see, two in forward and five in backward; backward is
/// measured with forward's output at hand ("exact"), and without it, where statistics are computed again. Before,
/// outputs and gradients of the first and the last group of heads are compared with plain fp32 kernels: "error" is the
/// largest distance of a row from theirs, relative to its length (or the rows' mean length). No time is reported where
/// it is more than 0.02 (0.03 of a library).
///
/// --tiles measures each kernel with other sizes of tiles beside those of TensorSizes.
///
/// --cudnn measures cuDNN's attention, too, in a program built with it (-DADACC_CUDNN=ON), with the same checks, and
/// that a second run has the bits of the first. cuDNN is the library in the environment variable ADACC_CUDNN_LIBRARY,
/// or the loader's. "computed again" is forward and backward there. The last number is MiB of workspace in backward.
#include <adacc/core/random.hpp>
#include <adacc/layer/attention.cuh>
#include <adacc/layer/causal_attention.hpp>

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
  std::size_t batch, heads, time, size, key_heads;
  bool causal = true;

  std::size_t in_channels() const { return (heads + 2 * key_heads) * size; }
  std::size_t out_channels() const { return heads * size; }
  std::size_t out_elems() const { return batch * time * out_channels(); }
  std::size_t in_elems() const { return batch * time * in_channels(); }
  Shape in() const { return Shape(batch, time, in_channels()); }
  CausalAttention layer() const { return {.heads = heads, .kv_heads = key_heads}; }  ///< if causal
  /// Of one product over what queries see.
  double operations() const {
    return (causal ? 1.0 : 2.0) * static_cast<double>(batch * heads) * static_cast<double>(time) *
           static_cast<double>(time) * static_cast<double>(size);
  }
  detail::AttentionSizes of_kernels() const {
    const auto number = [](std::size_t n) { return static_cast<unsigned>(n); };
    return {.batch = number(batch),
            .time = number(time),
            .heads = number(heads),
            .key_heads = number(key_heads),
            .size = number(size),
            .group = number(heads / key_heads),
            .causal = causal};
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

/// Where a group of heads lies: the first query head's queries, and the keys and values, of one sequence.
struct Group {
  std::size_t time, size, members, stride, out_stride;
  bool causal;
  const bfloat16 *queries, *keys, *values, *dout;

  __device__ std::size_t keys_of(std::size_t query) const { return causal ? query + 1 : time; }
};
/// Outputs and gradients of queries of the group's last head, (time, size); gradients of keys and values; numbers for
/// each query of each member.
struct Reference {
  float *out, *dq, *dk, *dv, *log_sums, *inner;
};

__device__ float dot(const bfloat16* a, const bfloat16* b, std::size_t n) {
  float sum = 0;
  for (std::size_t c = 0; c < n; ++c) sum += to_float(a[c]) * to_float(b[c]);
  return sum;
}
/// A block for each query of a member, with weights and their gradients in shared memory.
__global__ void reference_queries(Group of, std::size_t member, Reference to) {
  extern __shared__ float numbers[];
  const std::size_t t = blockIdx.x, end = of.keys_of(t), size = of.size;
  float *const weight = numbers, *const gradient = numbers + of.time;
  const float scale = 1 / sqrtf(static_cast<float>(size));
  const bfloat16* const query = of.queries + t * of.stride + member * size;
  const bfloat16* const dout = of.dout + t * of.out_stride + member * size;
  for (std::size_t k = threadIdx.x; k < end; k += blockDim.x) {
    weight[k] = scale * dot(query, of.keys + k * of.stride, size);
    gradient[k] = dot(dout, of.values + k * of.stride, size);
  }
  __syncthreads();
  float top = weight[0], total = 0, inner = 0;
  for (std::size_t k = 0; k < end; ++k) top = fmaxf(top, weight[k]);
  for (std::size_t k = 0; k < end; ++k) total += expf(weight[k] - top);
  for (std::size_t k = 0; k < end; ++k) inner += expf(weight[k] - top) / total * gradient[k];
  for (std::size_t c = threadIdx.x; c < size; c += blockDim.x) {
    float out = 0, dq = 0;
    for (std::size_t k = 0; k < end; ++k) {
      const float p = expf(weight[k] - top) / total;
      out += p * to_float(of.values[k * of.stride + c]);
      dq += p * (gradient[k] - inner) * to_float(of.keys[k * of.stride + c]);
    }
    to.out[t * size + c] = out, to.dq[t * size + c] = scale * dq;
  }
  const std::size_t at = member * of.time + t;
  if (threadIdx.x == 0) to.log_sums[at] = top + logf(total), to.inner[at] = inner;
}
/// A block for each key, and one member after the other.
__global__ void reference_keys(Group of, Reference to) {
  extern __shared__ float numbers[];
  const std::size_t k = blockIdx.x, size = of.size, first = of.causal ? k : 0;
  float *const weight = numbers, *const dscore = numbers + of.time;
  const float scale = 1 / sqrtf(static_cast<float>(size));
  for (std::size_t member = 0; member < of.members; ++member) {
    const bfloat16* const queries = of.queries + member * size;
    const bfloat16* const dout = of.dout + member * size;
    for (std::size_t t = first + threadIdx.x; t < of.time; t += blockDim.x) {
      const std::size_t at = member * of.time + t;
      weight[t] = expf(scale * dot(queries + t * of.stride, of.keys + k * of.stride, size) -
                       to.log_sums[at]);
      dscore[t] = weight[t] * scale *
                  (dot(dout + t * of.out_stride, of.values + k * of.stride, size) - to.inner[at]);
    }
    __syncthreads();
    for (std::size_t c = threadIdx.x; c < size; c += blockDim.x) {
      float dk = member == 0 ? 0 : to.dk[k * size + c], dv = member == 0 ? 0 : to.dv[k * size + c];
      for (std::size_t t = first; t < of.time; ++t) {
        dk += dscore[t] * to_float(queries[t * of.stride + c]);
        dv += weight[t] * to_float(dout[t * of.out_stride + c]);
      }
      to.dk[k * size + c] = dk, to.dv[k * size + c] = dv;
    }
    __syncthreads();
  }
}

/// The memory of one shape.
struct Case {
  Sizes sizes;
  detail::AttentionSizes kernels;
  cudaStream_t stream;
  cudaEvent_t before, after;
  Device<bfloat16> qkv, out, dout, dqkv;
  Device<float> sums, statistics;
  Device<std::byte> workspace{1};
  CudaAttention* lent = nullptr;  ///< runs instead of our own kernels

  explicit Case(const Sizes& of)
      : sizes(of), kernels(of.of_kernels()), qkv(of.in_elems()), out(of.out_elems()),
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
    const CudaAttention::Answer& answer =
        attention.prepare(detail::lent_sizes(sizes.layer(), sizes.in()));
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
    if (std::isnan(relative)) return HUGE_VAL;
    if (!(relative <= worst)) worst = relative;
  }
  return worst;
}

/// How far out and dqkv are from the reference at most; says so if that is too far.
/// A library has a limit of its own: cuDNN 9.19 is off by 0.0206 with heads of 128 channels.
constexpr double far = 0.02, far_of_library = 0.03;
double error_of(Case& of, const char* what) {
  const auto [batch, heads, time, size, key_heads, causal] = of.sizes;
  const std::size_t stride = of.sizes.in_channels(), out_stride = of.sizes.out_channels();
  const std::size_t elems = time * size, members = heads / key_heads;
  const Device<float> memory(4 * elems + 2 * members * time);
  float* const m = memory.data;
  const Reference reference{
      m, m + elems, m + 2 * elems, m + 3 * elems, m + 4 * elems, m + 4 * elems + members * time};
  std::vector<float> expected(memory.count);
  double worst = 0;
  for (const bool first : {true, false}) {
    const std::size_t row = first ? 0 : (batch - 1) * time, key_head = first ? 0 : key_heads - 1;
    const std::size_t key_column = (heads + key_head) * size,
                      query_column = key_head * members * size;
    const bfloat16* const qkv = of.qkv.data + row * stride;
    const std::size_t out_at = row * out_stride + query_column;
    const Group group{time,
                      size,
                      members,
                      stride,
                      out_stride,
                      causal,
                      qkv + query_column,
                      qkv + key_column,
                      qkv + key_column + key_heads * size,
                      of.dout.data + out_at};
    const auto shared = static_cast<unsigned>(2 * time * sizeof(float));
    const auto blocks = static_cast<unsigned>(time);
    for (std::size_t member = 0; member < members; ++member)
      reference_queries<<<blocks, 128, shared, of.stream>>>(group, member, reference);
    reference_keys<<<blocks, 128, shared, of.stream>>>(group, reference);
    ok(cudaGetLastError());
    ok(cudaMemcpyAsync(expected.data(), m, memory.count * sizeof(float), cudaMemcpyDeviceToHost,
                       of.stream));
    ok(cudaStreamSynchronize(of.stream));
    for (std::size_t i = 0; i < 4; ++i) {
      const char* const names[] = {"output", "queries' gradients", "keys' gradients",
                                   "values' gradients"};
      const std::size_t between = i == 0 ? out_stride : stride, last = (members - 1) * size;
      const std::size_t columns[] = {0, query_column + last, key_column,
                                     key_column + key_heads * size};
      const bfloat16* const from =
          i == 0 ? of.out.data + out_at + last : of.dqkv.data + row * stride + columns[i];
      std::vector<bfloat16> made((time - 1) * between + size);
      ok(cudaMemcpy(made.data(), from, made.size() * sizeof(bfloat16), cudaMemcpyDeviceToHost));
      const double off = distance(made, between,
                                  {expected.begin() + static_cast<std::ptrdiff_t>(i * elems),
                                   expected.begin() + static_cast<std::ptrdiff_t>((i + 1) * elems)},
                                  size);
      if (!(off <= (of.lent != nullptr ? far_of_library : far)))
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
  return {block.data, of.sizes.layer().output_shape(of.sizes.in())};
}
Bytes sums_of(const Case& of) {
  return {reinterpret_cast<std::byte*>(of.sums.data), Shape(of.sums.count * sizeof(float))};
}

void forward(Case& of, Cuda& cuda) {
  if (of.lent != nullptr) {
    ForwardCall<bfloat16> call;
    call.x = qkv_of(of), call.y = rows_of(of, of.out), call.aux = sums_of(of);
    call.workspace = {of.workspace.data, Shape(of.workspace.count)};
    return kernel<CausalAttention, Cuda>::forward(of.sizes.layer(), cuda, call);
  }
  detail::tensor_attention_forward<bfloat16>(of.kernels, cuda, of.qkv.data, of.out.data,
                                             of.sums.data);
}
void backward(Case& of, Cuda& cuda, bool exact) {
  if (of.lent != nullptr) {
    BackwardCall<bfloat16> call;
    call.x = qkv_of(of), call.y = rows_of(of, of.out), call.dy = rows_of(of, of.dout);
    call.dx = {of.dqkv.data, of.sizes.in()}, call.aux = sums_of(of);
    call.workspace = {of.workspace.data, Shape(of.workspace.count)};
    call.exact_input = call.exact_output = exact;
    return kernel<CausalAttention, Cuda>::backward(of.sizes.layer(), cuda, call);
  }
  const bfloat16* const out = exact ? of.out.data : nullptr;
  detail::tensor_attention_backward<bfloat16>(of.kernels, cuda, of.qkv.data, out, of.dout.data,
                                              of.dqkv.data, of.sums.data, of.statistics.data);
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
    if (!(here <= (lent != nullptr ? far_of_library : far))) return false;
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
  std::printf("%5zu %5zu %5zu %5zu %4zu %6s", sizes.batch, sizes.heads, sizes.key_heads, sizes.time,
              sizes.size, sizes.causal ? "causal" : "both");
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
  bool same = compare(of, "forward", 2, forwards, [&](auto tile, Cuda& cuda) {
    detail::launch_tensor_forward<decltype(tile)>(of.kernels, cuda, of.qkv.data, of.out.data,
                                                  of.sums.data);
  });
  same =
      compare(of, "of queries", 3, of_queries,
              [&](auto tile, Cuda& cuda) {
                detail::launch_tensor_backward<true, decltype(tile)>(
                    of.kernels, cuda, of.qkv.data, of.dout.data, of.statistics.data, of.dqkv.data);
              }) &&
      same;
  return compare(of, "of keys", 4, of_keys,
                 [&](auto tile, Cuda& cuda) {
                   detail::launch_tensor_backward<false, decltype(tile)>(
                       of.kernels, cuda, of.qkv.data, of.dout.data, of.statistics.data,
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
      {8, 12, 1024, 64, 12},
      List<Of64<4, 2, 64, 64>, Of64<4, 2, 64, 64, false>, Of64<4, 2, 64, 64, false, 3>,
           Of64<4, 1, 64, 64, true, 3>, Of64<4, 2, 32, 32, true, 3>>{},
      List<Of64<4, 2, 64, 16>, Of64<4, 2, 64, 32>, Of64<4, 2, 64, 32, false, 3>,
           Of64<4, 1, 64, 16, true, 4>, Of64<4, 1, 64, 32, true, 4>, Of64<4, 1, 64, 32, true, 3>>{},
      List<Of64<4, 1, 64, 32, true, 3>, Of64<4, 1, 64, 16, true, 3>, Of64<4, 1, 64, 16, true, 4>,
           Of64<4, 2, 64, 16>, Of64<4, 2, 64, 32, false>, Of64<4, 2, 32, 16>>{});
  return compare_tiles(
             {4, 8, 2048, 128, 8},
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
  std::vector<Sizes> shapes = {
      {8, 12, 1024, 64, 12},       {4, 16, 2048, 64, 16},        {2, 16, 4096, 64, 16},
      {4, 8, 2048, 128, 8},        {2, 8, 4096, 128, 8},         {8, 12, 1024, 63, 12},
      {4, 32, 2048, 64, 8},        {2, 32, 4096, 128, 8},        {8, 12, 1024, 64, 1},
      {8, 12, 512, 64, 12, false}, {32, 12, 512, 64, 12, false}, {4, 8, 2048, 128, 8, false}};
  if (count >= 5 && count <= 7) {
    const auto number = [&](int i) {
      return static_cast<std::size_t>(std::strtoul(arguments[i], nullptr, 10));
    };
    shapes = {
        {number(1), number(2), number(3), number(4), count > 5 ? number(5) : number(2), count < 7}};
    const Sizes& s = shapes[0];
    if (s.batch * s.heads * s.time * s.size * s.key_heads == 0 || s.time > 6144 || s.size > 128 ||
        s.heads % s.key_heads != 0)
      stop("shape",
           "batch and heads are 1 or more, time is 1 to 6144, head sizes are 1 to 128, heads of "
           "keys and values divide those of queries");
  } else if (count != 1 && !tiles) {
    std::fprintf(stderr,
                 "usage: attention_cuda_bench [--tiles | --cudnn] [batch heads time head_size "
                 "[key_heads [both_ways]]]\n");
    return 2;
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("attention_cuda_bench: there is no CUDA device, so nothing is measured\n");
    return 77;
  }
  cudaDeviceProp properties;
  ok(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s, bfloat16\n", properties.name);
  if (tiles) return measure_tiles() ? 0 : 1;
  std::printf("%35s %17s %17s %17s\n%5s %5s %5s %5s %4s %6s", "", "forward", "backward, exact",
              "computed again", "batch", "heads", "keys", "time", "size", "mask");
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
    if (cudnn != nullptr && shape.causal) same = measure(shape, cudnn.get()) && same;
  }
  return same ? 0 : 1;
}
