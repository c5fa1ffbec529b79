// SPDX-License-Identifier: MIT
/// A group of ranks (ranks/group.hpp) over NCCL, for messages in the memory of devices.
///
/// NCCL orders all messages of a communicator, and knows no channels, while messages of a group do not wait for one
/// another. So every channel between two ranks has two communicators of these two alone, one for each direction, with
/// streams of their own. With R ranks, each rank has 2 (R - 1) communicators per channel, and as many of NCCL's
/// kernels may be on the device at once. This suits tens of ranks and few channels.
///
/// Ranks are devices, of one machine or of several. The group lent to make() reaches them from the host
/// (adapter/mpi.hpp), and hands out NCCL's ids. make() also connects the ranks: later, NCCL would have the host wait
/// for the other side.
///
/// A message begins behind all work queued by then on `stream`, or on the stream that the message names
/// (GroupMessage::behind), and wait() waits on the host. If wait() exceeds the
/// limit, or NCCL reports an error, all communicators are aborted, and the group is broken. Two sides with different
/// sizes look like two sides that never meet: the limit ends both.
///
/// Compiled against NCCL's header, and tested with a runtime and an NCCL simulated in host memory; not run on a GPU.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include "../core/array.hpp"
#include "../core/cuda_handle.cuh"
#include "../core/error.hpp"
#include "../ranks/collectives.hpp"
#include "../ranks/group.hpp"
#include "../ranks/group_faults.hpp"

namespace adacc { inline namespace v0_1 {

struct NcclGroupOptions {
  double limit_seconds = 60;      ///< the longest time of wait()
  int channels = 4;               ///< the channels of messages are below this number
  cudaStream_t stream = nullptr;  ///< computes the memory of messages
};

class NcclGroup {
 public:
  using Options = NcclGroupOptions;

  NcclGroup() = default;
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  NcclGroup(NcclGroup&& other) noexcept { swap(other); }
  NcclGroup& operator=(NcclGroup&& other) noexcept { return swap(other), *this; }
  ~NcclGroup() {
    for (Link& link : links_) {
      if (link.communicator == nullptr) continue;
      if (error_) static_cast<void>(ncclCommAbort(link.communicator));
      else static_cast<void>(ncclCommDestroy(link.communicator));
    }
  }

  /// A group of all ranks of `host`. Each of them calls make() with another current device; only make() uses `host`.
  static Result<NcclGroup> make(GroupRef host, const Options& options = {}) {
    NcclGroup group;
    group.options_ = options;
    group.rank_ = host.rank();
    group.size_ = host.size();
    Error why;
    if (options.channels < 1)
      why = Error::say("a group over NCCL has one channel at least, and ", options.channels,
                       " were asked for");
    if ((why = share_error(host, why))) return why;
    group.links_.resize(2 * static_cast<std::size_t>(options.channels) *
                        static_cast<std::size_t>(group.size_));
    // All ranks go through the pairs in one order, to the end, even after an error.
    for (int a = 0; a < group.size_; ++a)
      for (int b = a + 1; b < group.size_; ++b)
        for (int link = 0; link < 2 * options.channels; ++link)
          if (Error lost = group.connect(host, a, b, link, why)) return lost;
    if ((why = share_error(host, why))) return why;
    return static_cast<NcclGroup&&>(group);  // nvcc would copy it
  }

  int rank() const { return rank_; }
  int size() const { return size_; }

  Error prepare(int tickets) {
    if (error_) return error_;
    if (const Error why = detail::fault_of_prepare(tickets_)) return why;
    while (tickets_.size() < static_cast<std::size_t>(tickets)) {
      Ticket ticket;
      for (Event* event : {&ticket.ready, &ticket.ended})
        if (const Error why =
                said("an event", cudaEventCreateWithFlags(event->place(), cudaEventDisableTiming)))
          return why;
      tickets_.push_back(std::move(ticket));
    }
    return {};
  }

  void begin(int ticket, const GroupMessage& what) {
    if (error_) return;
    if (const Error why = fault(ticket, what)) return break_off(why);
    Ticket& transfer = ticket_of(ticket);
    transfer.what = what;
    transfer.active = true;
    const bool sends = what.direction == GroupMessage::Direction::send;
    Link& link = link_of(what.peer, what.channel, sends);
    const cudaStream_t on = link.stream.get();
    const cudaStream_t behind = what.behind != nullptr
                                    ? static_cast<cudaStream_t>(const_cast<void*>(what.behind))
                                    : options_.stream;
    Error why = said("an event", cudaEventRecord(transfer.ready.get(), behind));
    if (!why) why = said("a stream", cudaStreamWaitEvent(on, transfer.ready.get(), 0));
    if (!why) why = move(link, sends, what.peer, what.memory.data(), what.memory.size());
    if (!why) why = said("an event", cudaEventRecord(transfer.ended.get(), on));
    if (why) break_off(why);
  }

  bool done(int ticket) {
    if (error_ || !ticket_of(ticket).active) return true;
    return test(ticket_of(ticket));
  }

  Error wait(int ticket) {
    if (error_ || !ticket_of(ticket).active) return error_;
    using Clock = std::chrono::steady_clock;
    Ticket& transfer = ticket_of(ticket);
    const auto start = Clock::now();
    while (!test(transfer)) {
      if (std::chrono::duration<double>(Clock::now() - start).count() > options_.limit_seconds) {
        break_off(detail::not_heard_of(rank_, transfer.what, options_.limit_seconds));
        break;
      }
      std::this_thread::yield();
    }
    transfer.active = false;
    return error_;
  }

 private:
  using Event = detail::CudaHandle<cudaEvent_t, cudaEventDestroy>;
  using Stream = detail::CudaHandle<cudaStream_t, cudaStreamDestroy>;

  /// One way of a channel to a peer.
  struct Link {
    ncclComm_t communicator = nullptr;
    Stream stream;
  };
  struct Ticket {
    GroupMessage what;
    Event ready, ended;
    bool active = false;
  };

  Ticket& ticket_of(int ticket) { return tickets_[static_cast<std::size_t>(ticket)]; }
  /// The first link of each channel goes from the smaller rank to the larger one.
  Link& link_of(int peer, int channel, bool sends) {
    const int way = 2 * channel + (sends == (rank_ < peer) ? 0 : 1);
    return links_[static_cast<std::size_t>(peer * 2 * options_.channels + way)];
  }

  void swap(NcclGroup& other) noexcept {
    std::swap(options_, other.options_);
    std::swap(rank_, other.rank_);
    std::swap(size_, other.size_);
    std::swap(links_, other.links_);
    std::swap(tickets_, other.tickets_);
    std::swap(error_, other.error_);
  }

  static Error said(const char* what, cudaError_t code) {
    if (code == cudaSuccess) return {};
    return Error::say("a group over NCCL, ", what, ": ", cudaGetErrorString(code));
  }
  static Error said(const char* call, ncclResult_t code) {
    if (code == ncclSuccess) return {};
    return Error::say(call, ": ", ncclGetErrorString(code));
  }

  Error move(Link& link, bool sends, int peer, std::byte* memory, std::size_t bytes) const {
    const int there = peer > rank_ ? 1 : 0;  // the peer's rank in the communicator
    return sends ? said("ncclSend", ncclSend(memory, bytes, ncclInt8, there, link.communicator,
                                             link.stream.get()))
                 : said("ncclRecv", ncclRecv(memory, bytes, ncclInt8, there, link.communicator,
                                             link.stream.get()));
  }

  /// Connects link number `way` of ranks a and b, if this rank is one of them. `why` receives an error of CUDA or
  /// NCCL; an error of the host's group is returned.
  Error connect(GroupRef host, int a, int b, int way, Error& why) {
    if (rank_ != a && rank_ != b) return {};
    const int peer = rank_ == a ? b : a;
    ncclUniqueId id{};
    if (rank_ == a && !why) why = said("ncclGetUniqueId", ncclGetUniqueId(&id));
    const Bytes memory(reinterpret_cast<std::byte*>(&id), Shape(sizeof id));
    if (const Error lost = transfer(host, memory, a, memory, b)) return lost;
    if (const Error lost = both_fine(host, a, b, why)) return lost;
    if (why) return {};
    Link& link = links_[static_cast<std::size_t>(peer * 2 * options_.channels + way)];
    why = said("ncclCommInitRank", ncclCommInitRank(&link.communicator, 2, id, rank_ == a ? 0 : 1));
    if (!why)
      why = said("a stream", cudaStreamCreateWithFlags(link.stream.place(), cudaStreamNonBlocking));
    if (const Error lost = both_fine(host, a, b, why)) return lost;
    if (why) return {};
    // The first message connects both sides.
    void* byte = nullptr;
    if (!why) why = said("memory", cudaMalloc(&byte, 1));
    if (!why) why = said("memory", cudaMemsetAsync(byte, 0, 1, link.stream.get()));
    if (!why)
      why = move(link, (way % 2 == 0) == (rank_ == a), peer, static_cast<std::byte*>(byte), 1);
    if (!why) why = said("a stream", cudaStreamSynchronize(link.stream.get()));
    if (byte != nullptr) static_cast<void>(cudaFree(byte));
    return {};
  }

  /// Tells each of two ranks of the other's failure, so neither waits in NCCL for a failed rank.
  Error both_fine(GroupRef host, int a, int b, Error& why) const {
    std::byte fine[2] = {std::byte{!why}, std::byte{!why}};  // rank a, rank b
    for (const int from : {0, 1}) {
      const Bytes flag(fine + from, Shape(std::size_t{1}));
      if (const Error lost = transfer(host, flag, from == 0 ? a : b, flag, from == 0 ? b : a))
        return lost;
    }
    if (!why && fine[rank_ == a ? 1 : 0] == std::byte{0})
      why = Error::say("rank ", rank_ == a ? b : a, " could not connect with rank ", rank_);
    return {};
  }

  Error fault(int ticket, const GroupMessage& what) const {
    if (const Error why = detail::fault_of_begin(tickets_, rank_, size_, ticket, what)) return why;
    if (what.channel < 0 || what.channel >= options_.channels)
      return Error::misuse("a message over NCCL is on a channel below ", options_.channels,
                           " (NcclGroupOptions::channels), and this one on ", what.channel);
    return {};
  }

  /// Whether the message, or the group, has ended.
  bool test(Ticket& transfer) {
    const cudaError_t state = cudaEventQuery(transfer.ended.get());
    const bool sends = transfer.what.direction == GroupMessage::Direction::send;
    ncclResult_t result = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(
        link_of(transfer.what.peer, transfer.what.channel, sends).communicator, &result);
    Error why;
    if (state != cudaErrorNotReady) why = said("a message", state);
    if (!why) why = said("ncclCommGetAsyncError", asked);
    if (!why && result != ncclInProgress) why = said("NCCL", result);
    if (why)
      break_off(Error::say("rank ", rank_, " and rank ", transfer.what.peer, ": ", why.text()));
    return static_cast<bool>(error_) || state == cudaSuccess;
  }

  void break_off(const Error& why) {
    if (!error_) error_ = why;
    for (Link& link : links_) {
      if (link.communicator == nullptr) continue;
      static_cast<void>(ncclCommAbort(link.communicator));
      link.communicator = nullptr;
    }
    for (Ticket& ticket : tickets_) ticket.active = false;
  }

  Options options_;
  int rank_ = 0, size_ = 1;
  Array<Link> links_;  ///< by peer, channel and way
  Array<Ticket> tickets_;
  Error error_;
};

}}  // namespace adacc::v0_1
