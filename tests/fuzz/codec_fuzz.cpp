// SPDX-License-Identifier: MIT
/// Every codec, fed with what libFuzzer makes up: blobs that lie, and tensors of any bits.
///
/// The first four bytes choose codec and element type, rows, columns, and what is done with the
/// rest:
///
///     bytes   it is a blob of exactly these bytes
///     body    it follows a good header, cut or filled with zeros to the size of a blob: what a
///             fuzzer that had to guess headers would hardly reach
///     tensor  it is a tensor: encode, decode; what was not finite must not be finite afterwards
///     hurt    it is a tensor; its blob is then changed where the last bytes say, and decoded
///
/// Blob and tensor lie in blocks of their exact size, so that AddressSanitizer sees the first byte
/// beyond them. `codec_fuzz --write-seeds FOLDER` fills a new folder with one input for every
/// codec, type and mode, and ends.
#include <adacc/codec/blob.hpp>
#include <adacc/codec/codec.hpp>
#include <adacc/codec/float_bits.hpp>
#include <adacc/core/bfloat16.hpp>
#include <adacc/core/cpu.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <type_traits>
#include <vector>

#include "../codec/erased_codec.hpp"

namespace {

using namespace adacc;
using sample::ErasedCodec;

enum Mode : std::uint8_t { bytes, body, tensor, hurt, modes };

struct Input {
  const std::uint8_t* data;
  std::size_t size;

  std::uint8_t take() {
    if (size == 0) return 0;
    --size;
    return *data++;
  }
};

/// `size` bytes at a multiple of 64, no more.
class Block {
 public:
  explicit Block(std::size_t size) : size_(size) {
    if (posix_memalign(&memory_, alignment, size == 0 ? 1 : size) != 0) std::abort();
    std::memset(memory_, 0x7B, size);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { std::free(memory_); }

  Bytes view() const { return {static_cast<std::byte*>(memory_), Shape(size_)}; }
  template <class T>
  View<T> as(std::size_t rows, std::size_t cols) const {
    return {static_cast<T*>(memory_), Shape(rows, cols)};
  }
  /// What of `input` fits; the rest zeros.
  void fill(std::size_t from, const Input& input) const {
    std::byte* to = static_cast<std::byte*>(memory_) + from;
    const std::size_t room = size_ - from, count = input.size < room ? input.size : room;
    std::memset(to, 0, room);
    if (count != 0) std::memcpy(to, input.data, count);
  }

 private:
  void* memory_ = nullptr;
  std::size_t size_;
};

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "codec_fuzz: %s\n", what);
  std::abort();
}

template <class T>
void decode(const ErasedCodec<T>& codec, ConstBytes blob, View<T> x) {
  Cpu cpu;
  const Error error = codec.decode(cpu, blob, x);
  if (error)
    for (std::size_t i = 0; i < x.size() * sizeof(T); ++i)
      require(reinterpret_cast<const unsigned char*>(x.data())[i] == 0x7B,
              "decode wrote and then said error");
  if (codec.statistics != nullptr) (void)codec.statistics(blob, x.rows(), x.cols(), dtype_of<T>);
}

template <class T>
void run(const ErasedCodec<T>& codec, Mode mode, std::size_t rows, std::size_t cols, Input input) {
  const std::size_t size = codec.bytes_for(rows, cols);
  require(size != 0, "a small tensor cannot be encoded");
  const Block out(rows * cols * sizeof(T));
  const View<T> y = out.as<T>(rows, cols);
  if (mode == bytes) {
    const Block blob(input.size);
    blob.fill(0, input);
    return decode(codec, ConstBytes(blob.view()), y);
  }
  const Block blob(size);
  if (mode == body) {
    blob.fill(blob_header_bytes, input);
    write_blob_header(blob.view().data(), codec.name, dtype_of<T>, rows, cols);
    return decode(codec, ConstBytes(blob.view()), y);
  }
  const Block in(rows * cols * sizeof(T));
  in.fill(0, input);
  const View<const T> x = in.as<T>(rows, cols);
  Cpu cpu;
  cpu.key.purpose = Purpose::rounding;
  require(!codec.encode(cpu, x, blob.view()), "encode refused good arguments");
  if (mode == hurt) {
    for (int times = 0; times < 4 && input.size >= 3; ++times) {
      input.size -= 3;
      const std::uint8_t* end = input.data + input.size;
      const std::size_t at = (end[0] | static_cast<std::size_t>(end[1]) << 8) % size;
      blob.view().data()[at] = static_cast<std::byte>(end[2]);
    }
    return decode(codec, ConstBytes(blob.view()), y);
  }
  require(!codec.decode(cpu, blob.view(), y), "decode refused what encode made");
  for (std::size_t i = 0; i < x.size(); ++i)
    require(detail::is_number(x[i]) || !detail::is_number(y[i]),
            "something that was not finite came back as a number");
  decode(codec, ConstBytes(blob.view()), y);
}

/// Calls f(codec) for the `which`th pair; counts them.
template <class F>
std::size_t choose(std::size_t which, const F& f) {
  std::size_t count = 0;
  sample::for_each_erased_codec([&](const auto& codec) {
    if (count++ == which) f(codec);
  });
  return count;
}

void write_seeds(const std::filesystem::path& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  constexpr auto nothing = [](const auto&) {};
  const std::size_t pairs = choose(static_cast<std::size_t>(-1), nothing);
  // One row of many columns is two groups or tiles of columns; many rows are two blocks.
  constexpr std::uint8_t shapes[][2] = {{1, 255}, {66, 3}};
  for (std::size_t pair = 0; pair < pairs; ++pair)
    for (std::uint8_t mode = 0; mode < modes; ++mode) {
      const auto& shape = shapes[(pair + mode) % 2];
      std::vector<char> seed{static_cast<char>(pair), static_cast<char>(shape[0] - 1),
                             static_cast<char>(shape[1] - 1), static_cast<char>(mode)};
      choose(pair, [&]<class T>(const ErasedCodec<T>& codec) {
        const Block in(std::size_t{shape[0]} * shape[1] * sizeof(T));
        const View<T> x = in.as<T>(shape[0], shape[1]);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const float value = static_cast<float>(random_word({.seed = pair}, i) % 2) *
                              (i % 50 == 7 ? 1000.0F : 1.0F);
          if constexpr (std::is_same_v<T, bfloat16>) x[i] = to_bfloat16(value);
          else x[i] = static_cast<T>(value);
        }
        const Block blob(codec.bytes_for(shape[0], shape[1]));
        Cpu cpu;
        require(!codec.encode(cpu, View<const T>(x), blob.view()), "no seed");
        const Bytes all = mode == tensor || mode == hurt ? in.view() : blob.view();
        const std::size_t skipped = mode == body ? blob_header_bytes : 0;
        for (std::size_t i = skipped; i < all.size(); ++i)
          seed.push_back(static_cast<char>(all[i]));
      });
      const std::string name = "seed_" + std::to_string(pair) + "_" + std::to_string(mode);
      std::ofstream(folder / name, std::ios::binary)
          .write(seed.data(), static_cast<std::streamsize>(seed.size()));
    }
}

}  // namespace

#include "write_seeds.hpp"  // calls the function above

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input{data, size};
  const std::size_t pair = input.take();
  const std::size_t rows = std::size_t{1} + input.take(), cols = std::size_t{1} + input.take();
  const auto mode = static_cast<Mode>(input.take() % modes);
  if (rows * cols > 8192) return -1;  // not worth a place in the corpus: nothing new happens there
  choose(pair, [&](const auto& codec) { run(codec, mode, rows, cols, input); });
  return 0;
}
