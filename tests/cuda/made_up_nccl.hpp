// SPDX-License-Identifier: MIT
/// Ranks that are processes of one program, each with an executor of its own, and what they send one another through
/// memory that they share: a group of the host's, and NCCL's functions on the executor's streams. A receive that nothing
/// has come for yet is work that is not ready. Included by one source of a program.
#pragma once

#include <adacc/ranks/group.hpp>

#include <nccl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 550  // a variable of an assertion
#include "../../support/ptxrun/host.hpp"
#pragma nv_diagnostic pop

namespace made_up_nccl {

/// Bytes on their way from one rank to another.
struct Pipe {
  static constexpr std::size_t room = 1 << 20;
  std::atomic<std::uint64_t> written, read;
  unsigned char bytes[room];

  bool send(const void* from, std::size_t n) {
    if (n + written - read > room) return false;
    for (std::size_t i = 0; i < n; ++i)
      bytes[(written + i) % room] = static_cast<const unsigned char*>(from)[i];
    written += n;
    return true;
  }
  bool receive(void* to, std::size_t n) {
    if (written - read < n) return false;
    for (std::size_t i = 0; i < n; ++i)
      static_cast<unsigned char*>(to)[i] = bytes[(read + i) % room];
    read += n;
    return true;
  }
};

inline constexpr int most_ranks = 4, channels = 1, most_communicators = 64;

/// What all ranks share; zero at the start.
struct Shared {
  Pipe host[most_ranks][most_ranks];
  Pipe device[most_communicators][2];
  std::atomic<int> ids;
};
inline Shared* shared = nullptr;

/// A group of the host's, on one channel: all that collectives ask for.
class Group {
 public:
  Group(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const { return rank_; }
  int size() const { return size_; }
  adacc::Error prepare(int tickets) {
    if (active_.size() < static_cast<std::size_t>(tickets))
      active_.resize(static_cast<std::size_t>(tickets));
    return {};
  }
  void begin(int ticket, const adacc::GroupMessage& what) {
    queue_.push_back({ticket, what});
    active_[static_cast<std::size_t>(ticket)] = true;
  }
  bool done(int ticket) {
    progress();
    return !active_[static_cast<std::size_t>(ticket)];
  }
  adacc::Error wait(int ticket) {
    using Clock = std::chrono::steady_clock;
    for (const auto start = Clock::now(); !done(ticket); std::this_thread::yield())
      if (Clock::now() - start > std::chrono::seconds(120))
        return adacc::Error::say("rank ", rank_, " waited for a message");
    return {};
  }

 private:
  struct Message {
    int ticket;
    adacc::GroupMessage what;
  };
  /// Messages of one direction between two ranks go in their order.
  void progress() {
    bool stuck[2][most_ranks] = {};
    for (std::size_t i = 0; i < queue_.size();) {
      const adacc::GroupMessage& what = queue_[i].what;
      const bool sends = what.direction == adacc::GroupMessage::Direction::send;
      bool& waits = stuck[sends ? 0 : 1][what.peer];
      const bool ended =
          !waits &&
          (sends ? shared->host[rank_][what.peer].send(what.memory.data(), what.memory.size())
                 : shared->host[what.peer][rank_].receive(what.memory.data(), what.memory.size()));
      if (!ended) {
        waits = true;
        ++i;
        continue;
      }
      active_[static_cast<std::size_t>(queue_[i].ticket)] = false;
      queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  int rank_, size_;
  std::deque<Message> queue_;
  std::vector<bool> active_;
};

/// body(group) in a process for each rank, before which CUDA must not have been called; the number of those that failed.
template <class Body>
int on_ranks(int ranks, const Body& body) {
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return 1;
  shared = static_cast<Shared*>(memory);
  std::vector<pid_t> processes;
  std::fflush(nullptr);  // or each process writes what waits
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = fork();
    if (process == 0) {
      Group group(rank, ranks);
      std::exit(body(group));
    }
    processes.push_back(process);
  }
  int failed = 0;
  for (const pid_t process : processes) {
    int status = 0;
    failed += waitpid(process, &status, 0) != process || status != 0;
  }
  munmap(memory, sizeof(Shared));
  return failed;
}

}  // namespace made_up_nccl

struct ncclComm {
  int number = 0, rank = 0;
};

extern "C" {
inline const char* ncclGetErrorString(ncclResult_t) { return "an error"; }
inline ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  const int number = made_up_nccl::shared->ids++;
  std::memcpy(id->internal, &number, sizeof number);
  return number < made_up_nccl::most_communicators ? ncclSuccess : ncclSystemError;
}
inline ncclResult_t ncclCommInitRank(ncclComm_t* made, int, ncclUniqueId id, int rank) {
  *made = new ncclComm{0, rank};
  std::memcpy(&(*made)->number, id.internal, sizeof(int));
  return ncclSuccess;
}
inline ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  delete communicator;
  return ncclSuccess;
}
inline ncclResult_t ncclCommAbort(ncclComm_t communicator) { return ncclCommDestroy(communicator); }
inline ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* result) {
  *result = ncclSuccess;
  return ncclSuccess;
}
inline ncclResult_t ncclSend(const void* memory, std::size_t bytes, ncclDataType_t, int,
                             ncclComm_t communicator, cudaStream_t stream) {
  made_up_nccl::Pipe& pipe = made_up_nccl::shared->device[communicator->number][communicator->rank];
  const cudaError_t status = ptxrun::enqueue(stream, [&pipe, memory, bytes] {
    const void* const from = ptxrun::device_bytes(memory, bytes, false, "ncclSend");
    if (from == nullptr) return cudaErrorIllegalAddress;
    return pipe.send(from, bytes) ? cudaSuccess : cudaErrorNotReady;
  });
  return status == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
inline ncclResult_t ncclRecv(void* memory, std::size_t bytes, ncclDataType_t, int,
                             ncclComm_t communicator, cudaStream_t stream) {
  made_up_nccl::Pipe& pipe =
      made_up_nccl::shared->device[communicator->number][1 - communicator->rank];
  const cudaError_t status = ptxrun::enqueue(stream, [&pipe, memory, bytes] {
    if (pipe.written - pipe.read < bytes) return cudaErrorNotReady;
    void* const to = ptxrun::device_bytes(memory, bytes, true, "ncclRecv");
    if (to == nullptr) return cudaErrorIllegalAddress;
    pipe.receive(to, bytes);
    return cudaSuccess;
  });
  return status == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
}
