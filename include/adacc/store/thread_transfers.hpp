// SPDX-License-Identifier: MIT
/// Transfers to and from a file by a thread that reads and writes at places, which works everywhere.
#pragma once

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include "../core/system_file.hpp"
#include "store.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

class ThreadTransfers {
 public:
  /// The file stays the caller's, and must stay open until the destructor.
  explicit ThreadTransfers(NativeFile file) : file_(file), thread_([this] { work(); }) {}
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

  /// 0, or a reason of system_file.hpp.
  int wait(int ticket) {
    std::unique_lock<std::mutex> lock(mutex_);
    ended_.wait(lock, [&] { return state(ticket) != under_way; });
    return state(ticket);
  }

 private:
  static constexpr int under_way = -2147483647;  // no reason
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
    std::byte* const memory = request.memory.data();
    const std::size_t bytes = request.memory.size();
    if (request.direction == StoreTransfer::Direction::write)
      return write_all_at(file_, request.offset, memory, bytes);
    std::size_t got = 0;
    const int reason = read_all_at(file_, request.offset, memory, bytes, got);
    return reason != 0 ? reason : got == bytes ? 0 : EIO;  // shorter than when it was made
  }

  NativeFile file_;
  std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::vector<int> states_;     ///< by ticket: 0, a reason, or under way
  std::vector<Request> queue_;  ///< a ring: no more than one request per ticket
  std::size_t head_ = 0, tail_ = 0;
  bool stop_ = false;
  std::thread thread_;  ///< last: the thread uses all members above
};

}}}  // namespace adacc::v0_1::detail
