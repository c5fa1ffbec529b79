// SPDX-License-Identifier: MIT
/// A job system as engines have one: threads that steal work from one another. It knows nothing of
/// adacc; think of it as somebody else's.
///
/// Each worker has a deque of jobs: it pushes and pops at one end, thieves take from the other. Chase,
/// Lev, "Dynamic circular work-stealing deque", SPAA 2005; Lê, Pop, Cohen, Zappa Nardelli, "Correct and
/// efficient work-stealing for weak memory models", PPoPP 2013, here with sequentially consistent
/// atomics in place of its fences. Nothing is allocated once the threads run: a worker's jobs lie in
/// a ring, and if that is full a job runs where it was kicked.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace engine {

/// Jobs that have not ended; to be waited for.
struct Counter {
  std::atomic<int> left{0};
};

/// A call of function(data, index, worker).
struct Job {
  void (*function)(void* data, std::size_t index, int worker) = nullptr;
  void* data = nullptr;
  std::size_t index = 0;
  Counter* counter = nullptr;
};

class JobSystem {
 public:
  /// `workers` threads, of which the one that calls this is number 0.
  explicit JobSystem(int workers) {
    for (int i = 0; i < workers; ++i) workers_.push_back(std::make_unique<Worker>());
    self_ = 0;
    for (int i = 1; i < workers; ++i)
      workers_[static_cast<std::size_t>(i)]->thread = std::thread([this, i] { live(i); });
  }
  JobSystem(const JobSystem&) = delete;
  JobSystem& operator=(const JobSystem&) = delete;
  ~JobSystem() {
    stop_ = true;
    wake();
    for (const auto& worker : workers_)
      if (worker->thread.joinable()) worker->thread.join();
  }

  int workers() const { return static_cast<int>(workers_.size()); }

  /// Kicks `count` jobs, with indices from 0. From a thread of the system.
  void kick(void (*function)(void*, std::size_t, int), void* data, std::size_t count,
            Counter& counter) {
    counter.left += static_cast<int>(count);
    for (std::size_t i = 0; i < count; ++i) {
      const Job job{function, data, i, &counter};
      if (!mine().push(job)) execute(job);
    }
    wake();
  }

  /// Runs whatever jobs there are until those of `counter` have ended.
  void wait(Counter& counter) {
    while (counter.left != 0) {
      Job job;
      if (find(job)) execute(job);
      else std::this_thread::yield();
    }
  }

  /// The same, but runs no job of another counter, so that it returns as soon as it can.
  void wait_for_these_alone(Counter& counter) {
    Job job;
    while (mine().pop(job)) {
      if (job.counter == &counter) {
        execute(job);
        continue;
      }
      if (!mine().push(job)) execute(job);
      break;
    }
    while (counter.left != 0) std::this_thread::yield();
  }

  std::uint64_t stolen() const { return stolen_; }

 private:
  static constexpr std::size_t room = 1024;  // jobs of a worker

  class Worker {
   public:
    bool push(const Job& job) {  // by its worker
      const std::int64_t bottom = bottom_;
      Slot& slot = slots_[next_ % room];
      if (slot.busy || bottom - top_ >= static_cast<std::int64_t>(room)) return false;
      ++next_;
      slot.job = job;
      slot.busy = true;
      at(bottom) = &slot;
      bottom_ = bottom + 1;
      return true;
    }
    bool pop(Job& job) {  // by its worker
      const std::int64_t bottom = --bottom_;
      std::int64_t top = top_;
      if (top < bottom) return take(at(bottom), job);
      // The last one: a thief may be at it.
      const bool won = top == bottom && top_.compare_exchange_strong(top, top + 1);
      bottom_ = bottom + 1;
      return won && take(at(bottom), job);
    }
    bool steal(Job& job) {  // by any other
      std::int64_t top = top_;
      if (top >= bottom_) return false;
      Slot* const slot = at(top);
      return top_.compare_exchange_strong(top, top + 1) && take(slot, job);
    }

    std::thread thread;

   private:
    struct Slot {
      Job job;
      std::atomic<bool> busy{false};  // a job in it has not been read
    };
    static bool take(Slot* slot, Job& job) {
      job = slot->job;
      slot->busy = false;
      return true;
    }
    std::atomic<Slot*>& at(std::int64_t i) { return ring_[static_cast<std::size_t>(i) % room]; }

    alignas(64) std::atomic<std::int64_t> top_{0};
    alignas(64) std::atomic<std::int64_t> bottom_{0};
    std::size_t next_ = 0;
    std::array<std::atomic<Slot*>, room> ring_{};
    std::array<Slot, room> slots_{};
  };

  Worker& mine() { return *workers_[static_cast<std::size_t>(self_)]; }

  bool find(Job& job) {
    if (mine().pop(job)) return true;
    for (int i = 1; i < workers(); ++i)
      if (workers_[static_cast<std::size_t>((self_ + i) % workers())]->steal(job)) {
        stolen_.fetch_add(1, std::memory_order_relaxed);
        return true;
      }
    return false;
  }

  static void execute(const Job& job) {
    job.function(job.data, job.index, self_);
    --job.counter->left;  // whoever waits may go on, and the counter be gone
  }

  void wake() {
    ++signal_;
    signal_.notify_all();
  }

  void live(int number) {
    self_ = number;
    for (int idle = 0; !stop_;) {
      const std::uint32_t seen = signal_;
      Job job;
      if (find(job)) {
        execute(job);
        idle = 0;
      } else if (++idle < 100) {
        std::this_thread::yield();
      } else if (!stop_) {
        signal_.wait(seen);
      }
    }
  }

  static inline thread_local int self_ = 0;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<std::uint32_t> signal_{0};
  std::atomic<std::uint64_t> stolen_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace engine
