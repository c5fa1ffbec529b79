// SPDX-License-Identifier: MIT
/// A group of ranks (ranks/group.hpp) over MPI.
///
/// MPI belongs to the program. The program calls MPI_Init before and MPI_Finalize behind everything here, launches,
/// and names the communicator. The group uses a duplicate of the communicator, so messages of the program and of the
/// group never meet. Errors of the duplicate come back as values, whatever the program's error handler. Messages are
/// nonblocking sends and receives; every call moves along the messages under way.
///
/// A message is copied before it is sent. A broken group gives the caller's memory back at once, and MPI can cancel a
/// receive with no sender yet, but no send: MPI reads a sent message whenever the peer receives it. The copy of an
/// unfinished send then stays in memory until the process ends. So the group holds the bytes of all messages sent at
/// once; messages up to 1 MiB for good. A message half received when the group breaks still arrives in the caller's
/// memory, if the sender goes on, while this process calls MPI.
///
/// MPI decides about a process that ends early: Open MPI's launcher ends all others. A fault seen by the group (a
/// rank hangs, or has gone another way) is an error within the limit.
///
/// The thread using the group makes all calls of MPI: MPI_THREAD_FUNNELED is enough. A broken group does not free the
/// communicator, because all ranks would have to.
#pragma once

// The C++ bindings of old versions include <iostream>.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <climits>
#include <cstddef>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "../core/array.hpp"
#include "../core/block.hpp"
#include "../core/error.hpp"
#include "../ranks/group.hpp"
#include "../ranks/group_faults.hpp"

namespace adacc { inline namespace v0_1 {

struct MpiGroupOptions {
  double limit_seconds = 60;  ///< the longest time of wait()
};

class MpiGroup {
 public:
  using Options = MpiGroupOptions;

  MpiGroup() = default;
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;
  MpiGroup(MpiGroup&& other) noexcept { swap(other); }
  MpiGroup& operator=(MpiGroup&& other) noexcept { return swap(other), *this; }
  ~MpiGroup() {
    int finalized = 1;
    if (communicator_ == MPI_COMM_NULL || MPI_Finalized(&finalized) != MPI_SUCCESS ||
        finalized != 0)
      return;
    const bool broken = static_cast<bool>(error_);
    give_back();
    if (!broken) MPI_Comm_free(&communicator_);
  }

  /// A group of all ranks of `communicator`; each of them calls make().
  static Result<MpiGroup> make(MPI_Comm communicator, const Options& options = {}) {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized == 0 || finalized != 0)
      return Error::misuse(
          "a group over MPI is made between MPI_Init and MPI_Finalize, which are the program's");
    MpiGroup group;
    group.options_ = options;
    if (const Error why = said("MPI_Comm_dup", MPI_Comm_dup(communicator, &group.communicator_)))
      return why;
    MPI_Comm_set_errhandler(group.communicator_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(group.communicator_, &group.rank_);
    MPI_Comm_size(group.communicator_, &group.size_);
    return group;
  }

  int rank() const { return rank_; }
  int size() const { return size_; }

  Error prepare(int tickets) {
    if (error_) return error_;
    if (const Error why = detail::fault_of_prepare(tickets_)) return why;
    if (static_cast<std::size_t>(tickets) > tickets_.size())
      tickets_.resize(static_cast<std::size_t>(tickets));
    return {};
  }

  void begin(int ticket, const GroupMessage& what) {
    if (error_) return;
    if (const Error why = fault(ticket, what)) return break_off(why);
    Ticket& transfer = ticket_of(ticket);
    const auto count = static_cast<int>(what.memory.size());
    const bool sends = what.direction == GroupMessage::Direction::send;
    if (sends)
      if (const Error why = hold(transfer, what.memory)) return break_off(why);
    transfer.what = what;
    transfer.request = MPI_REQUEST_NULL;
    transfer.ended = 0;
    transfer.active = true;
    const int code = sends ? MPI_Isend(transfer.held.data(), count, MPI_BYTE, what.peer,
                                       what.channel, communicator_, &transfer.request)
                           : MPI_Irecv(what.memory.data(), count, MPI_BYTE, what.peer, what.channel,
                                       communicator_, &transfer.request);
    if (const Error why = said(sends ? "MPI_Isend" : "MPI_Irecv", code)) break_off(why);
  }

  bool done(int ticket) {
    if (error_ || !ticket_of(ticket).active) return true;
    return test(ticket_of(ticket));
  }

  Error wait(int ticket) {
    if (error_ || !ticket_of(ticket).active) return error_;
    Ticket& transfer = ticket_of(ticket);
    const double start = MPI_Wtime();
    while (!test(transfer)) {
      if (MPI_Wtime() - start > options_.limit_seconds) {
        break_off(detail::not_heard_of(rank_, transfer.what, options_.limit_seconds));
        break;
      }
      std::this_thread::yield();  // ranks may be more than cores
    }
    transfer.active = false;
    return error_;
  }

 private:
  struct Ticket {
    GroupMessage what;
    MPI_Request request = MPI_REQUEST_NULL;
    int ended = 0;
    bool active = false;
    Block<std::byte> held;  ///< the copy of a message, read by MPI
  };

  static constexpr std::size_t most_kept_bytes = MiB;  ///< of a ticket, between messages

  Ticket& ticket_of(int ticket) { return tickets_[static_cast<std::size_t>(ticket)]; }

  static Error hold(Ticket& transfer, Bytes message) {
    if (transfer.held.size() < message.size()) {
      transfer.held = {};  // room for both is not required
      auto held = Block<std::byte>::make(message.size(), "a message over MPI");
      if (!held) return held.error;
      transfer.held = std::move(*held);
    }
    std::memcpy(transfer.held.data(), message.data(), message.size());
    return {};
  }

  void swap(MpiGroup& other) noexcept {
    std::swap(options_, other.options_);
    std::swap(communicator_, other.communicator_);
    std::swap(rank_, other.rank_);
    std::swap(size_, other.size_);
    std::swap(tickets_, other.tickets_);
    std::swap(error_, other.error_);
  }

  static Error said(const char* call, int code) {
    if (code == MPI_SUCCESS) return {};
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    return Error::say(call, ": ", text);
  }

  Error fault(int ticket, const GroupMessage& what) const {
    if (const Error why = detail::fault_of_begin(tickets_, rank_, size_, ticket, what)) return why;
    if (what.memory.size() > INT_MAX)
      return Error::misuse("a message over MPI has at most ", INT_MAX, " bytes, and this one ",
                           what.memory.size());
    return {};
  }

  /// Whether the message, or the group, has ended.
  bool test(Ticket& transfer) {
    if (transfer.ended != 0) return true;
    MPI_Status status;
    const int code = MPI_Test(&transfer.request, &transfer.ended, &status);
    if (const Error why = said("MPI_Test", code)) {
      int kind = MPI_SUCCESS;
      MPI_Error_class(code, &kind);
      transfer.request = MPI_REQUEST_NULL;
      break_off(
          kind == MPI_ERR_TRUNCATE
              ? Error::say("rank ", transfer.what.peer, " sends more bytes to rank ", rank_,
                           " than the ", transfer.what.memory.size(),
                           " that it wants: they have gone different ways")
              : Error::say("rank ", rank_, " and rank ", transfer.what.peer, ": ", why.text()));
      return true;
    }
    if (transfer.ended == 0) return false;
    if (transfer.what.direction == GroupMessage::Direction::send) {
      if (transfer.held.size() > most_kept_bytes) transfer.held = {};
      return true;
    }
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (static_cast<std::size_t>(count) != transfer.what.memory.size())
      break_off(Error::say("rank ", transfer.what.peer, " sends ", count, " bytes to rank ", rank_,
                           ", which wants ", transfer.what.memory.size(),
                           ": they have gone different ways"));
    return true;
  }

  void break_off(const Error& why) {
    if (!error_) error_ = why;
    give_back();
  }

  /// Cancels receives with no sender yet. A message still unfinished is left to MPI, with the copy.
  void give_back() {
    for (Ticket& ticket : tickets_) {
      if (!ticket.active || ticket.request == MPI_REQUEST_NULL) continue;
      if (ticket.what.direction == GroupMessage::Direction::receive) MPI_Cancel(&ticket.request);
      int ended = 0;
      for (int tries = 0; tries < 100 && ended == 0; ++tries)
        if (MPI_Test(&ticket.request, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS) ended = 1;
      if (ended == 0) static_cast<void>(new (std::nothrow) Block(std::move(ticket.held)));
      if (ticket.request != MPI_REQUEST_NULL) MPI_Request_free(&ticket.request);
      ticket.active = false;
    }
  }

  Options options_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  Array<Ticket> tickets_;
  Error error_;
};

}}  // namespace adacc::v0_1
