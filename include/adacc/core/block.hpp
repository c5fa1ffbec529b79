// SPDX-License-Identifier: MIT
/// Zeroed, 64-byte aligned memory: parameters, moments, tokens.
///
/// std::vector aligns to 16 bytes and throws if there is no memory; a Block returns an error value. A block that
/// starts at a multiple of huge_page asks Linux for huge pages: writes past the page cache pin every page of a
/// transfer, and 512 times fewer pages cost less.
#pragma once

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>

#include "bytes.hpp"
#include "error.hpp"
#include "view.hpp"

namespace adacc { inline namespace v0_1 {

inline constexpr std::size_t huge_page = 2 * MiB;

template <class T>
class Block {
  static_assert(std::is_trivially_copyable_v<T>, "adacc: a Block holds plain numbers");

 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  Block(Block&& other) noexcept
      : data_(other.data_), size_(other.size_), boundary_(other.boundary_) {
    other.data_ = nullptr, other.size_ = 0;
  }
  Block& operator=(Block&& other) noexcept {
    T* data = data_;
    const std::size_t size = size_, boundary = boundary_;
    data_ = other.data_, size_ = other.size_, boundary_ = other.boundary_;
    other.data_ = data, other.size_ = size, other.boundary_ = boundary;
    return *this;
  }
  ~Block() { ::operator delete (data_, std::align_val_t{boundary_}); }

  /// `elems` zeros, starting at a multiple of `boundary` (a power of 2, at least 64). If there is no memory, the
  /// error names `what` they are for.
  static Result<Block> make(std::size_t elems, const char* what, std::size_t boundary = alignment) {
    std::size_t bytes = 0;
    if (!multiply(elems, sizeof(T), bytes) || bytes > static_cast<std::size_t>(-1) / 2)
      return Error::say(what, ": ", elems, " elements are more than can be addressed");
    if (elems == 0) return Block();
    Block block;
    void* data = ::operator new (align_up(bytes), std::align_val_t{boundary}, std::nothrow);
    if (data == nullptr) return Error::say(what, ": there is no memory for ", shown(bytes));
#if defined(__linux__)
    // Called before the pages are touched. If the call fails, transfers are slower, and nothing else.
    if (boundary % huge_page == 0) static_cast<void>(::madvise(data, bytes, MADV_HUGEPAGE));
#endif
    std::memset(data, 0, align_up(bytes));
    block.data_ = static_cast<T*>(data);
    block.size_ = elems;
    block.boundary_ = boundary;
    return static_cast<Block&&>(block);  // nvcc would copy it
  }

  std::size_t size() const { return size_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  View<T> view() { return {data_, Shape(size_)}; }
  View<const T> view() const { return {data_, Shape(size_)}; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t boundary_ = alignment;
};

namespace detail {

/// Replaces `block` (of host or device memory) by a new one of `elems` elements. If there is no memory, `block`
/// stays, and `error` says why, unless it holds an earlier error.
template <class AnyBlock>
void take(AnyBlock& block, std::size_t elems, const char* what, Error& error,
          std::size_t boundary = alignment) {
  auto made = AnyBlock::make(elems, what, boundary);
  if (!made) {
    if (!error) error = made.error;
    return;
  }
  block = static_cast<AnyBlock&&>(*made);
}

}  // namespace detail

}}  // namespace adacc::v0_1
