/// The algorithms of the CUDA kernels, run on the host: the same bytes as the CPU's codecs.
///
/// What this does not cover is the device's compiler, races within a phase, and the launches.
#include <adacc/codec/bf16_block.hpp>
#include <adacc/codec/bit_groups_block.hpp>
#include <adacc/codec/bit_mask.hpp>
#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/codec/packed_index.hpp>
#include <adacc/codec/quant/block/decode.hpp>
#include <adacc/codec/quant/block/encode.hpp>
#include <adacc/core/cpu.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>

#include "emulated_block.hpp"

namespace cuda_algorithm_test { namespace {

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

constexpr Data all_data[] = {Data::clean, Data::massive, Data::channels, Data::wild,
                             Data::zeros, Data::crowded, Data::indices};
struct Size {
  std::size_t rows, cols;
};
constexpr Size sizes[] = {{64, 256}, {1, 1},     {3, 5},    {64, 1},    {130, 32},
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
  // Damage anywhere behind the header stays within the spans.
  for (std::size_t i = blob_header_bytes; i < bytes; ++i)
    if (i % 7 < 3) host.data()[i] ^= static_cast<std::byte>(i * 31);
  device.decode(host_blob, View<T>(device_out.data(), in.shape()));
  CHECK(device_out.intact());
}

template <class Codec, class Block>
struct QuantDevice {
  static constexpr unsigned bits = Codec::bits;
  static constexpr QuantOptions O = Codec::options;

  template <class T>
  void encode(View<const T> x, const RandomKey& key, Bytes blob) const {
    const auto job = detail::quant_job<bits, O>(x, blob.data(), key);
    Block block;
    const std::size_t blocks = job.format.blocks();
    for (std::size_t i = div_up(16 * blocks, 256); i-- > 0;) detail::quant_prepare(block, i, job);
    const auto shared = std::make_unique<detail::QuantShared>();
    for (std::size_t i = detail::quant_encode_parts<O>(job.format); i-- > 0;) {
      std::memset(static_cast<void*>(shared.get()), 0xEE, sizeof *shared);
      detail::quant_encode_part<bits, O>(block, *shared, i, job);
    }
    const auto samples = std::make_unique<detail::SampleShared>();
    for (std::size_t i = div_up(blocks, 4); i-- > 0;)
      detail::quant_sample<bits, O>(block, *samples, i, job);
  }
  template <class T>
  void decode(ConstBytes blob, View<T> x) const {
    const auto job = detail::quant_job<bits, O>(View<const T>(x), nullptr, RandomKey{});
    Block block;
    for (std::size_t i = job.format.blocks() * job.format.whole.tiles; i-- > 0;)
      detail::quant_decode_tile<bits, O>(block, i, job, blob.data(), x.data());
  }
};

template <class Codec, class T, class Block = emulated::Block<emulated::Order::ascending>>
void check_split() {
  for (const Size& size : sizes)
    for (const Data data : all_data) compare<Codec, T>(size, data, QuantDevice<Codec, Block>{});
}

template <QuantOptions O>
void check_options() {
  using Scattered = emulated::Block<emulated::Order::scattered>;
  using Descending = emulated::Block<emulated::Order::descending>;
  check_split<Int8OutlierWith<O>, float>();
  check_split<Int4OutlierWith<O>, float, Descending>();
  check_split<Int8OutlierWith<O>, bfloat16, Descending>();
  check_split<Int4OutlierWith<O>, bfloat16, Scattered>();
  check_split<Int4OutlierWith<O>, double, Scattered>();
}

constexpr auto stochastic = Rounding::stochastic;

TEST_CASE("quantizing codecs, groups along columns: emulated kernels make the CPU's bytes") {
  check_options<QuantOptions{}>();
  check_options<QuantOptions{.symmetric = true, .rounding = stochastic}>();
  check_options<QuantOptions{.outliers = Outliers::channels, .outliers_per_mille = 20}>();
  check_options<QuantOptions{.outliers = Outliers::none}>();
  check_options<QuantOptions{.outliers_per_mille = 0}>();
}
TEST_CASE("quantizing codecs, groups along rows: emulated kernels make the CPU's bytes") {
  check_options<QuantOptions{.group = 32}>();
  check_options<QuantOptions{.group = 64, .outliers_per_mille = 150, .rounding = stochastic}>();
  check_options<QuantOptions{.group = 128, .outliers = Outliers::channels}>();
  check_options<QuantOptions{.group = 128, .outliers_per_mille = 1000}>();
  check_options<QuantOptions{.group = 256, .outliers_per_mille = 10, .symmetric = true}>();
  check_options<QuantOptions{.group = 32, .outliers = Outliers::none}>();
}
TEST_CASE("quantizing codecs, scales of whole rows: emulated kernels make the CPU's bytes") {
  check_options<QuantOptions{.group = whole_row}>();
  check_options<QuantOptions{
      .group = whole_row, .outliers = Outliers::channels, .outliers_per_mille = 8}>();
  check_options<QuantOptions{
      .group = whole_row, .outliers = Outliers::none, .rounding = stochastic}>();
}

struct Bf16Device {
  using Block = emulated::Block<emulated::Order::scattered>;
  template <class T>
  static BlobHeader header(View<const T> x) {
    return blob_header(fnv1a(Bf16::name), dtype_of<T>, x.rows(), x.cols());
  }
  template <class T>
  void encode(View<const T> x, const RandomKey&, Bytes blob) const {
    Block block;
    for (std::size_t i = detail::Bf16Parts<T>::count(x.size(), 256); i-- > 0;)
      detail::bf16_encode_part(block, i, x.size(), x.data(), header(x), blob.size(), blob.data());
  }
  template <class T>
  void decode(ConstBytes blob, View<T> x) const {
    Block block;
    for (std::size_t i = detail::Bf16Parts<T>::count(x.size(), 256); i-- > 0;)
      detail::bf16_decode_part(block, i, x.size(), header(View<const T>(x)), blob.data(), x.data());
  }
};

template <class Codec, class Element>
struct BitsDevice {
  using Block = emulated::Block<emulated::Order::scattered>;
  template <class T>
  using Parts = detail::BitParts<Element::bits, T, 256>;
  template <class T>
  static BlobHeader header(View<const T> x) {
    return blob_header(fnv1a(Codec::name), dtype_of<T>, x.rows(), x.cols());
  }
  template <class T>
  void encode(View<const T> x, const RandomKey&, Bytes blob) const {
    Block block;
    typename Parts<T>::Shared shared;
    for (std::size_t i = Parts<T>::count(x.size()); i-- > 0;)
      detail::bit_groups_encode_part<Element>(block, shared, i, x.size(), x.data(), header(x),
                                              blob.data());
  }
  template <class T>
  void decode(ConstBytes blob, View<T> x) const {
    Block block;
    for (std::size_t i = Parts<T>::count(x.size()); i-- > 0;)
      detail::bit_groups_decode_part<Element>(block, i, x.size(), header(View<const T>(x)),
                                              blob.data(), x.data());
  }
};

template <class Codec, class Device>
void check_elements() {
  constexpr Size more[] = {{16, 1024}, {64, 512}, {3, 4096}, {1, 511}, {9, 1821}, {128, 128}};
  const auto check = [](const Size& size) {
    for (const Data data : all_data) {
      compare<Codec, float>(size, data, Device{});
      compare<Codec, double>(size, data, Device{});
      compare<Codec, bfloat16>(size, data, Device{});
    }
  };
  for (const Size& size : sizes) check(size);
  for (const Size& size : more) check(size);
}

template <int bits>
void check_indices() {
  check_elements<PackedIndexWith<bits>,
                 BitsDevice<PackedIndexWith<bits>, detail::SmallIndex<bits>>>();
}

TEST_CASE("codecs of elements: emulated kernels make the CPU's bytes") {
  check_elements<Bf16, Bf16Device>();
  check_elements<BitMask, BitsDevice<BitMask, detail::IsPositive>>();
  check_indices<5>();
  check_indices<8>();
  check_indices<11>();
  check_indices<16>();
}

}}  // namespace cuda_algorithm_test
