// SPDX-License-Identifier: MIT
/// Codecs for tensors of another device than the CPU: kernels by name, queued on a stream of libtorch.
///
/// A kernel writes the same bytes as the codec on the CPU. Nothing waits for a kernel, and the host reads no value of the
/// device. A kind of device brings its kernels as DeviceKernels (cuda_kernels.hpp); everything else about streams,
/// events and memory is libtorch's, and alike for all kinds of devices.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>

#include "../../codec/bf16.hpp"
#include "../../codec/bf16_block.hpp"
#include "../../codec/bit_groups_block.hpp"
#include "../../codec/int4_outlier.hpp"
#include "../../codec/int8_outlier.hpp"
#include "../../codec/quant/block/decode.hpp"
#include "../../codec/quant/block/encode.hpp"
#include "../../core/dtype.hpp"
#include "../../core/error.hpp"
#include "../../core/view.hpp"
#include "signs.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

/// Kernels of one kind of device.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;
  /// Queues a kernel:
  /// @param name      of the kernel, without the version's prefix
  /// @param blocks    of 256 threads
  /// @param arguments their addresses
  virtual Error launch(const std::string& name, std::size_t blocks, void** arguments,
                       c10::Stream stream) = 0;
  /// Queues a copy within the memory of the stream's device.
  virtual Error copy(void* to, const void* from, std::size_t bytes, c10::Stream stream) = 0;
  /// Whether work given to `stream` is captured as a graph. Nothing may wait for captured work.
  virtual bool is_captured(c10::Stream) { return false; }
};

/// The kernels for devices of a type, for the whole process; null: none, and tensors there are kept as they are.
inline std::atomic<DeviceKernels*>& device_kernels(c10::DeviceType type) {
  static std::atomic<DeviceKernels*> all[c10::COMPILE_TIME_MAX_DEVICE_TYPES] = {};
  return all[static_cast<std::size_t>(type)];
}

/// A stream, and the kernels of its kind of device.
class DeviceWork {
 public:
  static constexpr std::size_t threads = 256;  ///< of a block

  /// The stream's device has kernels.
  explicit DeviceWork(c10::Stream stream)
      : stream_(stream), kernels_(*device_kernels(stream.device_type()).load()) {}

  c10::Device device() const { return stream_.device(); }
  bool is_captured() const { return kernels_.is_captured(stream_); }

  template <class... Arguments>
  Error launch(const std::string& name, std::size_t blocks, const Arguments&... arguments) const {
    void* addresses[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
    return kernels_.launch(name, blocks, addresses, stream_);
  }
  Error copy(void* to, const void* from, std::size_t bytes) const {
    return bytes == 0 ? Error() : kernels_.copy(to, from, bytes, stream_);
  }

 private:
  c10::Stream stream_;
  DeviceKernels& kernels_;
};

/// Calls call(T{}, "_f32") with adacc's type for the elements and the end of kernels' names; an Error if there is none.
template <class Call>
Error with_device_element(c10::ScalarType type, const Call& call) {
  switch (type) {
    case c10::ScalarType::Float: return call(float{}, "_f32");
    case c10::ScalarType::BFloat16: return call(bfloat16{}, "_bf16");
    default:
      return Error::say("codecs on devices take Float, Half and BFloat16, not ",
                        c10::toString(type));
  }
}

/// The start of names of a codec's kernels; null: the codec has none.
template <class Codec>
inline constexpr const char* kernel_name = nullptr;
template <>
inline constexpr const char* kernel_name<Int8Outlier> = "int8";
template <>
inline constexpr const char* kernel_name<Int4Outlier> = "int4";
/// Codes of positive numbers stay positive (keep.hpp, keeping_gates()).
using Int8Gates = Int8OutlierWith<Int8Options{.positive = true}>;
using Int4Gates = Int4OutlierWith<Int4Options{.positive = true}>;
template <>
inline constexpr const char* kernel_name<Int8Gates> = "int8_gates";
template <>
inline constexpr const char* kernel_name<Int4Gates> = "int4_gates";
/// With scales for single rows.
template <>
inline constexpr const char* kernel_name<Int8Outlier::for_unlike_rows> = "int8_rows";
template <>
inline constexpr const char* kernel_name<Int4Outlier::for_unlike_rows> = "int4_rows";
template <>
inline constexpr const char* kernel_name<Int8Gates::for_unlike_rows> = "int8_rows_gates";
template <>
inline constexpr const char* kernel_name<Int4Gates::for_unlike_rows> = "int4_rows_gates";
template <>
inline constexpr const char* kernel_name<Bf16> = "bf16";
template <>
inline constexpr const char* kernel_name<ReluSigns> = "relu_signs";
template <>
inline constexpr const char* kernel_name<LeakyReluSigns> = "leaky_relu_signs";

/// A codec's kernels. Encoding also clears the header at `kept` (side_rows.hpp) for the check of rows; null: no check
/// follows.
template <class Codec>
struct DeviceCodec;

template <unsigned Bits, std::uint64_t Packed>
struct DeviceCodec<PackedQuantCodec<Bits, Packed>> {
  using Codec = PackedQuantCodec<Bits, Packed>;
  static constexpr QuantOptions options = Codec::options;

  template <class T>
  static Error encode(const DeviceWork& work, const char* type, View<const T> x, Bytes blob,
                      std::byte* kept) {
    const auto job = adacc::detail::quant_job<Bits, options>(x, blob.data(), RandomKey{});
    if (adacc::detail::quant_shares_headers<options>(job.format))
      if (Error error = work.launch(std::string("prepare") + type,
                                    div_up(16 * job.format.blocks(), DeviceWork::threads), job))
        return error;
    return work.launch(std::string(kernel_name<Codec>) + "_encode" + type,
                       adacc::detail::quant_encode_parts<options>(job.format), job, kept);
  }
  template <class T>
  static Error decode(const DeviceWork& work, const char* type, ConstBytes blob, View<T> x) {
    const auto job =
        adacc::detail::quant_job<Bits, options>(View<const T>(x), nullptr, RandomKey{});
    return work.launch(std::string(kernel_name<Codec>) + "_decode" + type,
                       job.format.blocks() * job.format.whole.tiles, job, blob.data(), x.data());
  }
};

namespace detail {

/// Codecs with kernels for elements and the blob's header.
template <class Codec>
struct ElementwiseOnDevice {
  template <class T>
  static Error encode(const DeviceWork& work, const char* type, View<const T> x, Bytes blob,
                      std::byte* kept) {
    const BlobHeader header = blob_header(fnv1a(Codec::name), dtype_of<T>, x.rows(), x.cols());
    return work.launch(std::string(kernel_name<Codec>) + "_encode" + type, parts<T>(x.size()),
                       x.size(), x.data(), header, blob.size(), blob.data(), kept);
  }
  template <class T>
  static Error decode(const DeviceWork& work, const char* type, ConstBytes blob, View<T> x) {
    const BlobHeader header = blob_header(fnv1a(Codec::name), dtype_of<T>, x.rows(), x.cols());
    return work.launch(std::string(kernel_name<Codec>) + "_decode" + type, parts<T>(x.size()),
                       x.size(), header, blob.data(), x.data());
  }

 private:
  template <class T>
  static std::size_t parts(std::size_t n) {
    if constexpr (std::is_same_v<Codec, Bf16>)
      return adacc::detail::Bf16Parts<T>::count(n, DeviceWork::threads);
    else return adacc::detail::BitParts<Codec::Element::bits, T, DeviceWork::threads>::count(n);
  }
};

}  // namespace detail

template <>
struct DeviceCodec<Bf16> : detail::ElementwiseOnDevice<Bf16> {};
template <>
struct DeviceCodec<ReluSigns> : detail::ElementwiseOnDevice<ReluSigns> {};
template <>
struct DeviceCodec<LeakyReluSigns> : detail::ElementwiseOnDevice<LeakyReluSigns> {};

}}}  // namespace adacc::v0_1::torch
