// SPDX-License-Identifier: MIT
/// Shared by the tests of the CUDA kernels' algorithms: data, and the comparison of what they make with
/// what the CPU's codecs make. One source per family of codecs, because they take long to compile.
///
/// What these tests do not cover is the device's compiler and the launches. Races within a phase are seen under the
/// thread sanitizer (racing_*_test.cpp, racing_block.hpp), and by the executor of the compiled kernels
/// (support/ptxrun).
#pragma once

#include <doctest/doctest.h>
#include <adacc/codec/blob.hpp>
#include <adacc/codec/float_bits.hpp>
#include <adacc/codec/quant/quantize.hpp>
#include <adacc/core/cpu.hpp>
#include <adacc/core/dtype.hpp>
#include <adacc/core/random.hpp>
#include <adacc/core/view.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>

#include "emulated_block.hpp"

namespace cuda_algorithm {

using namespace adacc;

/// n elements that start 64-byte aligned, in a guard of a pattern.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t n)
      : bytes_(n * sizeof(T)),
        memory_(static_cast<unsigned char*>(::operator new (bytes_ + 128, std::align_val_t{64}))) {
    std::memset(memory_, 0xA5, bytes_ + 128);
  }
  ~Guarded() { ::operator delete (memory_, std::align_val_t{64}); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() const { return static_cast<T*>(static_cast<void*>(memory_ + 64)); }
  bool intact() const {
    for (std::size_t i = 0; i < 64; ++i)
      if (memory_[i] != 0xA5 || memory_[64 + bytes_ + i] != 0xA5) return false;
    return true;
  }

 private:
  std::size_t bytes_;
  unsigned char* memory_;
};

enum class Data { clean, massive, channels, wild, zeros, crowded, indices };

template <class T>
T made(float x) {
  return detail::from_number<T>(x);
}

template <class T>
void fill(T* x, std::size_t rows, std::size_t cols, Data data) {
  const RandomKey key{.seed = 99 + rows * 1000 + cols, .purpose = Purpose::data};
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::size_t e = 0; e < rows * cols; ++e) {
    const PhiloxBlock r = random_block(key, e);
    const std::size_t col = e % cols;
    float v = (unit_float(r.word[0]) + unit_float(r.word[1]) + unit_float(r.word[2]) - 1.5F) * 2;
    const std::uint32_t pick = r.word[3] % 1000;
    switch (data) {
      case Data::clean: break;
      case Data::massive:
        if (pick < 2) v *= 30.0F * static_cast<float>(1U << r.word[3] / 1000 % 12);
        break;
      case Data::channels:
        if (col % 97 == 5 || col % 128 == 77) v *= 40;
        if (pick == 0) v *= 100;
        break;
      case Data::wild:
        if (pick < 3) v = infinity;
        else if (pick < 5) v = -infinity;
        else if (pick < 6) v = std::numeric_limits<float>::quiet_NaN();
        else if (pick < 9) v *= 1e38F;
        else if (pick < 30) v *= 1e-40F;
        if (col % 31 == 3 && pick != 5) v *= 25;
        break;
      case Data::zeros: v = pick < 3 ? -0.0F : 0.0F; break;
      case Data::crowded:
        if (pick < 200) v *= 1000;
        break;
      case Data::indices:
        v = pick < 998 || e % 5000 > 600 ? static_cast<float>(pick % 32) : 33.5F;
        break;
    }
    x[e] = made<T>(v);
  }
}

inline constexpr Data all_data[] = {Data::clean, Data::massive, Data::channels, Data::wild,
                                    Data::zeros, Data::crowded, Data::indices};
struct Size {
  std::size_t rows, cols;
};
inline constexpr Size sizes[] = {{64, 256}, {1, 1},     {3, 5},    {64, 1},    {130, 32},
                                 {64, 36},  {65, 257},  {31, 513}, {100, 264}, {33, 520},
                                 {7, 1024}, {128, 319}, {40, 96},  {64, 287},  {70, 543}};

template <class Codec, class T, class Device>
void compare(const Size& size, Data data, const Device& device) {
  const std::size_t bytes = Codec::encoded_bytes(size.rows, size.cols, dtype_of<T>);
  INFO(Codec::name << " " << size.rows << " x " << size.cols << ", data " << static_cast<int>(data)
                   << ", element of " << sizeof(T) << " bytes");
  const std::size_t n = size.rows * size.cols;
  Guarded<T> x(n), host_out(n), device_out(n);
  Guarded<std::byte> host(bytes), made_on_device(bytes);
  fill(x.data(), size.rows, size.cols, data);
  const View<const T> in(x.data(), Shape(size.rows, size.cols));
  Cpu cpu;
  cpu.key = {.seed = 7, .step = 11, .micro_step = 2, .activation = 5};
  const Bytes host_blob(host.data(), Shape(bytes)),
      device_blob(made_on_device.data(), Shape(bytes));
  REQUIRE_FALSE(Codec::encode(cpu, in, host_blob));
  device.encode(in, cpu.key, device_blob);
  std::size_t wrong = bytes;
  for (std::size_t i = 0; i < bytes && wrong == bytes; ++i)
    if (host.data()[i] != made_on_device.data()[i]) wrong = i;
  CHECK(wrong == bytes);
  CHECK(made_on_device.intact());
  REQUIRE_FALSE(Codec::decode(cpu, host_blob, View<T>(host_out.data(), in.shape())));
  device.decode(host_blob, View<T>(device_out.data(), in.shape()));
  CHECK(std::memcmp(host_out.data(), device_out.data(), n * sizeof(T)) == 0);
  CHECK(device_out.intact());

  // A header that is another's: all NaN, as the kernels cannot say it otherwise.
  host.data()[8] ^= std::byte{1};
  device.decode(host_blob, View<T>(device_out.data(), in.shape()));
  std::size_t numbers = 0;
  for (std::size_t i = 0; i < n; ++i) numbers += detail::is_number(device_out.data()[i]) ? 1U : 0U;
  CHECK(numbers == 0);
  host.data()[8] ^= std::byte{1};
#if defined(ADACC_RACING_BLOCK)
  return;  // damage may give two threads the same outlier to put in its place
#endif
  // Damage anywhere behind the header stays within the spans.
  for (std::size_t i = blob_header_bytes; i < bytes; ++i)
    if (i % 7 < 3) host.data()[i] ^= static_cast<std::byte>(i * 31);
  device.decode(host_blob, View<T>(device_out.data(), in.shape()));
  CHECK(device_out.intact());
}

}  // namespace cuda_algorithm
