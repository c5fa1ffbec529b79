// SPDX-License-Identifier: MIT
/// Which algorithms of cuBLASLt a GPT-2's products are best served by: product_probe [options] [name].
///
/// The head's three products with a vocabulary of 50257, 50304 or 50256 columns whose rows lie 50304 apart, in tiles
/// of 1024 and 2048 rows, and the twelve products of a layer of GPT-2 124M at 8192 rows. Activations and weights are
/// bfloat16; gradients of weights are fp32, and added to. A square product comes last, for what the device can do.
/// Each is timed under the first eight heuristics of cuBLASLt with no workspace, 4 MiB and 32 MiB; an algorithm that
/// comes up again is timed once. Operands take turns, so that all sets of them together are larger than the cache.
/// Algorithms take turns as well: medians of rounds.
///
/// A line for each product: time and TFLOP/s of the first heuristic without a workspace, of the first with 32 MiB, and
/// of the fastest, with its heuristic, the workspace that was on offer, and the bytes that it asks for. Below stand
/// the kernels of the first and the last, where the driver knows their names.
///
///   --json FILE   a line of JSON for each product, with all its algorithms, added to the file
///   --rounds N    15 if not given
///   --rehearse    tiny sizes, for an executor: times mean nothing
///   name          only products whose names begin so: head, layer, "layer qkv"
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <adacc/core/bfloat16.hpp>
#include <adacc/core/random.hpp>

namespace {

using namespace adacc;

constexpr int heuristics = 8;
constexpr std::size_t boundary = 64;  // of tensors in an arena
constexpr std::size_t workspaces[] = {0, std::size_t{4} << 20, std::size_t{32} << 20};
constexpr float shortest_round = 0.4F;  // ms, but for calls that even most_calls of are shorter
constexpr int most_calls = 16;

[[noreturn]] void stop(const char* what, const char* why) {
  std::fprintf(stderr, "product_probe: %s: %s\n", what, why);
  std::exit(1);
}
void ok(cudaError_t status) {
  if (status != cudaSuccess) stop("CUDA", cudaGetErrorString(status));
}
void ok(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) stop("cuBLASLt", cublasLtGetStatusString(status));
}

/// C = A B or C += A B of row-major matrices, as CudaProduct has them: A is m x k, B is k x n.
struct Product {
  std::string name;
  std::size_t m, n, k;
  bool a_transposed, b_transposed, into_float, biased;
  std::size_t a_stride, c_stride;  ///< 0: as long as the rows are

  std::size_t a_bytes() const {
    const std::size_t rows = a_transposed ? k : m, cols = a_transposed ? m : k;
    return 2 * rows * (a_stride != 0 ? a_stride : cols);
  }
  std::size_t b_bytes() const { return 2 * k * n; }
  std::size_t c_bytes() const { return (into_float ? 4 : 2) * m * (c_stride != 0 ? c_stride : n); }
  double operations() const {
    return 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

struct Sizes {
  std::size_t rows, channels, tiles[2], vocabs[3], stride, pool;
};
constexpr Sizes real{8192, 768, {1024, 2048}, {50257, 50304, 50256}, 50304, std::size_t{512} << 20};
constexpr Sizes tiny{16, 8, {4, 8}, {17, 24, 16}, 24, std::size_t{1} << 14};

std::vector<Product> products_of(const Sizes& s) {
  std::vector<Product> made;
  for (const std::size_t tile : s.tiles)
    for (const std::size_t vocab : s.vocabs) {
      const std::string name =
          "head " + std::to_string(vocab) + " tile " + std::to_string(tile) + " ";
      made.push_back(
          {name + "logits", tile, vocab, s.channels, false, true, false, false, 0, s.stride});
      made.push_back(
          {name + "dx", tile, s.channels, vocab, false, false, false, false, s.stride, 0});
      made.push_back({name + "dW", vocab, s.channels, tile, true, false, true, false, s.stride, 0});
    }
  const struct {
    const char* name;
    std::size_t in, out;
  } linears[] = {{"qkv", 1, 3}, {"proj", 1, 1}, {"fc", 1, 4}, {"fcproj", 4, 1}};
  for (const auto& linear : linears) {
    const std::size_t in = linear.in * s.channels, out = linear.out * s.channels;
    const std::string name = std::string("layer ") + linear.name + " ";
    made.push_back({name + "forward", s.rows, out, in, false, true, false, true, 0, 0});
    made.push_back({name + "dx", s.rows, in, out, false, false, false, false, 0, 0});
    made.push_back({name + "dW", out, in, s.rows, true, false, true, false, 0, 0});
  }
  made.push_back({"square", s.rows, s.rows, s.rows, false, true, false, false, 0, 0});
  return made;
}

/// About normal, of a variance of 1/64: sums stay of the size of activations.
__global__ void fill(bfloat16* x, std::size_t n) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    const PhiloxBlock r = random_block({.seed = 1, .purpose = Purpose::data}, i);
    float sum = -2;
    for (const std::uint32_t w : r.word) sum += unit_float(w);
    x[i] = to_bfloat16(0.2165F * sum);
  }
}

/// Device memory of which sets of operands take turns.
struct Pool {
  explicit Pool(std::size_t size) : bytes(size) {
    void* made = nullptr;
    ok(cudaMalloc(&made, bytes));
    data = static_cast<std::byte*>(made);
  }
  ~Pool() { cudaFree(data); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::size_t sets(std::size_t of) const { return std::max(std::size_t{1}, bytes / padded(of)); }
  std::byte* set(std::size_t number, std::size_t of) const {
    if (of > bytes) stop("a pool of memory", "is too small");
    return data + number % sets(of) * padded(of);
  }
  static std::size_t padded(std::size_t n) { return (n + 255) / 256 * 256; }

  std::byte* data;
  std::size_t bytes;
};

// ---- names of kernels: the driver's, which is looked for when the program runs ----

class KernelNames {
 public:
  KernelNames() {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) return;
    nodes_ = reinterpret_cast<Nodes*>(dlsym(driver, "cuGraphGetNodes"));
    type_ = reinterpret_cast<Type*>(dlsym(driver, "cuGraphNodeGetType"));
    params_ = reinterpret_cast<Params*>(dlsym(driver, "cuGraphKernelNodeGetParams_v2"));
    of_function_ = reinterpret_cast<Name*>(dlsym(driver, "cuFuncGetName"));
    of_kernel_ = reinterpret_cast<Name*>(dlsym(driver, "cuKernelGetName"));
  }
  /// Of all kernels of a graph, with " + " between them; "" if nobody knows.
  std::string of(cudaGraph_t graph) const {
    if (nodes_ == nullptr || type_ == nullptr || params_ == nullptr) return "";
    void* list[16];
    std::size_t count = std::size(list);
    if (nodes_(graph, list, &count) != 0) return "";
    std::string names;
    for (std::size_t i = 0; i < count && i < std::size(list); ++i) {
      int type = -1;
      if (type_(list[i], &type) != 0 || type != 0) continue;  // 0: a kernel
      KernelNode node{};
      const char* name = nullptr;
      if (params_(list[i], &node) != 0) continue;
      const bool named =
          (node.function != nullptr && of_function_ != nullptr &&
           of_function_(&name, node.function) == 0) ||
          (node.kernel != nullptr && of_kernel_ != nullptr && of_kernel_(&name, node.kernel) == 0);
      if (!named || name == nullptr) continue;
      if (!names.empty()) names += " + ";
      names += name;
    }
    return names;
  }

 private:
  /// CUDA_KERNEL_NODE_PARAMS_v2, and room for more.
  struct KernelNode {
    void* function;
    unsigned sizes[7];
    void **arguments, **extra;
    void *kernel, *context;
    void* room[8];
  };
  using Nodes = int(cudaGraph_t, void**, std::size_t*);
  using Type = int(void*, int*);
  using Params = int(void*, KernelNode*);
  using Name = int(const char**, void*);
  Nodes* nodes_ = nullptr;
  Type* type_ = nullptr;
  Params* params_ = nullptr;
  Name *of_function_ = nullptr, *of_kernel_ = nullptr;
};

// ---- one product ----

struct Algorithm {
  int heuristic;
  std::size_t offered, used;  ///< bytes of workspace
  cublasLtMatmulAlgo_t algorithm;
  std::string refused;  ///< why it does not run
  std::string kernels;
  std::vector<float> times;  ///< of a call, in ms

  double milliseconds() const {
    std::vector<float> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    return double{sorted[sorted.size() / 2]};
  }
};

class Probe {
 public:
  explicit Probe(const Sizes& sizes)
      : inputs_(sizes.pool), weights_(sizes.pool / 2), outputs_(sizes.pool),
        workspace_(workspaces[2]) {
    ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    ok(cudaEventCreate(&before_));
    ok(cudaEventCreate(&after_));
    ok(cublasLtCreate(&handle_));
    const unsigned blocks = sizes.rows == tiny.rows ? 1 : 1024;
    for (const Pool* pool : {&inputs_, &weights_})
      fill<<<blocks, 256, 0, stream_>>>(reinterpret_cast<bfloat16*>(pool->data),
                                        pool->bytes / sizeof(bfloat16));
    ok(cudaGetLastError());
    ok(cudaMemsetAsync(outputs_.data, 0, outputs_.bytes, stream_));
    ok(cudaStreamSynchronize(stream_));
  }
  ~Probe() {
    cublasLtDestroy(handle_);
    cudaEventDestroy(before_);
    cudaEventDestroy(after_);
    cudaStreamDestroy(stream_);
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  /// All algorithms of a product, timed in `rounds`.
  std::vector<Algorithm> measure(const Product& product, int rounds) {
    describe(product);
    std::vector<Algorithm> all = found(product);
    std::vector<int> calls;
    for (Algorithm& each : all) {
      warm_up(product, each);
      const float once = each.refused.empty() ? round(product, each, 1) : shortest_round;
      calls.push_back(
          std::clamp(static_cast<int>(shortest_round / std::max(once, 0.001F)), 1, most_calls));
    }
    for (int i = 0; i < rounds; ++i)
      for (std::size_t j = 0; j < all.size(); ++j)
        if (all[j].refused.empty()) all[j].times.push_back(round(product, all[j], calls[j]));
    return all;
  }

 private:
  /// Column by column, as cuBLASLt counts, the matrices are their transposes: C' = B' A'.
  void describe(const Product& p) {
    ok(cublasLtMatmulDescInit(&task_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
      ok(cublasLtMatmulDescSetAttribute(&task_, what, &value, sizeof value));
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.biased) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(weights_.data));
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF);
    }
    const auto layout = [](cublasLtMatrixLayoutOpaque_t& matrix, std::size_t rows, std::size_t cols,
                           std::size_t stride, cudaDataType_t type) {
      ok(cublasLtMatrixLayoutInit(&matrix, type, rows, cols,
                                  static_cast<std::int64_t>(stride != 0 ? stride : rows)));
    };
    if (p.b_transposed) layout(left_, p.k, p.n, 0, CUDA_R_16BF);
    else layout(left_, p.n, p.k, 0, CUDA_R_16BF);
    if (p.a_transposed) layout(right_, p.m, p.k, p.a_stride, CUDA_R_16BF);
    else layout(right_, p.k, p.m, p.a_stride, CUDA_R_16BF);
    layout(out_, p.n, p.m, p.c_stride, p.into_float ? CUDA_R_32F : CUDA_R_16BF);
  }

  std::vector<Algorithm> found(const Product& product) {
    std::vector<Algorithm> all;
    for (const std::size_t offered : workspaces) {
      cublasLtMatmulPreferenceOpaque_t wishes{};
      ok(cublasLtMatmulPreferenceInit(&wishes));
      const auto wish = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
        ok(cublasLtMatmulPreferenceSetAttribute(&wishes, what, &value, sizeof value));
      };
      wish(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{offered});
      for (const auto what :
           {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
        wish(what, std::uint32_t{boundary});
      cublasLtMatmulHeuristicResult_t results[heuristics] = {};
      int count = 0;
      const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
          handle_, &task_, &left_, &right_, &out_, &out_, &wishes, heuristics, results, &count);
      if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
        std::printf("%s: no algorithm with %zu bytes: %s\n", product.name.c_str(), offered,
                    cublasLtGetStatusString(status));
        continue;
      }
      for (int i = 0; i < count; ++i) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
        const bool known = std::any_of(all.begin(), all.end(), [&](const Algorithm& other) {
          return std::memcmp(&other.algorithm, &results[i].algo, sizeof other.algorithm) == 0;
        });
        // The first heuristic of each workspace has a line of its own in any case.
        if (!known || i == 0)
          all.push_back({i, offered, results[i].workspaceSize, results[i].algo, "", "", {}});
      }
    }
    if (all.empty()) stop(product.name.c_str(), "cuBLASLt has no algorithm");
    return all;
  }

  cublasStatus_t queue(const Product& p, const Algorithm& with) {
    const std::size_t set = turn_++;
    const float one = 1, old = p.into_float ? 1 : 0;
    std::byte* const c = outputs_.set(set, p.c_bytes());
    return cublasLtMatmul(handle_, &task_, &one, weights_.set(set, p.b_bytes()), &left_,
                          inputs_.set(set, p.a_bytes()), &right_, &old, c, &out_, c, &out_,
                          &with.algorithm, workspace_.data, with.offered, stream_);
  }
  float round(const Product& product, const Algorithm& with, int calls) {
    ok(cudaEventRecord(before_, stream_));
    for (int i = 0; i < calls; ++i) ok(queue(product, with));
    ok(cudaEventRecord(after_, stream_));
    ok(cudaEventSynchronize(after_));
    float ms = 0;
    ok(cudaEventElapsedTime(&ms, before_, after_));
    return ms / static_cast<float>(calls);
  }
  /// Kernels are loaded when they are first called; then one call is captured for its kernels' names.
  void warm_up(const Product& product, Algorithm& with) {
    const cublasStatus_t status = queue(product, with);
    if (status != CUBLAS_STATUS_SUCCESS) {
      with.refused = cublasLtGetStatusString(status);
      return;
    }
    ok(cudaStreamSynchronize(stream_));
    cudaGraph_t graph = nullptr;
    ok(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    const cublasStatus_t captured = queue(product, with);
    ok(cudaStreamEndCapture(stream_, &graph));
    if (captured == CUBLAS_STATUS_SUCCESS) with.kernels = names_.of(graph);
    ok(cudaGraphDestroy(graph));
  }

  Pool inputs_, weights_, outputs_, workspace_;
  KernelNames names_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t before_ = nullptr, after_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDescOpaque_t task_{};
  cublasLtMatrixLayoutOpaque_t left_{}, right_{}, out_{};
  std::size_t turn_ = 0;
};

// ---- reports ----

double teraflops(const Product& product, const Algorithm& with) {
  return product.operations() / with.milliseconds() / 1e9;
}
const Algorithm* first_with(const std::vector<Algorithm>& all, std::size_t offered) {
  for (const Algorithm& each : all)
    if (each.offered == offered && each.heuristic == 0 && !each.times.empty()) return &each;
  return nullptr;
}
const Algorithm* fastest(const std::vector<Algorithm>& all) {
  const Algorithm* best = nullptr;
  for (const Algorithm& each : all)
    if (!each.times.empty() && (best == nullptr || each.milliseconds() < best->milliseconds()))
      best = &each;
  return best;
}

void print(const Product& product, const std::vector<Algorithm>& all) {
  const Algorithm *const now = first_with(all, 0), *const roomy = first_with(all, workspaces[2]),
                         *const best = fastest(all);
  std::printf("%-28s %6zu %6zu %6zu", product.name.c_str(), product.m, product.n, product.k);
  for (const Algorithm* each : {now, roomy, best}) {
    if (each != nullptr)
      std::printf(" %9.1f %6.0f", 1e3 * each->milliseconds(), teraflops(product, *each));
    else std::printf(" %9s %6s", "-", "-");
  }
  if (best != nullptr)
    std::printf(" %4d %4zu %9zu", best->heuristic, best->offered >> 20, best->used);
  std::printf("\n");
  for (const Algorithm* each : {now, best})
    if (each != nullptr && !each->kernels.empty() && (each == now || best != now))
      std::printf("    %-6s %s\n", each == now ? "first" : "best", each->kernels.c_str());
  std::fflush(stdout);
}

void write_json(std::FILE* file, const Product& product, const std::vector<Algorithm>& all) {
  std::fprintf(file, "{\"product\": \"%s\", \"m\": %zu, \"n\": %zu, \"k\": %zu, \"algorithms\": [",
               product.name.c_str(), product.m, product.n, product.k);
  const char* between = "";
  for (const Algorithm& each : all) {
    std::fprintf(file, "%s{\"heuristic\": %d, \"workspace\": %zu, \"used\": %zu", between,
                 each.heuristic, each.offered, each.used);
    if (each.times.empty()) std::fprintf(file, ", \"refused\": \"%s\"", each.refused.c_str());
    else
      std::fprintf(file, ", \"us\": %.3f, \"tflops\": %.2f", 1e3 * each.milliseconds(),
                   teraflops(product, each));
    std::fprintf(file, ", \"kernels\": \"%s\"}", each.kernels.c_str());
    between = ", ";
  }
  std::fprintf(file, "]}\n");
  std::fflush(file);
}

struct Options {
  const char *only = "", *json = nullptr;
  int rounds = 15;
  bool rehearse = false;
};

Options parsed(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const bool more = i + 1 < count;
    if (argument == "--rehearse") {
      options.rehearse = true;
    } else if (argument == "--json" && more) {
      options.json = arguments[++i];
    } else if (argument == "--rounds" && more) {
      char* end = nullptr;
      const long rounds = std::strtol(arguments[++i], &end, 10);
      if (*end != '\0' || rounds < 1 || rounds > 10000) stop("--rounds", "takes 1 to 10000");
      options.rounds = static_cast<int>(rounds);
    } else if (!argument.empty() && argument[0] != '-') {
      options.only = arguments[i];
    } else {
      std::fprintf(stderr, "usage: product_probe [--json FILE] [--rounds N] [--rehearse] [name]\n");
      std::exit(2);
    }
  }
  return options;
}

}  // namespace

int main(int count, char** arguments) {
  const Options options = parsed(count, arguments);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("product_probe: there is no CUDA device, so nothing is measured\n");
    return 77;
  }
  cudaDeviceProp properties;
  ok(cudaGetDeviceProperties(&properties, 0));
  std::FILE* const json = options.json != nullptr ? std::fopen(options.json, "a") : nullptr;
  if (options.json != nullptr && json == nullptr) stop(options.json, "cannot be written");
  std::printf("%s, cuBLASLt %d.%d.%d at build, medians of %d rounds; us and TFLOP/s%s\n",
              properties.name, CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH, options.rounds,
              options.rehearse ? "; a rehearsal, whose times mean nothing" : "");
  std::printf("%-28s %6s %6s %6s %16s %16s %16s %4s %4s %9s\n", "product", "m", "n", "k",
              "first, 0 MiB", "first, 32 MiB", "best", "heu", "MiB", "used");
  const Sizes& sizes = options.rehearse ? tiny : real;
  Probe probe(sizes);
  int measured = 0;
  for (const Product& product : products_of(sizes)) {
    if (product.name.compare(0, std::strlen(options.only), options.only) != 0) continue;
    const std::vector<Algorithm> all = probe.measure(product, options.rounds);
    print(product, all);
    if (json != nullptr) write_json(json, product, all);
    ++measured;
  }
  if (json != nullptr) std::fclose(json);
  if (measured == 0) stop(options.only, "no product begins so");
  return 0;
}
