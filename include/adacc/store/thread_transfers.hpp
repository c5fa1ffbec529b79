// SPDX-License-Identifier: MIT
/// Transfers to and from a file by a thread with pread and pwrite, which work everywhere.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "store.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

class ThreadTransfers {
 public:
  /// The file stays the caller's, and must stay open until the destructor.
  explicit ThreadTransfers(int file) : file_(file), thread_([this] { work(); }) {}
  ThreadTransfers(const ThreadTransfers&) = delete;
  ThreadTransfers& operator=(const ThreadTransfers&) = delete;
  ~ThreadTransfers() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  void prepare(int tickets) {
    const std::lock_guard<std::mutex> lock(mutex_);
    states_.assign(static_cast<std::size_t>(tickets), 0);
    queue_.assign(static_cast<std::size_t>(tickets), Request{});
    head_ = tail_ = 0;
  }

  void begin(int ticket, const StoreTransfer& request) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      state(ticket) = under_way;
      queue_[tail_++ % queue_.size()] = {ticket, request};
    }
    wake_.notify_one();
  }

  bool done(int ticket) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return state(ticket) != under_way;
  }

  /// 0, or an errno.
  int wait(int ticket) {
    std::unique_lock<std::mutex> lock(mutex_);
    ended_.wait(lock, [&] { return state(ticket) != under_way; });
    return state(ticket);
  }

 private:
  static constexpr int under_way = -1;
  struct Request {
    int ticket = 0;
    StoreTransfer what;
  };

  int& state(int ticket) { return states_[static_cast<std::size_t>(ticket)]; }

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stop_ || head_ != tail_; });
      if (head_ == tail_) return;  // requests in the queue end first
      const Request request = queue_[head_++ % queue_.size()];
      lock.unlock();
      const int reason = transfer(request.what);
      lock.lock();
      state(request.ticket) = reason;
      ended_.notify_all();
    }
  }

  int transfer(const StoreTransfer& request) const {
    for (std::size_t at = 0; at < request.memory.size();) {
      std::byte* const memory = request.memory.data() + at;
      const std::size_t left = request.memory.size() - at;
      const auto place = static_cast<off_t>(request.offset + at);
      const ssize_t moved = request.direction == StoreTransfer::Direction::write
                                ? ::pwrite(file_, memory, left, place)
                                : ::pread(file_, memory, left, place);
      if (moved > 0) at += static_cast<std::size_t>(moved);
      else if (moved == 0) return EIO;  // the file is shorter than when it was made
      else if (errno != EINTR) return errno;
    }
    return 0;
  }

  int file_;
  std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::vector<int> states_;     ///< by ticket: 0, an errno, or under way
  std::vector<Request> queue_;  ///< a ring: no more than one request per ticket
  std::size_t head_ = 0, tail_ = 0;
  bool stop_ = false;
  std::thread thread_;  ///< last: the thread uses all members above
};

}}}  // namespace adacc::v0_1::detail
