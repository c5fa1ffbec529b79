// SPDX-License-Identifier: MIT
/// The group contract: how ranks that train together reach one another.
///
/// The library brings no transport. The caller lends a group, an object with
///
///     int   rank() const;         // number of this rank, 0 <= rank < size, constant
///     int   size() const;         // ranks of the group, at least 1, constant
///     Error prepare(int tickets);
///     void  begin(int ticket, GroupMessage what);
///     bool  done(int ticket);     // const or not
///     Error wait(int ticket);
///
/// A group only moves bytes from one rank to another. The library builds sums, broadcasts and reductions
/// on a group (collectives.hpp, data_parallel/rank_sums.hpp). So adapters are short, and sums have the same
/// bits over every transport: no transport's own reduction promises an order.
///
/// prepare() belongs to set-up, may take time and memory, and announces the use of tickets 0 to
/// tickets - 1. No message is under way during prepare(). All other functions belong to the step, and
/// neither allocate nor throw.
///
/// begin() starts a message under `ticket` and returns at once. Until wait() for that ticket has
/// returned, a send may read lent memory, and the memory of a receive may hold anything. A send meets the
/// receive of the same size begun by the peer, for this rank and on the same channel: the first send
/// the first receive, the second the second, and so on. Messages on different channels, or between different
/// ranks, may end in any order, and none waits for another: two ranks that first send to each other
/// and then receive do not hang. But a send need not end before its receive has begun.
///
/// done() says whether wait() would return at once. Some groups move messages only when asked, so a
/// computing rank calls done() now and then. wait() returns once the message has ended; the ticket is then
/// free for another.
///
/// Errors. A group chooses a limit, in seconds: a wait() that lasts longer is an
/// error, and so no rank hangs because another has died, hangs, or makes other calls. An error is
/// final. This rank's group is then broken: begin() does nothing, done() is true and wait() returns
/// the first error, which names the peer, at once. So no other rank meets this rank again, and the groups
/// of others break, too, each within its limit. Received bytes are worth nothing, and lent memory
/// is the caller's again. To go on, the remaining ranks make a new group and resume the run
/// from its checkpoint.
///
/// One thread at a time uses a group object, for one purpose. If two things run in the same ranks (a
/// pipeline, and data parallel training across pipelines), each is lent a separate group.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../core/error.hpp"
#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 {

/// One message between this rank and a peer.
struct GroupMessage {
  enum class Direction : std::uint8_t { send, receive };
  Direction direction = Direction::send;
  int peer = 0;     ///< another rank of the group
  int channel = 0;  ///< 0 <= channel < 32768
  Bytes memory;     ///< at least 1 byte; a send only reads
  /// For groups that reach the memory of devices: the queue of work (a cudaStream_t) behind which the message begins,
  /// as far as work is queued by then. Null: the group's own. Other groups ignore `behind`.
  const void* behind = nullptr;
};

/// A reference to the caller's group; by default there is none.
class GroupRef {
 public:
  constexpr GroupRef() = default;

  template <class Group>
    requires(!std::is_same_v<std::remove_const_t<Group>, GroupRef>)
  GroupRef(Group& group)  // implicit: a parameter type
      : object_(&group), calls_(&calls_of<Group>) {}

  constexpr explicit operator bool() const { return object_ != nullptr; }

  /// Without a group this is the only rank.
  int rank() const { return object_ == nullptr ? 0 : calls_->rank(object_); }
  int size() const { return object_ == nullptr ? 1 : calls_->size(object_); }
  Error prepare(int tickets) const {
    return object_ == nullptr ? Error{} : calls_->prepare(object_, tickets);
  }
  void begin(int ticket, const GroupMessage& what) const { calls_->begin(object_, ticket, what); }
  bool done(int ticket) const { return calls_->done(object_, ticket); }
  Error wait(int ticket) const { return calls_->wait(object_, ticket); }

  /// begin() of a send, and of a receive.
  void send(int ticket, int peer, int channel, Bytes memory, const void* behind = nullptr) const {
    begin(ticket, {GroupMessage::Direction::send, peer, channel, memory, behind});
  }
  void receive(int ticket, int peer, int channel, Bytes memory,
               const void* behind = nullptr) const {
    begin(ticket, {GroupMessage::Direction::receive, peer, channel, memory, behind});
  }

 private:
  struct Calls {
    int (*rank)(const void*);
    int (*size)(const void*);
    Error (*prepare)(void*, int);
    void (*begin)(void*, int, const GroupMessage&);
    bool (*done)(void*, int);
    Error (*wait)(void*, int);
  };
  template <class Group>
  static constexpr Calls calls_of{
      [](const void* group) -> int { return static_cast<const Group*>(group)->rank(); },
      [](const void* group) -> int { return static_cast<const Group*>(group)->size(); },
      [](void* group, int tickets) -> Error {
        return static_cast<Group*>(group)->prepare(tickets);
      },
      [](void* group, int ticket, const GroupMessage& what) {
        static_cast<Group*>(group)->begin(ticket, what);
      },
      [](void* group, int ticket) -> bool { return static_cast<Group*>(group)->done(ticket); },
      [](void* group, int ticket) -> Error { return static_cast<Group*>(group)->wait(ticket); }};

  void* object_ = nullptr;
  const Calls* calls_ = nullptr;
};

}}  // namespace adacc::v0_1
