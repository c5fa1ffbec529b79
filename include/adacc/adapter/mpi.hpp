// SPDX-License-Identifier: MIT
/// A group of ranks (ranks/group.hpp) over MPI.
///
/// MPI is the program's: it calls MPI_Init before and MPI_Finalize behind everything here, launches,
/// and says which communicator. The group uses a duplicate of that, so no other message can meet one
/// of its own, and errors come back as values there, whatever the program does with its own. Messages
/// are nonblocking sends and receives; with every call MPI moves along what is under way.
///
/// How MPI treats a process that ends early is MPI's matter: Open MPI's launcher ends all others. What
/// the group sees itself (a rank that hangs, or has gone its own way) is an error within the limit.
///
/// All of MPI's calls come from the thread that uses the group: MPI_THREAD_FUNNELED is enough. A group
/// that broke does not free its communicator, because all ranks would have to.
#pragma once

// The C++ bindings that old versions have bring <iostream> along.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <climits>
#include <thread>
#include <utility>

#include "../core/array.hpp"
#include "../core/error.hpp"
#include "../ranks/group.hpp"
#include "../ranks/group_faults.hpp"

namespace adacc { inline namespace v0_1 {

struct MpiGroupOptions {
  double limit_seconds = 60;  ///< that wait() may last
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

  /// Of all ranks of `communicator`, which all call this.
  static Result<MpiGroup> make(MPI_Comm communicator, const Options& options = {}) {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized == 0 || finalized != 0)
      return Error::misuse(
          "a group over MPI is made between MPI_Init and MPI_Finalize, which are the program's");
    MpiGroup made;
    made.options_ = options;
    if (const Error why = said("MPI_Comm_dup", MPI_Comm_dup(communicator, &made.communicator_)))
      return why;
    MPI_Comm_set_errhandler(made.communicator_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(made.communicator_, &made.rank_);
    MPI_Comm_size(made.communicator_, &made.size_);
    return made;
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
    Ticket& mine = ticket_of(ticket);
    const auto count = static_cast<int>(what.memory.size());
    const bool sends = what.direction == GroupMessage::Direction::send;
    mine = {what, MPI_REQUEST_NULL, 0, true};
    const int code = sends ? MPI_Isend(what.memory.data(), count, MPI_BYTE, what.peer, what.channel,
                                       communicator_, &mine.request)
                           : MPI_Irecv(what.memory.data(), count, MPI_BYTE, what.peer, what.channel,
                                       communicator_, &mine.request);
    if (const Error why = said(sends ? "MPI_Isend" : "MPI_Irecv", code)) break_off(why);
  }

  bool done(int ticket) {
    if (error_ || !ticket_of(ticket).active) return true;
    return test(ticket_of(ticket));
  }

  Error wait(int ticket) {
    if (error_ || !ticket_of(ticket).active) return error_;
    Ticket& mine = ticket_of(ticket);
    const double start = MPI_Wtime();
    while (!test(mine)) {
      if (MPI_Wtime() - start > options_.limit_seconds) {
        break_off(detail::not_heard_of(rank_, mine.what, options_.limit_seconds));
        break;
      }
      std::this_thread::yield();  // ranks may be more than cores
    }
    mine.active = false;
    return error_;
  }

 private:
  struct Ticket {
    GroupMessage what;
    MPI_Request request = MPI_REQUEST_NULL;
    int ended = 0;
    bool active = false;
  };

  Ticket& ticket_of(int ticket) { return tickets_[static_cast<std::size_t>(ticket)]; }

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

  /// Whether the message has ended, or the group with it.
  bool test(Ticket& mine) {
    if (mine.ended != 0) return true;
    MPI_Status status;
    if (const Error why = said("MPI_Test", MPI_Test(&mine.request, &mine.ended, &status))) {
      mine.request = MPI_REQUEST_NULL;
      break_off(Error::say("rank ", rank_, " and rank ", mine.what.peer, ": ", why.text()));
      return true;
    }
    if (mine.ended == 0 || mine.what.direction == GroupMessage::Direction::send)
      return mine.ended != 0;
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (static_cast<std::size_t>(count) != mine.what.memory.size())
      break_off(Error::say("rank ", mine.what.peer, " sends ", count, " bytes to rank ", rank_,
                           ", which wants ", mine.what.memory.size()));
    return true;
  }

  void break_off(const Error& why) {
    if (!error_) error_ = why;
    give_back();
  }

  /// Receives that nobody has met are taken back. A message that is half here, whose sender went
  /// silent, is left to MPI.
  void give_back() {
    for (Ticket& ticket : tickets_) {
      if (!ticket.active || ticket.request == MPI_REQUEST_NULL) continue;
      if (ticket.what.direction == GroupMessage::Direction::receive) MPI_Cancel(&ticket.request);
      int ended = 0;
      for (int tries = 0; tries < 100 && ended == 0; ++tries)
        if (MPI_Test(&ticket.request, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS) ended = 1;
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
