// SPDX-License-Identifier: MIT
/// How fast a device copies, within its memory and to and from page-locked memory of the host: link_probe [options].
///
/// Medians of rounds, in GB/s: a copy within the device counts the bytes read and those written. The last two lines
/// are of copies both ways at once, on two streams.
///
///   --json FILE   a line of JSON, added to the file
///   --mib N       size of a copy, 512 if not given
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr int rounds = 9;

[[noreturn]] void stop(const char* what, const char* why) {
  std::fprintf(stderr, "link_probe: %s: %s\n", what, why);
  std::exit(1);
}
void ok(cudaError_t status) {
  if (status != cudaSuccess) stop("CUDA", cudaGetErrorString(status));
}

/// A stream with what copies on it are timed by.
struct Lane {
  Lane() {
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ok(cudaEventCreate(&before));
    ok(cudaEventCreate(&after));
  }
  ~Lane() {
    cudaEventDestroy(before);
    cudaEventDestroy(after);
    cudaStreamDestroy(stream);
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    ok(cudaEventRecord(before, stream));
    ok(cudaMemcpyAsync(to, from, bytes, kind, stream));
    ok(cudaEventRecord(after, stream));
  }
  float milliseconds() {
    ok(cudaEventSynchronize(after));
    float ms = 0;
    ok(cudaEventElapsedTime(&ms, before, after));
    return ms;
  }

  cudaStream_t stream = nullptr;
  cudaEvent_t before = nullptr, after = nullptr;
};

double median(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return double{values[values.size() / 2]};
}

/// Medians of what `round` times, of two copies.
struct Times {
  double first, second;
};
template <class Round>
Times measure(const Round& round) {
  std::vector<float> first, second;
  for (int i = -2; i < rounds; ++i) {  // two to warm up
    float ms[2] = {};
    round(ms);
    if (i >= 0) first.push_back(ms[0]), second.push_back(ms[1]);
  }
  return {median(first), median(second)};
}

}  // namespace

int main(int count, char** arguments) {
  const char* json = nullptr;
  long mib = 512;
  for (int i = 1; i < count; ++i) {
    char* end = nullptr;
    if (std::strcmp(arguments[i], "--json") == 0 && i + 1 < count) {
      json = arguments[++i];
    } else if (std::strcmp(arguments[i], "--mib") == 0 && i + 1 < count) {
      mib = std::strtol(arguments[++i], &end, 10);
      if (*end != '\0' || mib < 1 || mib > 8192) stop("--mib", "takes 1 to 8192");
    } else {
      std::fprintf(stderr, "usage: link_probe [--json FILE] [--mib N]\n");
      return 2;
    }
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("link_probe: there is no CUDA device, so nothing is measured\n");
    return 77;
  }
  cudaDeviceProp properties;
  ok(cudaGetDeviceProperties(&properties, 0));
  const std::size_t bytes = static_cast<std::size_t>(mib) << 20;
  void *device[2] = {}, *host[2] = {};
  for (int i = 0; i < 2; ++i) {
    ok(cudaMalloc(&device[i], bytes));
    ok(cudaMallocHost(&host[i], bytes));
    ok(cudaMemset(device[i], i + 1, bytes));
    std::memset(host[i], i + 3, bytes);
  }
  ok(cudaDeviceSynchronize());
  Lane up, down;
  const Times within = measure([&](float* ms) {
    up.copy(device[1], device[0], bytes, cudaMemcpyDeviceToDevice);
    ms[0] = up.milliseconds();
  });
  const Times alone = measure([&](float* ms) {
    up.copy(device[0], host[0], bytes, cudaMemcpyHostToDevice);
    ms[0] = up.milliseconds();
    down.copy(host[1], device[1], bytes, cudaMemcpyDeviceToHost);
    ms[1] = down.milliseconds();
  });
  const Times together = measure([&](float* ms) {
    up.copy(device[0], host[0], bytes, cudaMemcpyHostToDevice);
    down.copy(host[1], device[1], bytes, cudaMemcpyDeviceToHost);
    ms[0] = up.milliseconds(), ms[1] = down.milliseconds();
  });
  const auto rate = [&](double ms) { return static_cast<double>(bytes) / ms / 1e6; };
  std::printf("%s, copies of %ld MiB, GB/s\n", properties.name, mib);
  std::printf("within the device, read and written  %9.1f\n", 2 * rate(within.first));
  std::printf("host to device                       %9.1f\n", rate(alone.first));
  std::printf("device to host                       %9.1f\n", rate(alone.second));
  std::printf("host to device, both at once         %9.1f\n", rate(together.first));
  std::printf("device to host, both at once         %9.1f\n", rate(together.second));
  if (json != nullptr) {
    std::FILE* const file = std::fopen(json, "a");
    if (file == nullptr) stop(json, "cannot be written");
    std::fprintf(file,
                 "{\"link\": \"%s\", \"mib\": %ld, \"within\": %.1f, \"to_device\": %.1f, "
                 "\"to_host\": %.1f, \"to_device_both\": %.1f, \"to_host_both\": %.1f}\n",
                 properties.name, mib, 2 * rate(within.first), rate(alone.first),
                 rate(alone.second), rate(together.first), rate(together.second));
    std::fclose(file);
  }
  for (int i = 0; i < 2; ++i) {
    cudaFree(device[i]);
    cudaFreeHost(host[i]);
  }
  return 0;
}
