// SPDX-License-Identifier: MIT
/// Codecs on a GPU beside a copy: codec_cuda_bench [--mib N] [--json].
///
/// For every codec and option, of floats and bfloat16: encode and decode of N MiB (256; up to 1024)
/// interleaved with a device-to-device cudaMemcpyAsync of the same tensor, timed with events. GB/s
/// counts the bytes that must move: the tensor and its blob once each, of the copy the tensor read
/// and written. The ratio is of medians. Before, bytes are compared with the CPU's codec at one
/// size. Reports no time where they differ.
///
/// Then checks of rows, as an adapter adds them to encodes (adapter/torch/check_rows.cuh): GB/s of the
/// tensor, which is read once, with limits for whole rows and for parts of 64 columns.
#include <adacc/adacc.cuh>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include <support/cuda/codec_cases.hpp>
#include <support/cuda/row_checks.cuh>
#include <support/draw/svg.hpp>

namespace {

using namespace adacc;
namespace bench = codec_cases;

constexpr std::size_t cols = 1024;
constexpr int rounds = 15, per_round = 4;

[[noreturn]] void stop(const char* what, const char* why) {
  std::fprintf(stderr, "codec_cuda_bench: %s: %s\n", what, why);
  std::exit(1);
}
void ok(cudaError_t status) {
  if (status != cudaSuccess) stop("CUDA", cudaGetErrorString(status));
}
void ok(const Error& error) {
  if (error) stop("codec", error.text());
}

/// Memory of one kind, freed when the program ends.
struct Device {
  std::byte *x, *y, *blob;
  std::size_t bytes;
  cudaStream_t stream;
  cudaEvent_t before, after;
};

float normal(const RandomKey& key, std::size_t e) {
  const PhiloxBlock r = random_block(key, e);
  float sum = -6;
  for (const std::uint32_t w : r.word)
    sum += unit_float(w) + unit_float(w << 8) + unit_float(w * 2654435761U);
  return sum;
}

/// Clean numbers; in one element of 16384 massive ones.
template <class T>
void fill(T* x, std::size_t n, bool outliers) {
  const RandomKey key{.seed = 1, .purpose = Purpose::data};
  const std::size_t distinct = n < 4 * MiB ? n : 4 * MiB;
  for (std::size_t e = 0; e < distinct; ++e)
    x[e] = detail::from_number<T>(normal(key, e) *
                                  (outliers && random_word(key, e) % 16384 == 0 ? 300.0F : 1.0F));
  for (std::size_t e = distinct; e < n; ++e) x[e] = x[e - distinct];
}

template <class Work>
float milliseconds(const Device& device, const Work& work) {
  ok(cudaEventRecord(device.before, device.stream));
  for (int i = 0; i < per_round; ++i) work();
  ok(cudaEventRecord(device.after, device.stream));
  ok(cudaEventSynchronize(device.after));
  float time = 0;
  ok(cudaEventElapsedTime(&time, device.before, device.after));
  return time / per_round;
}

double median(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Output {
  bool json;
  bool first = true;
};

/// Whether the bytes are the CPU's, at 1000 rows.
template <class Case, class T>
bool same_bytes(const Device& device, const std::vector<T>& x) {
  const Shape shape(1000, cols);
  const std::size_t bytes = bench::encoded_bytes<Case>(shape, dtype_of<T>);
  auto* blob = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}));
  auto* aligned = static_cast<T*>(::operator new (shape.elems() * sizeof(T), std::align_val_t{64}));
  std::memcpy(aligned, x.data(), shape.elems() * sizeof(T));
  std::vector<std::byte> made(bytes);
  Cuda cuda(device.stream);
  ok(bench::cpu_encode<Case, T>(cuda.key, View<const T>(aligned, shape),
                                Bytes(blob, Shape(bytes))));
  const auto* on_device = static_cast<const T*>(static_cast<const void*>(device.x));
  ok(codec_kernel<typename Case::Codec, Cuda>::template encode<T>(
      cuda, View<const T>(on_device, shape), Bytes(device.blob, Shape(bytes))));
  ok(cudaMemcpyAsync(made.data(), device.blob, bytes, cudaMemcpyDeviceToHost, device.stream));
  ok(cudaStreamSynchronize(device.stream));
  const bool same = std::memcmp(made.data(), blob, bytes) == 0;
  ::operator delete (blob, std::align_val_t{64});
  ::operator delete (aligned, std::align_val_t{64});
  return same;
}

template <class Case, class T>
bool measure(const Device& device, const std::vector<T>& x, const char* data, Output& output) {
  const Shape shape(device.bytes / sizeof(T) / cols, cols);
  const std::size_t blob_bytes = bench::encoded_bytes<Case>(shape, dtype_of<T>);
  if (!same_bytes<Case, T>(device, x)) {
    std::fprintf(stderr, "codec_cuda_bench: %s of %s: bytes differ from the CPU's\n",
                 bench::name<Case>(), name_of(dtype_of<T>));
    return false;
  }
  Cuda cuda(device.stream);
  auto* in = static_cast<T*>(static_cast<void*>(device.x));
  auto* out = static_cast<T*>(static_cast<void*>(device.y));
  const Bytes blob(device.blob, Shape(blob_bytes));
  using Kernel = codec_kernel<typename Case::Codec, Cuda>;
  const auto encode = [&] { ok(Kernel::template encode<T>(cuda, View<const T>(in, shape), blob)); };
  const auto decode = [&] { ok(Kernel::template decode<T>(cuda, blob, View<T>(out, shape))); };
  const auto copy = [&] {
    ok(cudaMemcpyAsync(device.y, device.x, device.bytes, cudaMemcpyDeviceToDevice, device.stream));
  };
  std::vector<float> times[3];
  for (int round = -2; round < rounds; ++round) {  // two to warm up
    const float t[3] = {milliseconds(device, copy), milliseconds(device, encode),
                        milliseconds(device, decode)};
    for (int i = 0; i < 3 && round >= 0; ++i) times[i].push_back(t[i]);
  }
  const auto rate = [](std::size_t bytes, double ms) {
    return static_cast<double>(bytes) / ms / 1e6;
  };
  const double copied = rate(2 * device.bytes, median(times[0]));
  const double encoded = rate(device.bytes + blob_bytes, median(times[1]));
  const double decoded = rate(device.bytes + blob_bytes, median(times[2]));
  if (output.json)
    std::fputs(
        draw::print("%s  {\"codec\": \"%s\", \"dtype\": \"%s\", \"data\": \"%s\", \"bytes\": %zu, "
                    "\"blob_bytes\": %zu, \"copy_gb_s\": %.1f, \"encode_gb_s\": %.1f, "
                    "\"decode_gb_s\": %.1f, \"encode_ratio\": %.3f, \"decode_ratio\": %.3f}",
                    output.first ? "" : ",\n", bench::name<Case>(), name_of(dtype_of<T>), data,
                    device.bytes, blob_bytes, copied, encoded, decoded, encoded / copied,
                    decoded / copied)
            .c_str(),
        stdout);
  else
    std::printf("%-44s %-5s %-8s %9.1f %9.1f %6.2f %9.1f %6.2f\n", bench::name<Case>(),
                name_of(dtype_of<T>), data, copied, encoded, encoded / copied, decoded,
                decoded / copied);
  output.first = false;
  return true;
}

/// The check of clean rows encoded by Case: no row fails.
template <class Case, class T>
void measure_check(const Device& device, std::size_t part, Output& output) {
  using Codec = typename Case::Codec;
  const Shape shape(device.bytes / sizeof(T) / cols, cols);
  Cuda cuda(device.stream);
  auto* x = static_cast<T*>(static_cast<void*>(device.x));
  const Bytes blob(device.blob, Shape(bench::encoded_bytes<Case>(shape, dtype_of<T>)));
  ok(codec_kernel<Codec, Cuda>::template encode<T>(cuda, View<const T>(x, shape), blob));
  ok(cudaMemsetAsync(device.y, 0, row_checks::kept_bytes<T>(shape), device.stream));
  const auto check = [&] {
    row_checks::check<Codec>(x, shape, device.blob, part, device.y, device.stream);
    ok(cudaGetLastError());
  };
  // Behind the blob.
  const auto copy = [&] {
    ok(cudaMemcpyAsync(device.blob + device.bytes, device.x, device.bytes / 2,
                       cudaMemcpyDeviceToDevice, device.stream));
  };
  std::vector<float> times[2];
  for (int round = -2; round < rounds; ++round) {
    const float copied = milliseconds(device, copy), checked = milliseconds(device, check);
    if (round >= 0) times[0].push_back(copied), times[1].push_back(checked);
  }
  const auto bytes = static_cast<double>(device.bytes);
  const double copied = bytes / median(times[0]) / 1e6, checked = bytes / median(times[1]) / 1e6;
  if (output.json)
    std::fputs(
        draw::print(",\n  {\"check\": \"%s\", \"dtype\": \"%s\", \"part\": %zu, \"copy_gb_s\": "
                    "%.1f, \"check_gb_s\": %.1f, \"check_ratio\": %.3f}",
                    bench::name<Case>(), name_of(dtype_of<T>), part, copied, checked,
                    checked / copied)
            .c_str(),
        stdout);
  else
    std::printf("%-44s %-5s %-8zu %9.1f %9.1f %6.2f\n", bench::name<Case>(), name_of(dtype_of<T>),
                part, copied, checked, checked / copied);
}
template <class T>
void measure_checks(const Device& device, Output& output) {
  std::vector<T> x(device.bytes / sizeof(T));
  fill(x.data(), x.size(), /*outliers=*/false);
  ok(cudaMemcpy(device.x, x.data(), device.bytes, cudaMemcpyHostToDevice));
  measure_check<bench::Int8Default, T>(device, cols, output);
  measure_check<bench::Int4Default, T>(device, cols, output);
  measure_check<bench::Int8Rows, T>(device, cols, output);
  measure_check<bench::Int8Rows, T>(device, 64, output);
}

template <class T, class... Case>
bool measure_all(const Device& device, Output& output, bench::Cases<Case...>) {
  std::vector<T> x(device.bytes / sizeof(T));
  bool same = true;
  for (const bool outliers : {false, true}) {
    fill(x.data(), x.size(), outliers);
    ok(cudaMemcpy(device.x, x.data(), device.bytes, cudaMemcpyHostToDevice));
    const char* data = outliers ? "massive" : "clean";
    ((same = measure<Case, T>(device, x, data, output) && same), ...);
  }
  return same;
}

}  // namespace

int main(int count, char** arguments) {
  Output output{false};
  long mib = 256;
  for (int i = 1; i < count; ++i) {
    char* end = nullptr;
    if (std::strcmp(arguments[i], "--json") == 0) {
      output.json = true;
    } else if (std::strcmp(arguments[i], "--mib") == 0 && i + 1 < count) {
      mib = std::strtol(arguments[++i], &end, 10);
      if (*end != '\0' || mib < 16 || mib > 4096) stop("--mib", "takes 16 to 4096");
    } else {
      std::fprintf(stderr, "usage: codec_cuda_bench [--mib N] [--json]\n");
      return 2;
    }
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("codec_cuda_bench: there is no CUDA device, so nothing is measured\n");
    return 77;
  }
  Device device{};
  device.bytes = static_cast<std::size_t>(mib) * MiB;
  for (std::byte** memory : {&device.x, &device.y, &device.blob}) {
    void* made = nullptr;
    // A blob may be a little larger than a tensor of bfloat16.
    ok(cudaMalloc(&made, device.bytes + device.bytes / 2));
    *memory = static_cast<std::byte*>(made);
  }
  ok(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking));
  ok(cudaEventCreate(&device.before));
  ok(cudaEventCreate(&device.after));
  cudaDeviceProp properties;
  ok(cudaGetDeviceProperties(&properties, 0));
  if (output.json) std::printf("{\"device\": \"%s\", \"results\": [\n", properties.name);
  else
    std::printf("%s, %ld MiB, GB/s of bytes that must move\n%-44s %-5s %-8s %9s %9s %6s %9s %6s\n",
                properties.name, mib, "codec", "of", "data", "copy", "encode", "ratio", "decode",
                "ratio");
  bool same = measure_all<float>(device, output, bench::All{});
  same = measure_all<bfloat16>(device, output, bench::All{}) && same;
  if (!output.json)
    std::printf("\n%-44s %-5s %-8s %9s %9s %6s\n", "check of rows", "of", "part", "copy", "check",
                "ratio");
  measure_checks<float>(device, output);
  measure_checks<bfloat16>(device, output);
  if (output.json) std::printf("\n]}\n");
  return same ? 0 : 1;
}
