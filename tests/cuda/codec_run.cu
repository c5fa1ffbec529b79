// SPDX-License-Identifier: MIT
/// Runs the codecs on a GPU: the CPU's bytes, also from a captured graph. Skipped (77) without one.
#include <adacc/adacc.cuh>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

#include <support/cuda/codecs.cuh>

#include "on_device.hpp"

namespace {

using namespace adacc;

int failures = 0;

void expect(bool holds, const char* codec, Shape shape, std::size_t element, const char* what) {
  if (holds) return;
  ++failures;
  std::printf("FAILED %s, %zu x %zu elements of %zu bytes: %s\n", codec, shape.rows(), shape.cols(),
              element, what);
}

bool ok(cudaError_t status) {
  if (status == cudaSuccess) return true;
  ++failures;
  std::printf("FAILED: %s\n", cudaGetErrorString(status));
  return false;
}

template <class T>
struct HostBuffer {
  explicit HostBuffer(std::size_t n)
      : data(static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64}))) {}
  ~HostBuffer() { ::operator delete (data, std::align_val_t{64}); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  T* data;
};

template <class T>
struct DeviceBuffer {
  explicit DeviceBuffer(std::size_t n) {
    void* memory = nullptr;
    if (ok(cudaMalloc(&memory, n * sizeof(T)))) data = static_cast<T*>(memory);
  }
  ~DeviceBuffer() { cudaFree(data); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  T* data = nullptr;
};

template <class T>
void fill(T* x, std::size_t n, int kind) {
  const RandomKey key{.seed = 5, .purpose = Purpose::data};
  for (std::size_t e = 0; e < n; ++e) {
    const PhiloxBlock r = random_block(key, e);
    float v = unit_float(r.word[0]) + unit_float(r.word[1]) + unit_float(r.word[2]) - 1.5F;
    const std::uint32_t pick = r.word[3] % 2000;
    if (kind >= 1 && pick < 3) v *= 1000;
    if (kind >= 1 && e % 128 == 77) v *= 40;
    if (kind >= 2 && pick == 10) v = detail::bits_as<float>(0x7FC00000U);
    if (kind >= 2 && pick == 11) v = detail::bits_as<float>(0xFF800000U);
    if (kind == 3) v = static_cast<float>(pick % 32);
    x[e] = detail::from_number<T>(v);
  }
}

std::size_t rows_over = 0;  ///< that the host found

/// The device's judgement of the rows of an encode is the host's.
template <class Case, class T>
void check_rows(Cuda& cuda, Shape shape, View<const T> x, ConstBytes blob, View<const T> host_x,
                ConstBytes host_blob) {
  using Kernel = codec_kernel<typename Case::Codec, Cuda>;
  if constexpr (requires(RowErrors * errors) {
                  Kernel::template queue_row_errors<T>(cuda, x, blob, errors);
                }) {
    const std::size_t blocks = Case::Codec::split_items(shape.rows(), shape.cols());
    const DeviceBuffer<RowErrors> device(blocks);
    const HostBuffer<RowErrors> errors(blocks);
    if (!device.data) return;
    if (Error error = Kernel::template queue_row_errors<T>(cuda, x, blob, device.data))
      expect(false, codec_cases::name<Case>(), shape, sizeof(T), error.text());
    ok(cudaMemcpyAsync(errors.data, device.data, blocks * sizeof(RowErrors), cudaMemcpyDeviceToHost,
                       cuda.stream()));
    ok(cudaStreamSynchronize(cuda.stream()));
    bool same = true;
    for (std::size_t i = 0; i < blocks; ++i) {
      const RowErrors host = codec_cases::cpu_row_errors<Case, T>(host_x, host_blob, i);
      const RowErrors& made = errors.data[i];
      same = same && std::memcmp(&made, &host, 2 * sizeof host.rows) == 0 &&
             std::fabs(made.worst - host.worst) <= 1e-12 * host.worst;
      rows_over += host.over;
    }
    expect(same, codec_cases::name<Case>(), shape, sizeof(T), "rows are judged otherwise");
  }
}

template <class Case, class T>
void check(Shape shape, int kind, cudaStream_t stream) {
  const std::size_t n = shape.elems();
  const std::size_t bytes = codec_cases::encoded_bytes<Case>(shape, dtype_of<T>);
  HostBuffer<T> x(n), cpu_x(n), gpu_x(n);
  HostBuffer<std::byte> cpu_blob(bytes), gpu_blob(bytes);
  DeviceBuffer<T> device_x(n), device_y(n);
  DeviceBuffer<std::byte> device_blob(bytes);
  if (!device_x.data || !device_y.data || !device_blob.data) return;
  fill(x.data, n, kind);
  for (std::size_t e = 0; kind == 1 && e < n; ++e)
    if (e / shape.cols() % 9 == 4)
      x.data[e] = detail::from_number<T>(0.01F * detail::to_number(x.data[e]));
  Cuda cuda(stream);
  cuda.key = {.seed = 3, .step = 8, .activation = 2};
  const auto fails = [&](const char* what) {
    expect(false, codec_cases::name<Case>(), shape, sizeof(T), what);
  };
  if (Error error = codec_cases::cpu_encode<Case, T>(cuda.key, View<const T>(x.data, shape),
                                                     Bytes(cpu_blob.data, Shape(bytes))))
    return fails(error.text());
  if (Error error = codec_cases::cpu_decode<Case, T>(ConstBytes(cpu_blob.data, Shape(bytes)),
                                                     View<T>(cpu_x.data, shape)))
    return fails(error.text());

  const Bytes blob(device_blob.data, Shape(bytes));
  using Kernel = codec_kernel<typename Case::Codec, Cuda>;
  const auto run = [&] {
    if (Error error = Kernel::template encode<T>(cuda, View<const T>(device_x.data, shape), blob))
      fails(error.text());
    if (Error error = Kernel::template decode<T>(cuda, blob, View<T>(device_y.data, shape)))
      fails(error.text());
  };
  const auto compare = [&](const char* encoded, const char* decoded) {
    ok(cudaMemcpyAsync(gpu_blob.data, device_blob.data, bytes, cudaMemcpyDeviceToHost, stream));
    ok(cudaMemcpyAsync(gpu_x.data, device_y.data, n * sizeof(T), cudaMemcpyDeviceToHost, stream));
    ok(cudaStreamSynchronize(stream));
    expect(std::memcmp(gpu_blob.data, cpu_blob.data, bytes) == 0, codec_cases::name<Case>(), shape,
           sizeof(T), encoded);
    expect(std::memcmp(gpu_x.data, cpu_x.data, n * sizeof(T)) == 0, codec_cases::name<Case>(),
           shape, sizeof(T), decoded);
  };
  ok(cudaMemsetAsync(device_blob.data, 0xA5, bytes, stream));
  ok(cudaMemcpyAsync(device_x.data, x.data, n * sizeof(T), cudaMemcpyHostToDevice, stream));
  run();
  compare("encoded bytes differ from the CPU's", "decoded bytes differ from the CPU's");
  check_rows<Case, T>(cuda, shape, View<const T>(device_x.data, shape), blob,
                      View<const T>(x.data, shape), ConstBytes(cpu_blob.data, Shape(bytes)));

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  run();
  ok(cudaStreamEndCapture(stream, &graph));
  if (ok(cudaGraphInstantiate(&executable, graph, 0))) {
    ok(cudaMemsetAsync(device_blob.data, 0x5A, bytes, stream));
    ok(cudaMemsetAsync(device_y.data, 0x5A, n * sizeof(T), stream));
    ok(cudaGraphLaunch(executable, stream));
    compare("a graph's encoded bytes differ", "a graph's decoded bytes differ");
    cudaGraphExecDestroy(executable);
  }
  cudaGraphDestroy(graph);

  ok(cudaMemsetAsync(device_blob.data + 8, 0, 4, stream));
  if (Error error = Kernel::template decode<T>(cuda, blob, View<T>(device_y.data, shape)))
    fails(error.text());
  ok(cudaMemcpyAsync(gpu_x.data, device_y.data, n * sizeof(T), cudaMemcpyDeviceToHost, stream));
  ok(cudaStreamSynchronize(stream));
  bool numbers = false;
  for (std::size_t e = 0; e < n; ++e) numbers = numbers || detail::is_number(gpu_x.data[e]);
  expect(!numbers, codec_cases::name<Case>(), shape, sizeof(T),
         "a blob of another codec decodes to numbers");
}

template <class Case>
void check_all(cudaStream_t stream) {
  const auto check_both = [&](Shape shape, int kind) {
    check<Case, float>(shape, kind, stream);
    check<Case, bfloat16>(shape, kind, stream);
  };
  for (const Shape shape :
       {Shape(64, 256), Shape(1, 1), Shape(130, 768), Shape(65, 257), Shape(100, 1000)})
    for (int kind = 0; kind < 4; ++kind) check_both(shape, kind);
  check_both(Shape(513, 2048), 2);  // executed on a CPU it takes as long as all others
  check<Case, double>(Shape(70, 300), 2, stream);
}

/// The options that the codecs above leave out: one small shape, which fills no tile and no group.
using Others =
    codec_cases::Cases<codec_cases::Int8NoOutliers, codec_cases::Int8Stochastic,
                       codec_cases::Int8Group128, codec_cases::Int8Group256,
                       codec_cases::Int8Channels, codec_cases::Int4Default,
                       codec_cases::Int4NoOutliers, codec_cases::Int4Symmetric,
                       codec_cases::Int4Group32, codec_cases::Int4Group128,
                       codec_cases::Int4Group256, codec_cases::Int4Rows, codec_cases::Index4>;
template <class... Case>
void check_others(codec_cases::Cases<Case...>, cudaStream_t stream) {
  (check<Case, float>(Shape(65, 257), 2, stream), ...);
  (check<Case, bfloat16>(Shape(65, 257), 2, stream), ...);
}

}  // namespace

int main() {
  return on_device([](cudaStream_t stream) {
    check_all<codec_cases::Int8Default>(stream);
    check_all<codec_cases::Int4Stochastic>(stream);
    check_all<codec_cases::Int8Group32>(stream);
    check_all<codec_cases::Int8Symmetric>(stream);
    check_all<codec_cases::Int4Channels>(stream);
    check_all<codec_cases::Int8Rows>(stream);
    check_all<codec_cases::Bf16>(stream);
    check_all<codec_cases::Mask>(stream);
    check_all<codec_cases::Index11>(stream);
    check_others(Others{}, stream);
    expect(rows_over > 200, "all codecs", Shape(), 0, "few rows are over a bound");
    if (failures != 0) return 1;
    std::printf("the GPU makes the CPU's bytes\n");
    return 0;
  });
}
