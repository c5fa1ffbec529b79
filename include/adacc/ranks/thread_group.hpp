// SPDX-License-Identifier: MIT
/// A group of threads in one process: for tests, and for trials without any launcher.
///
/// By default messages are copies and time is real. With a link, time is simulated: every rank has a
/// clock of its own, moved only by work() and by the time of messages. A rank that
/// asks or waits is then held until no other rank can change the answer any more,
/// so times, and every decision by times, are the same in each run and on any
/// machine. Each rank sends over a link of its own, one message after the other; receiving costs
/// nothing, and no rank hears of another sooner than after the link's latency.
///
/// Nothing is copied before one of both sides waits. In hostile mode, memory of a receive
/// holds garbage until then: reading too early, or writing to memory being sent, gives wrong numbers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "../core/clock.hpp"
#include "../core/error.hpp"
#include "../core/steady_clock.hpp"
#include "group.hpp"
#include "group_faults.hpp"

namespace adacc { inline namespace v0_1 {

struct ThreadGroupOptions {
  double limit_seconds = 10;  ///< the longest wait()
  double rate = 0;            ///< bytes a second of every rank's link; 0: no link, time is real
  double latency = 1e-6;      ///< seconds of each message on the link, above 0
  bool hostile = false;
};

/// The state shared by all ranks; outlives the members.
class ThreadGroup {
 public:
  using Options = ThreadGroupOptions;

  /// The event that replaces a rank's message number `at`, counted from 0, and all later messages.
  enum class Fate : std::uint8_t {
    lives,
    dies,   ///< the others see the rank as gone
    hangs,  ///< falls silent; goes on, with an error, once no rank waits for this one
  };

  explicit ThreadGroup(int size, const Options& options = {})
      : options_(options), ranks_(static_cast<std::size_t>(size)) {}

  int size() const { return static_cast<int>(ranks_.size()); }

  /// Sets a rank's fate. Call before the rank's Member is made.
  void set_fate(int rank, Fate fate, std::uint64_t at = 0) {
    rank_of(rank).fate = fate;
    rank_of(rank).fate_at = at;
  }

  /// One rank of the group, used by one thread at a time. The destructor tells the others the rank has gone.
  class Member {
   public:
    Member(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    ~Member() { group_.leave(rank_); }

    int rank() const { return rank_; }
    int size() const { return group_.size(); }
    Error prepare(int tickets) { return group_.prepare(rank_, tickets); }
    void begin(int ticket, const GroupMessage& what) { group_.begin(rank_, ticket, what); }
    bool done(int ticket) { return group_.done(rank_, ticket); }
    Error wait(int ticket) { return group_.wait(rank_, ticket); }

    /// With a link: moves this rank's clock on by `seconds`.
    void work(double seconds) { group_.work(rank_, seconds); }
    /// This rank's clock, in seconds; a ClockRef takes the member.
    double operator()() const { return group_.now(rank_); }
    /// Messages begun so far.
    std::uint64_t begun() const { return group_.rank_of(rank_).begun; }

   private:
    ThreadGroup& group_;
    int rank_;
  };

 private:
  using Direction = GroupMessage::Direction;
  using Lock = std::unique_lock<std::mutex>;

  enum class State : std::uint8_t { runs, asks, waits, hangs, left };

  struct Ticket {
    GroupMessage what;
    bool active = false;
    int peer_ticket = -1;       ///< the ticket met; -1: none yet
    bool copied = false;        ///< the bytes have arrived
    std::uint64_t order = 0;    ///< number of the begin()
    double begun = 0, end = 0;  ///< on the ranks' clocks; the end is known once both sides met
  };

  struct Rank {
    std::vector<Ticket> tickets;
    State state = State::runs;
    int ticket = -1;     ///< the ticket asked or waited for
    double now = 0;      ///< the rank's clock, if there is a link
    double link_at = 0;  ///< time from which the rank's link is idle
    Error error;         ///< why the rank's group is broken
    Fate fate = Fate::lives;
    std::uint64_t fate_at = 0, begun = 0;
  };

  bool simulated() const { return options_.rate > 0; }
  Rank& rank_of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Rank& rank_of(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  Ticket& ticket_of(int rank, int ticket) {
    return rank_of(rank).tickets[static_cast<std::size_t>(ticket)];
  }

  Error prepare(int rank, int tickets) {
    const Lock lock(mutex_);
    Rank& caller = rank_of(rank);
    if (caller.error) return caller.error;
    if (const Error why = detail::fault_of_prepare(caller.tickets)) return why;
    if (static_cast<std::size_t>(tickets) > caller.tickets.size())
      caller.tickets.resize(static_cast<std::size_t>(tickets));
    return {};
  }

  void begin(int rank, int ticket, const GroupMessage& what) {
    Lock lock(mutex_);
    Rank& caller = rank_of(rank);
    if (caller.error) return;
    if (const Error why = detail::fault_of_begin(caller.tickets, rank, size(), ticket, what))
      return break_off(caller, why);
    if (caller.fate != Fate::lives && caller.begun >= caller.fate_at) return meet_fate(lock, rank);
    Ticket& added = ticket_of(rank, ticket);
    added = {what, true, -1, false, caller.begun++, caller.now, 0};
    const bool sends = what.direction == Direction::send;
    if (simulated() && sends) {
      const double start = caller.now > caller.link_at ? caller.now : caller.link_at;
      caller.link_at = start + static_cast<double>(what.memory.size()) / options_.rate;
      added.end = caller.link_at + options_.latency;  // the earliest arrival
    }
    if (options_.hostile && !sends) std::memset(what.memory.data(), 0xFF, what.memory.size());
    meet(rank, ticket);
    changed_.notify_all();
  }

  bool done(int rank, int ticket) {
    Lock lock(mutex_);
    Rank& caller = rank_of(rank);
    Ticket& asked = ticket_of(rank, ticket);
    if (caller.error || !asked.active) return true;
    if (!simulated()) return settled(caller, asked);
    caller.state = State::asks;
    caller.ticket = ticket;
    changed_.notify_all();
    const double seconds = hold(lock, rank);
    caller.state = State::runs;
    const double end = asked.peer_ticket >= 0 ? asked.end : rank_of(asked.what.peer).now;
    const bool answer =
        caller.error || (seconds < 0 && settled(caller, asked) && end <= caller.now);
    if (!answer) caller.now += options_.latency / 100;  // so a loop of done() ends, too
    return answer;
  }

  Error wait(int rank, int ticket) {
    Lock lock(mutex_);
    Rank& caller = rank_of(rank);
    Ticket& asked = ticket_of(rank, ticket);
    if (caller.error || !asked.active) return caller.error;
    const auto limit = std::chrono::steady_clock::now() +
                       std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                           std::chrono::duration<double>(options_.limit_seconds));
    caller.state = State::waits;
    caller.ticket = ticket;
    changed_.notify_all();
    bool late = false;
    if (simulated()) late = hold(lock, rank) >= 0;
    else
      while (!settled(caller, asked) && !late)
        late = changed_.wait_until(lock, limit) == std::cv_status::timeout;
    caller.state = State::runs;
    if (caller.error) return caller.error;
    if (asked.peer_ticket < 0) {
      const int peer = asked.what.peer;
      caller.now += late ? options_.limit_seconds : 0;
      break_off(caller, gone(peer)
                            ? Error::say("rank ", rank, " cannot ",
                                         detail::words_of(asked.what.direction), " rank ", peer,
                                         ", which has gone", said(rank_of(peer).error).text())
                            : detail::not_heard_of(rank, asked.what, options_.limit_seconds));
      return caller.error;
    }
    copy(asked);
    if (asked.end > caller.now) caller.now = asked.end;
    asked.active = false;
    changed_.notify_all();
    return {};
  }

  void work(int rank, double seconds) {
    const Lock lock(mutex_);
    rank_of(rank).now += seconds;
    changed_.notify_all();
  }

  double now(int rank) const {
    if (!simulated()) return steady_seconds();
    const Lock lock(mutex_);
    return rank_of(rank).now;
  }

  void leave(int rank) {
    const Lock lock(mutex_);
    rank_of(rank).state = State::left;
    release(rank_of(rank));
    changed_.notify_all();
  }

  /// Finds the other side of a message, the oldest if there are several.
  void meet(int rank, int ticket) {
    Ticket& entry = ticket_of(rank, ticket);
    Ticket* other = nullptr;
    std::size_t found = 0;
    Rank& peer = rank_of(entry.what.peer);
    for (std::size_t t = 0; t < peer.tickets.size(); ++t) {
      Ticket& theirs = peer.tickets[t];
      if (theirs.active && theirs.peer_ticket < 0 && theirs.what.peer == rank &&
          theirs.what.channel == entry.what.channel &&
          theirs.what.direction != entry.what.direction &&
          (other == nullptr || theirs.order < other->order)) {
        other = &theirs;
        found = t;
      }
    }
    if (other == nullptr) return;
    if (other->what.memory.size() != entry.what.memory.size()) {
      const bool sends = entry.what.direction == Direction::send;
      const GroupMessage &sent = sends ? entry.what : other->what,
                         &received = sends ? other->what : entry.what;
      const Error why =
          Error::say("rank ", received.peer, " sends ", sent.memory.size(), " bytes to rank ",
                     sent.peer, ", which wants ", received.memory.size());
      break_off(peer, why);
      return break_off(rank_of(rank), why);
    }
    entry.peer_ticket = static_cast<int>(found);
    other->peer_ticket = ticket;
    // A message ends once the bytes have arrived and both sides have begun.
    double end = entry.end > other->end ? entry.end : other->end;
    end = end > entry.begun ? end : entry.begun;
    end = end > other->begun ? end : other->begun;
    entry.end = other->end = end;
  }

  void copy(Ticket& ticket) {
    if (ticket.copied) return;
    Ticket& other = ticket_of(ticket.what.peer, ticket.peer_ticket);
    const bool sends = ticket.what.direction == Direction::send;
    const Bytes from = sends ? ticket.what.memory : other.what.memory;
    const Bytes to = sends ? other.what.memory : ticket.what.memory;
    std::memcpy(to.data(), from.data(), from.size());
    ticket.copied = other.copied = true;
  }

  bool gone(int rank) const {
    return rank_of(rank).state == State::left || static_cast<bool>(rank_of(rank).error);
  }

  /// Whether the result of a ticket's wait() is final.
  bool settled(const Rank& caller, const Ticket& ticket) const {
    return static_cast<bool>(caller.error) || ticket.peer_ticket >= 0 || gone(ticket.what.peer);
  }

  /// Whether an asking or waiting rank goes on without others.
  bool goes_on(const Rank& rank) const {
    const Ticket& ticket = rank.tickets[static_cast<std::size_t>(rank.ticket)];
    if (settled(rank, ticket)) return true;
    // A peer with a clock ahead of the rank's acts too late to count.
    return rank.state == State::asks && rank_of(ticket.what.peer).now > rank.now;
  }

  /// Holds a rank until the rank can go on. Returns -1, or the seconds after which the rank goes on without an answer,
  /// because no other rank can act before.
  double hold(Lock& lock, int rank) {
    const Rank& caller = rank_of(rank);
    for (;;) {
      if (goes_on(caller)) return -1;
      int next = -1;
      double at = 0;
      bool idle = true;
      for (int r = 0; r < size() && idle; ++r) {
        const Rank& other = rank_of(r);
        if (other.state == State::hangs || other.state == State::left) continue;
        idle = other.state != State::runs && !goes_on(other);
        const double until = other.now + (other.state == State::waits ? options_.limit_seconds : 0);
        if (next < 0 || until < at) next = r, at = until;
      }
      if (idle && next == rank) return at - caller.now;
      changed_.wait(lock);
    }
  }

  void meet_fate(Lock& lock, int rank) {
    Rank& caller = rank_of(rank);
    if (caller.fate == Fate::dies)
      return break_off(caller, Error::say("rank ", rank, " has died, as it was told to"));
    caller.state = State::hangs;
    changed_.notify_all();
    changed_.wait(lock, [&] {
      for (int r = 0; r < size(); ++r)
        if (rank_of(r).state != State::hangs && !gone(r)) return false;
      return true;
    });
    caller.state = State::runs;
    break_off(caller, Error::say("rank ", rank, " hung, as it was told to"));
  }

  void break_off(Rank& caller, const Error& why) {
    if (!caller.error) caller.error = why;
    release(caller);
    changed_.notify_all();
  }

  /// Messages that have met keep their bytes: the other side may still wait for them.
  void release(Rank& caller) {
    for (Ticket& ticket : caller.tickets) {
      if (!ticket.active) continue;
      if (ticket.peer_ticket >= 0) copy(ticket);
      ticket.active = false;
    }
  }

  static Error said(const Error& why) {
    return why ? Error::say(": ", why.text()) : Error::say(" before");
  }

  Options options_;
  std::vector<Rank> ranks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
};

/// Runs body(member) for every rank of `group`, each on a separate thread, and returns when all have.
template <class Body>
void run_ranks(ThreadGroup& group, const Body& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < group.size(); ++rank)
    threads.emplace_back([&group, &body, rank] {
      ThreadGroup::Member member(group, rank);
      body(member);
    });
  for (std::thread& thread : threads) thread.join();
}

}}  // namespace adacc::v0_1
