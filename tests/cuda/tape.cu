// SPDX-License-Identifier: MIT
/// A tape on a device, the one of docs/stash.md: the derivatives of its formula, the same bits under every budget
/// without a loss, probed codecs, mistakes in words. Skipped (77) without a device.
#define ADACC_ASSERT(holds, text) static_cast<void>(0)  // mistakes are looked at

#include <adacc/core/device_block.cuh>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "docs_stash.cuh"
#include "on_device.hpp"

namespace {

int failures = 0;
void expect(bool holds, const char* what, const char* why = "") {
  if (holds) return;
  ++failures;
  std::printf("FAILED: %s %s\n", what, why);
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return 77;
  cudaStream_t stream = nullptr;
  float *input = nullptr, *dy = nullptr;
  std::byte* memory = nullptr;
  constexpr std::size_t bytes = 1 << 21;
  float x[taped_elems], wanted[taped_elems];
  for (int i = 0; i < taped_elems; ++i) x[i] = std::sin(static_cast<float>(i));
  for (int i = 0; i < taped_elems; ++i) {
    double value = static_cast<double>(x[i]), slope = 1;
    for (int l = 0; l < taped_layers; ++l) {
      slope /= (1 + std::fabs(value)) * (1 + std::fabs(value));
      value /= 1 + std::fabs(value);
    }
    wanted[i] = static_cast<float>(slope);
  }
  if (cudaStreamCreate(&stream) != cudaSuccess || cudaMalloc(&input, sizeof x) != cudaSuccess ||
      cudaMalloc(&dy, sizeof x) != cudaSuccess || cudaMalloc(&memory, bytes) != cudaSuccess ||
      cudaMemcpy(input, x, sizeof x, cudaMemcpyHostToDevice) != cudaSuccess)
    return std::printf("no memory\n"), 1;
  const Bytes lent(memory, Shape(bytes));

  std::vector<float> first;
  for (const double percent : {100.0, 60.0}) {
    TapedChain chain(stream, input);
    const Error why = chain.start({.percent = percent, .memory = lent, .check = true}, dy);
    expect(!why, "start", why.text());
    if (why) continue;
    const auto done = chain.step(dy);
    expect(static_cast<bool>(done), "step", done.error.text());
    const std::vector<float> gradient(chain.gradient, chain.gradient + taped_elems);
    for (int i = 0; i < taped_elems; ++i)
      if (std::fabs(gradient[static_cast<std::size_t>(i)] - wanted[i]) >
          1e-5F * std::fabs(wanted[i]))
        expect(false, "a derivative"), i = taped_elems;
    if (first.empty()) first = gradient;
    expect(std::memcmp(first.data(), gradient.data(), sizeof x) == 0,
           "the same bits under every budget");
    std::printf("%.0f %%: %zu bytes\n", percent, chain.tape.arena_bytes());
  }
  {
    TapedChain chain(stream, input);
    const Error why = chain.start({.percent = 40, .tolerance = 1e-2, .memory = lent}, dy);
    expect(!why, "start within a tolerance", why.text());
    if (!why) {
      expect(static_cast<bool>(chain.step(dy)), "a step within a tolerance");
      double off = 0, norm = 0;
      for (int i = 0; i < taped_elems; ++i) {
        const double d = static_cast<double>(chain.gradient[i]) - static_cast<double>(wanted[i]);
        off += d * d, norm += static_cast<double>(wanted[i]) * static_cast<double>(wanted[i]);
      }
      expect(off <= 1e-2 * norm, "the error stays within the tolerance");
    }
  }
  {
    TapedChain chain(stream, input);
    const Error why = chain.start({.percent = 50}, dy);
    expect(std::string(why.text()).find("takes memory of the device") != std::string::npos,
           "no memory is told", why.text());
  }
  for (const bool drifts : {true, false}) {  // else the kernel leaves the last numbers alone
    Cuda cuda{stream};
    Tape<float, Cuda> tape;
    std::size_t runs = 0;
    const int y =
        tape.kernel({.name = "faulty", .writes = {{"y", Shape(64)}}, .saves = {"y"}},
                    [&](const TapeCall<float>& k) {
                      const std::size_t count = drifts ? 64 : 60;
                      cudaMemcpyAsync(k.out(0).data(), input + (drifts ? runs++ : 0),
                                      count * sizeof(float), cudaMemcpyDeviceToDevice, stream);
                    });
    float gradient[64];
    StreamClock clock(stream);
    const Error why =
        tape.start(cuda, {.percent = 100, .memory = lent, .clock = clock, .check = true},
                   [&]() -> Result<Array<View<const float>>> {
                     runs = 0;
                     if (Error what = tape.begin(cuda)) return what;
                     if (Error what = tape.run()) return what;
                     if (Error what = tape.backward_of(y)) return what;
                     cudaMemcpyAsync(gradient, tape.value(y).data(), sizeof gradient,
                                     cudaMemcpyDeviceToHost, stream);
                     cudaStreamSynchronize(stream);
                     if (Error what = tape.end()) return what;
                     Array<View<const float>> gradients;
                     gradients.push_back({gradient, Shape(64)});
                     return gradients;
                   });
    const char* const words =
        drifts ? "recomputing y (1 of 1) changes the gradients" : "old contents of memory";
    expect(std::string(why.text()).find(words) != std::string::npos, "a faulty kernel is told",
           why.text());
  }
  if (failures == 0) std::printf("passed\n");
  return failures == 0 ? 0 : 1;
}
