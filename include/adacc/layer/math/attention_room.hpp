// SPDX-License-Identifier: MIT
/// The memory of attention's workers, for blocks of queries and keys of one head.
///
/// float and double sum up in the tensors themselves. With bfloat16 all sums are fp32 in this memory, and operands of
/// products that are no tensors (probabilities, and gradients of scores) are rounded in it.
#pragma once

#include <cstddef>

#include "../../core/bytes.hpp"
#include "bf16_block_product.hpp"
#include "block_product.hpp"
#include "numbers.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Takes pieces of a worker's memory, or counts their bytes if there is none.
class RoomPieces {
 public:
  constexpr explicit RoomPieces(std::byte* memory) : memory_(memory) {}
  /// 64-byte aligned.
  template <class T>
  constexpr T* take(std::size_t elems) {
    const std::size_t begin = bytes_;
    bytes_ += align_up(elems * sizeof(T));
    if (memory_ == nullptr) return nullptr;
    return static_cast<T*>(static_cast<void*>(memory_ + begin));
  }
  constexpr std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::size_t bytes_ = 0;
};

/// In forward, for heads of `size` channels and blocks of `block` queries and keys.
template <class T>
struct AttentionForwardRoom {
  using W = Wide<T>;

  T* query = nullptr;    ///< (size, block), scaled; bfloat16 is read in its place
  W* score = nullptr;    ///< (keys, block), then probabilities
  W* maximum = nullptr;  ///< (block) each
  W* sum = nullptr;
  W* rescale = nullptr;
  W* out = nullptr;     ///< bfloat16: (block, size), sums
  T* weight = nullptr;  ///< bfloat16: the probabilities, rounded
  T* packed = nullptr;  ///< bfloat16: the queries for all blocks of keys
  Bytes products{};     ///< bfloat16: of the products

  constexpr AttentionForwardRoom(RoomPieces& pieces, std::size_t block, std::size_t size) {
    if constexpr (in_place<T>) query = pieces.template take<T>(size * block);
    score = pieces.template take<W>(block * block);
    maximum = pieces.template take<W>(block);
    sum = pieces.template take<W>(block);
    rescale = pieces.template take<W>(block);
    if constexpr (!in_place<T>) {
      out = pieces.template take<W>(block * size);
      weight = pieces.template take<T>(block * block);
      packed = pieces.template take<T>(BlockProduct<T>::packed_elems(block, size));
      const std::size_t bytes = BlockProduct<T>::room_bytes(block, size);
      products = {pieces.template take<std::byte>(bytes), Shape(bytes)};
    }
  }
};

/// In backward, for sequences of `time` positions.
template <class T>
struct AttentionBackwardRoom {
  using W = Wide<T>;

  T* query = nullptr;           ///< (size, block), scaled; bfloat16 is read in its place
  T* dout = nullptr;            ///< (size, block), as well
  W* weight = nullptr;          ///< (keys, block)
  W* dscore = nullptr;          ///< (keys, block)
  W* log_sum = nullptr;         ///< (block)
  W* inner = nullptr;           ///< (block): dO . O
  W* dquery = nullptr;          ///< bfloat16: (block, size), sums
  W* dkey = nullptr;            ///< bfloat16: (time, size), sums
  W* dvalue = nullptr;          ///< bfloat16: (time, size), sums
  T* rounded_weight = nullptr;  ///< bfloat16
  T* rounded_dscore = nullptr;  ///< bfloat16
  T* packed[4] = {};  ///< bfloat16: queries and dO for all blocks of keys, as columns and as rows
  Bytes products{};   ///< bfloat16: of the products

  constexpr AttentionBackwardRoom(RoomPieces& pieces, std::size_t block, std::size_t size,
                                  std::size_t time) {
    if constexpr (in_place<T>) {
      query = pieces.template take<T>(size * block);
      dout = pieces.template take<T>(size * block);
    }
    weight = pieces.template take<W>(block * block);
    dscore = pieces.template take<W>(block * block);
    log_sum = pieces.template take<W>(block);
    inner = pieces.template take<W>(block);
    if constexpr (!in_place<T>) {
      dquery = pieces.template take<W>(block * size);
      dkey = pieces.template take<W>(time * size);
      dvalue = pieces.template take<W>(time * size);
      rounded_weight = pieces.template take<T>(block * block);
      rounded_dscore = pieces.template take<T>(block * block);
      for (T*& place : packed)
        place = pieces.template take<T>(BlockProduct<T>::packed_elems(block, size));
      const std::size_t bytes = BlockProduct<T>::room_bytes(block, size);
      products = {pieces.template take<std::byte>(bytes), Shape(bytes)};
    }
  }
};

}}}  // namespace adacc::v0_1::detail
