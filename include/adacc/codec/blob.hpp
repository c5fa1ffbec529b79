// SPDX-License-Identifier: MIT
/// The 64 bytes at the start of each blob, and the checks with which each codec begins.
///
///     offset   bytes   contents
///     0        4       u32 magic: 'A' 'D' 'C' '1' in memory
///     4        4       u32 version of the format: 3 (groups whose NaNs have no place keep their numbers)
///     8        4       u32 codec: FNV-1a (32 bits) of its name
///     12       4       u32 dtype: the number of the enumerator of Dtype
///     16       8       u64 rows
///     24       8       u64 columns
///     32       32      zeros
///
/// Numbers are in the order of the machine, which is little-endian (core/little_endian.hpp). The header fixes all on
/// which sizes and offsets depend. So a decoder that has compared the header with the expected one can trust its own
/// offsets; it must not trust the rest of the blob.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "../core/bytes.hpp"
#include "../core/config.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/little_endian.hpp"
#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 {

/// The header in memory.
struct BlobHeader {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t codec;
  std::uint32_t dtype;
  std::uint64_t rows;
  std::uint64_t cols;
  std::uint64_t zeros[4];
};
static_assert(sizeof(BlobHeader) == 64);

inline constexpr std::size_t blob_header_bytes = sizeof(BlobHeader);
inline constexpr std::uint32_t blob_magic = 0x31434441;
inline constexpr std::uint32_t blob_version = 3;

/// FNV-1a with 32 bits (Fowler, Noll, Vo; RFC 9923).
ADACC_HD constexpr std::uint32_t fnv1a(const char* text) {
  std::uint32_t hash = 0x811C9DC5;
  for (; *text != '\0'; ++text) {
    hash ^= static_cast<std::uint8_t>(*text);
    hash *= 0x01000193;
  }
  return hash;
}

/// The header of a blob; `codec` is fnv1a(name).
ADACC_HD constexpr BlobHeader blob_header(std::uint32_t codec, Dtype dtype, std::size_t rows,
                                          std::size_t cols) {
  return {blob_magic, blob_version, codec, static_cast<std::uint32_t>(dtype), rows, cols, {}};
}

inline void write_blob_header(std::byte* blob, const char* name, Dtype dtype, std::size_t rows,
                              std::size_t cols) {
  const BlobHeader header = blob_header(fnv1a(name), dtype, rows, cols);
  std::memcpy(blob, &header, sizeof header);
}

namespace detail {

inline bool is_aligned(const void* address, std::size_t boundary = alignment) {
  return reinterpret_cast<std::uintptr_t>(address) % boundary == 0;
}

/// A tensor of any element type, as codecs' checks see it.
struct TensorPlace {
  const void* data;
  Shape shape;
  Dtype dtype;
  std::size_t boundary;  ///< the tensor starts at a multiple of so many bytes
};

[[gnu::cold]] inline Error cannot_encode(const char* name, const TensorPlace& x) {
  return Error::say(name, ": cannot encode ", x.shape.rows(), " rows of ", x.shape.cols(),
                    " columns of ", name_of(x.dtype));
}
[[gnu::cold]] inline Error wrong_size(const char* name, const TensorPlace& x, std::size_t bytes,
                                      std::size_t expected_bytes) {
  return Error::say(name, ": the blob has ", bytes, " bytes, but ", x.shape.rows(), " rows of ",
                    x.shape.cols(), " columns of ", name_of(x.dtype), " take ", expected_bytes);
}

/// The checks of both encode and decode: the tensor and the span of the blob. `expected_bytes` is the codec's
/// encoded_bytes.
inline Error check_spans(const char* name, const TensorPlace& x, ConstBytes blob,
                         std::size_t expected_bytes) {
  if (x.shape.rows() == 0 || x.shape.cols() == 0)
    return Error::say(name, ": the tensor ", x.shape, " has no elements");
  if (expected_bytes == 0) return cannot_encode(name, x);
  if (x.data == nullptr || !is_aligned(x.data, x.boundary))
    return Error::say(name, ": the tensor must start at a multiple of ", x.boundary, " bytes");
  if (blob.data() == nullptr || !is_aligned(blob.data()))
    return Error::say(name, ": the blob must start at a multiple of ", alignment, " bytes");
  if (blob.size() != expected_bytes) return wrong_size(name, x, blob.size(), expected_bytes);
  return {};
}
template <class T>
Error check_spans(const char* name, View<T> x, ConstBytes blob, std::size_t expected_bytes,
                  std::size_t boundary = alignment) {
  return check_spans(name,
                     TensorPlace{x.data(), x.shape(), dtype_of<std::remove_const_t<T>>, boundary},
                     blob, expected_bytes);
}

}  // namespace detail

/// Checks, by size and header, whether codec `name` made `blob` from such a tensor, in `expected_bytes` bytes. Reads
/// nothing beyond the span.
inline Error check_blob(ConstBytes blob, const char* name, Dtype dtype, std::size_t rows,
                        std::size_t cols, std::size_t expected_bytes) {
  const detail::TensorPlace x{nullptr, Shape(rows, cols), dtype, 1};
  if (expected_bytes < blob_header_bytes) return detail::cannot_encode(name, x);
  if (blob.data() == nullptr || blob.size() != expected_bytes)
    return detail::wrong_size(name, x, blob.size(), expected_bytes);
  BlobHeader header;
  std::memcpy(&header, blob.data(), sizeof header);
  if (header.magic != blob_magic) return Error::say(name, ": this is no blob of adacc");
  if (header.version != blob_version)
    return Error::say(name, ": the blob has format ", header.version, ", known is ", blob_version);
  if (header.codec != fnv1a(name)) return Error::say(name, ": the blob is of another codec");
  if (header.dtype != static_cast<std::uint32_t>(dtype))
    return Error::say(name, ": the blob's elements are not ", name_of(dtype));
  if (header.rows != rows || header.cols != cols)
    return Error::say(name, ": the blob is of ", header.rows, " rows of ", header.cols,
                      " columns, asked for are ", rows, " of ", cols);
  for (const std::uint64_t zero : header.zeros)
    if (zero != 0) return Error::say(name, ": the blob's header is damaged");
  return {};
}

/// Checks the arguments of encode on the host: the tensor has elements, the codec can encode it, and the blob starts
/// 64-byte aligned and has the expected size. O(1).
template <class T>
Error check_encode(const char* name, View<const T> x, Bytes blob, std::size_t expected_bytes) {
  return detail::check_spans(name, x, blob, expected_bytes, alignof(T));
}

/// Checks the arguments of decode: as for encode, and the tensor starts 64-byte aligned, and the header of the blob
/// fits the tensor. O(1).
template <class T>
Error check_decode(const char* name, ConstBytes blob, View<T> x, std::size_t expected_bytes) {
  if (Error error = detail::check_spans(name, x, blob, expected_bytes)) return error;
  return check_blob(blob, name, dtype_of<T>, x.rows(), x.cols(), expected_bytes);
}

}}  // namespace adacc::v0_1
