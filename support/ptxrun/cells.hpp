// SPDX-License-Identifier: MIT
// Who last touched memory, for finding races.
#pragma once
#include <sys/mman.h>

#include <utility>
#include <vector>

#include "parse.hpp"

namespace ptxrun {

/// The last write and the last reads of a word of four bytes, or of one byte.
struct Cell {
  u32 w_stamp, r_stamp, r_before;  // r_before: the latest read by an earlier block of threads
  s32 w_pc, r_pc;
  u16 w_thread, r_thread, w_epoch, r_epoch;
  bool w_atomic, r_atomic, r_many;
  bool split;  // of a word: its bytes have cells of their own
};

/// The cells of a piece of memory whose address is a multiple of four. A word has one cell until an access touches only
/// a part of the word.
class Cells {
 public:
  Cells() = default;
  Cells(Cell* words, Cell* bytes) : words_(words), bytes_(bytes) {}

  /// The cell of the word at `at`, a multiple of four.
  Cell* word(u64 at) const { return words_ + at / 4; }

  /// Calls visit(cell, i) for the bytes [at, at + n): byte at + i is the first of the cell.
  template <class Visit>
  void each(u64 at, u64 n, const Visit& visit) const {
    for (u64 i = 0; i < n;) {
      const u64 byte = at + i, first = byte / 4 * 4;
      Cell& word = words_[byte / 4];
      if (!word.split && byte == first && n - i >= 4) {
        visit(word, i);
        i += 4;
        continue;
      }
      if (!word.split) {
        for (u64 k = 0; k < 4; ++k) bytes_[first + k] = word;
        word.split = true;
      }
      visit(bytes_[byte], i);
      ++i;
    }
  }

 private:
  Cell *words_ = nullptr, *bytes_ = nullptr;
};

/// Reads by lanes of one instruction of whole words that no other thread may be writing: the most frequent accesses.
struct WordReads {
  u32 now;          // stamp
  u32 first;        // stamp of the first accesses that may race
  u32 block_first;  // and of those of this block of threads
  s32 pc;
  u16 epoch;

  /// Notes that `thread` reads the n bytes of `cells`. False if a cell is split, or its write may race.
  bool read(Cell* cells, u64 n, u16 thread) const {
    for (Cell* c = cells; c != cells + n / 4; ++c) {
      const bool written_before =
          c->w_stamp < first || (c->w_stamp >= block_first && c->w_stamp < now);
      if (c->split || !written_before) return false;
      trace(*c, thread, false);
    }
    return true;
  }
  /// Notes a read by `thread`.
  void trace(Cell& c, u16 thread, bool atomic) const {
    if (c.r_stamp >= first && c.r_stamp < block_first) c.r_before = c.r_stamp;
    // A read before a bar.warp.sync of both is before whatever this one is before.
    const bool before_mine = c.r_thread / 32 == thread / 32 && c.r_epoch < epoch;
    c.r_many = c.r_stamp == now && (c.r_many || (c.r_thread != thread && !before_mine));
    c.r_atomic = (c.r_stamp != now || c.r_atomic) && atomic;
    c.r_stamp = now, c.r_thread = thread, c.r_epoch = epoch, c.r_pc = pc;
  }
};

/// Cells in memory of their own, of `size` bytes from their multiple of four on, all untouched.
class SharedCells {
 public:
  void clear(u64 size) {
    words_.assign((size + 3) / 4, Cell{});
    bytes_.resize(words_.size() * 4);  // written when a word is split
  }
  Cells get() { return {words_.data(), bytes_.data()}; }

 private:
  std::vector<Cell> words_, bytes_;
};

/// Cells of an allocation, mapped when the first access asks for them.
class MappedCells {
 public:
  Cells get(u64 size) {
    if (!words_) {
      count_ = (size + 3) / 4;
      words_ = map(count_), bytes_ = map(4 * count_);
    }
    return {words_, bytes_};
  }
  void release() {
    if (!words_) return;
    munmap(words_, count_ * sizeof(Cell)), munmap(bytes_, 4 * count_ * sizeof(Cell));
    words_ = bytes_ = nullptr;
  }

 private:
  static constexpr u64 large_page = u64{2} << 20;

  static Cell* map(u64 count) {
    void* p = mmap(nullptr, count * sizeof(Cell), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::runtime_error("ptxrun: no memory");
    // Large pages spare as many faults as there are words in an allocation.
    if (count * sizeof(Cell) >= large_page) madvise(p, count * sizeof(Cell), MADV_HUGEPAGE);
    return static_cast<Cell*>(p);
  }

  Cell *words_ = nullptr, *bytes_ = nullptr;
  u64 count_ = 0;
};

}  // namespace ptxrun
