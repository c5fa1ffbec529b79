// SPDX-License-Identifier: MIT
/// Transfers to and from a file by io_uring: the kernel's queues, without a thread of ours.
///
/// Made of raw system calls, because liburing is not everywhere. Tensors are cut into pieces, so one tensor fills the
/// device's queue. All work is done on the calling thread: completions are collected when a transfer begins, and by
/// done() and wait().
#pragma once

#if defined(__linux__)

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "store.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

class UringTransfers {
 public:
  /// The file stays the caller's, and must stay open until the destructor. If the kernel refuses, refused() says why,
  /// and nothing else may be called.
  explicit UringTransfers(int file) : file_(file) {
    io_uring_params params{};
    ring_ = static_cast<int>(::syscall(SYS_io_uring_setup, entries, &params));
    if (ring_ < 0) {
      refused_ = errno;
      return;
    }
    const std::size_t submissions = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    const std::size_t completions = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
    if ((params.features & IORING_FEAT_SINGLE_MMAP) == 0) {
      refused_ = ENOSYS;  // a kernel before 5.4
      return;
    }
    queues_bytes_ = submissions > completions ? submissions : completions;
    queues_ = static_cast<std::byte*>(map(queues_bytes_, IORING_OFF_SQ_RING));
    requests_bytes_ = params.sq_entries * sizeof(io_uring_sqe);
    requests_ = static_cast<io_uring_sqe*>(map(requests_bytes_, IORING_OFF_SQES));
    if (queues_ == nullptr || requests_ == nullptr) return;
    sq_head_ = counter(params.sq_off.head), sq_tail_ = counter(params.sq_off.tail);
    sq_mask_ = *counter(params.sq_off.ring_mask), sq_entries_ = params.sq_entries;
    sq_array_ = counter(params.sq_off.array);
    cq_head_ = counter(params.cq_off.head), cq_tail_ = counter(params.cq_off.tail);
    cq_mask_ = *counter(params.cq_off.ring_mask);
    completions_ = reinterpret_cast<io_uring_cqe*>(queues_ + params.cq_off.cqes);
    pieces_.resize(params.cq_entries);  // never more under way than the kernel can report
    free_.reserve(pieces_.size());
  }
  UringTransfers(const UringTransfers&) = delete;
  UringTransfers& operator=(const UringTransfers&) = delete;
  /// Waits for transfers under way: they use memory of the caller's.
  ~UringTransfers() {
    for (std::size_t i = 0; refused_ == 0 && i < tickets_.size(); ++i) wait(static_cast<int>(i));
    if (requests_ != nullptr) ::munmap(requests_, requests_bytes_);
    if (queues_ != nullptr) ::munmap(queues_, queues_bytes_);
    if (ring_ >= 0) ::close(ring_);
  }

  /// Why io_uring cannot be used: an errno, or 0.
  int refused() const { return refused_; }

  void prepare(int tickets) {
    tickets_.assign(static_cast<std::size_t>(tickets), Ticket{});
    free_.clear();
    for (std::size_t i = pieces_.size(); i-- > 0;) free_.push_back(static_cast<unsigned>(i));
  }

  void begin(int ticket, const StoreTransfer& request) {
    Ticket& state = tickets_[static_cast<std::size_t>(ticket)];
    state = {};
    for (std::size_t at = 0; at < request.memory.size(); at += piece_bytes) {
      while (free_.empty()) collect(true);
      const unsigned id = free_.back();
      free_.pop_back();
      const std::size_t left = request.memory.size() - at;
      pieces_[id] = {ticket, request.direction == StoreTransfer::Direction::write,
                     request.offset + at, request.memory.data() + at,
                     left < piece_bytes ? left : piece_bytes};
      ++state.pieces;
      submit(id);
    }
    flush();
    collect(false);
  }

  bool done(int ticket) {
    collect(false);
    return tickets_[static_cast<std::size_t>(ticket)].pieces == 0;
  }

  /// 0, or an errno.
  int wait(int ticket) {
    const Ticket& state = tickets_[static_cast<std::size_t>(ticket)];
    collect(false);
    while (state.pieces > 0) collect(true);
    return state.reason;
  }

 private:
  static constexpr unsigned entries = 256;
  static constexpr std::size_t piece_bytes = std::size_t{512} << 10;

  struct Piece {
    int ticket = 0;
    bool write = false;
    std::size_t offset = 0;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;  ///< still to move
  };
  struct Ticket {
    int pieces = 0;  ///< under way
    int reason = 0;
  };

  void* map(std::size_t bytes, std::uint64_t offset) {
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                                ring_, static_cast<off_t>(offset));
    if (memory != MAP_FAILED) return memory;
    refused_ = errno;
    return nullptr;
  }
  unsigned* counter(unsigned offset) { return reinterpret_cast<unsigned*>(queues_ + offset); }

  /// Puts a piece into the queue; flush() hands the queue over.
  void submit(unsigned id) {
    if (*sq_tail_ - __atomic_load_n(sq_head_, __ATOMIC_ACQUIRE) == sq_entries_) flush();
    const Piece& piece = pieces_[id];
    const unsigned tail = *sq_tail_, place = tail & sq_mask_;
    io_uring_sqe& request = requests_[place];
    std::memset(&request, 0, sizeof request);
    request.opcode = piece.write ? IORING_OP_WRITE : IORING_OP_READ;
    request.fd = file_;
    request.off = piece.offset;
    request.addr = reinterpret_cast<std::uintptr_t>(piece.memory);
    request.len = static_cast<unsigned>(piece.bytes);
    request.user_data = id;
    sq_array_[place] = place;
    __atomic_store_n(sq_tail_, tail + 1, __ATOMIC_RELEASE);
  }

  void flush() {
    for (;;) {
      const unsigned waiting = *sq_tail_ - __atomic_load_n(sq_head_, __ATOMIC_ACQUIRE);
      if (waiting == 0) return;
      if (enter(waiting, 0) < 0) {
        if (errno == EAGAIN || errno == EBUSY) collect(false);  // full for a moment
        else if (errno != EINTR) return fail_waiting(errno);
      }
    }
  }

  /// The kernel takes no requests at all: ends the queued ones with `reason`.
  void fail_waiting(int reason) {
    const unsigned head = __atomic_load_n(sq_head_, __ATOMIC_ACQUIRE);
    for (unsigned at = head; at != *sq_tail_; ++at)
      end(static_cast<unsigned>(requests_[sq_array_[at & sq_mask_]].user_data), reason);
    __atomic_store_n(sq_tail_, head, __ATOMIC_RELEASE);
  }

  long enter(unsigned submitted, unsigned least) const {
    return ::syscall(SYS_io_uring_enter, ring_, submitted, least,
                     least > 0 ? IORING_ENTER_GETEVENTS : 0U, nullptr, 0);
  }

  /// Notes which pieces have ended; if `block`, waits for at least one.
  void collect(bool block) {
    unsigned head = *cq_head_;
    while (block && head == __atomic_load_n(cq_tail_, __ATOMIC_ACQUIRE)) {
      if (enter(0, 1) >= 0 || errno == EINTR || errno == EAGAIN || errno == EBUSY) continue;
      return fail_all(errno);
    }
    bool again = false;
    while (head != __atomic_load_n(cq_tail_, __ATOMIC_ACQUIRE)) {
      const io_uring_cqe completion = completions_[head & cq_mask_];
      __atomic_store_n(cq_head_, ++head, __ATOMIC_RELEASE);
      again = note(static_cast<unsigned>(completion.user_data), completion.res) || again;
    }
    if (again) flush();
  }

  /// Piece `id` has moved `moved` bytes, or failed; returns whether the rest of the piece was queued again.
  bool note(unsigned id, int moved) {
    Piece& piece = pieces_[id];
    const bool again = moved == -EINTR || moved == -EAGAIN;
    if (moved == 0) moved = -EIO;  // the file is shorter than when it was made
    if (moved < 0 && !again) {
      end(id, -moved);
      return false;
    }
    const std::size_t bytes = again ? 0 : static_cast<std::size_t>(moved);
    piece.offset += bytes, piece.memory += bytes, piece.bytes -= bytes;
    if (piece.bytes == 0) {
      end(id, 0);
      return false;
    }
    submit(id);
    return true;
  }

  void end(unsigned id, int reason) {
    Ticket& ticket = tickets_[static_cast<std::size_t>(pieces_[id].ticket)];
    --ticket.pieces;
    if (ticket.reason == 0) ticket.reason = reason;
    free_.push_back(id);
  }

  void fail_all(int reason) {
    for (Ticket& ticket : tickets_)
      if (ticket.pieces > 0) ticket = {0, reason};
  }

  int file_;
  int ring_ = -1;
  int refused_ = 0;
  std::byte* queues_ = nullptr;
  std::size_t queues_bytes_ = 0;
  io_uring_sqe* requests_ = nullptr;
  std::size_t requests_bytes_ = 0;
  unsigned *sq_head_ = nullptr, *sq_tail_ = nullptr, *sq_array_ = nullptr;
  unsigned sq_mask_ = 0, sq_entries_ = 0;
  unsigned *cq_head_ = nullptr, *cq_tail_ = nullptr;
  unsigned cq_mask_ = 0;
  io_uring_cqe* completions_ = nullptr;
  std::vector<Piece> pieces_;
  std::vector<unsigned> free_;  ///< of pieces_
  std::vector<Ticket> tickets_;
};

}}}  // namespace adacc::v0_1::detail

#else

#include <cerrno>

#include "../core/file_handle.hpp"
#include "store.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

/// Other systems refuse io_uring.
class UringTransfers {
 public:
  explicit UringTransfers(NativeFile) {}
  int refused() const { return ENOSYS; }
  void prepare(int) {}
  void begin(int, const StoreTransfer&) {}
  bool done(int) { return true; }
  int wait(int) { return ENOSYS; }
};

}}}  // namespace adacc::v0_1::detail

#endif
