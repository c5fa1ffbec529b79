// SPDX-License-Identifier: MIT
/// Tests a group's contract: every rank calls the check, and sent messages arrive, in order, on every channel and
/// between every two ranks, whatever else is under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../core/random.hpp"
#include "../ranks/group.hpp"

namespace adacc { inline namespace v0_1 { namespace testing {

struct GroupCheckOptions {
  int rounds = 12;
  int messages = 3;  ///< on each channel to each peer, in a round
  int channels = 3;
  std::size_t most_bytes = 200000;  ///< the largest message
  std::uint64_t seed = 1;           ///< one for all ranks
};

namespace detail {

class GroupCheck {
 public:
  GroupCheck(GroupRef group, const GroupCheckOptions& options) : group_(group), options_(options) {}

  Error run() {
    if (group_.rank() < 0 || group_.rank() >= group_.size())
      return Error::say("the group's rank is ", group_.rank(), " of ", group_.size());
    if (group_.size() == 1) return group_.prepare(0);
    const int all = 2 * (group_.size() - 1) * options_.channels * options_.messages;
    if (const Error why = group_.prepare(all)) return why;
    messages_.resize(static_cast<std::size_t>(all));
    for (int round = 0; round < options_.rounds; ++round)
      if (const Error why = turn(round)) return why;
    return {};
  }

 private:
  struct Message {
    int peer = 0, channel = 0, number = 0;
    bool sends = false, under_way = false;
    std::uint32_t start = 0;  ///< its bytes follow from this
    std::vector<std::byte> memory;
  };

  std::uint32_t draw(int round, int from, int to, int channel, int number,
                     std::uint32_t what) const {
    RandomKey key;
    key.seed = options_.seed;
    key.step = static_cast<std::uint32_t>(round);
    key.activation = static_cast<std::uint32_t>(from * group_.size() + to);
    return random_word(
        key, (static_cast<std::uint64_t>(channel) * 1000 + static_cast<std::uint64_t>(number)) * 4 +
                 what);
  }

  /// Everybody sends to everybody on every channel. Each rank begins messages in an order of its own, but for messages
  /// that differ in their number alone, and waits for them in another.
  Error turn(int round) {
    std::size_t next = 0;
    for (int number = 0; number < options_.messages; ++number)
      for (int c = 0; c < options_.channels; ++c)
        for (int p = 1; p < group_.size(); ++p)
          for (int side = 0; side < 2; ++side) {
            const int channel = (c + group_.rank()) % options_.channels;
            const int others = group_.size() - 1;
            const int peer = (group_.rank() + 1 + (p + round) % others) % group_.size();
            const bool sends = (side + round + group_.rank()) % 2 == 0;
            begin(next++, round, peer, channel, number, sends);
          }
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      // The first message waited for is not the first begun; 7919 is prime.
      const std::size_t m = (i * 7919 + static_cast<std::size_t>(round)) % messages_.size();
      if (const Error why = end(m)) return why;
    }
    for (std::size_t m = 0; m < messages_.size(); ++m)
      if (const Error why = end(m)) return why;
    return {};
  }

  void begin(std::size_t m, int round, int peer, int channel, int number, bool sends) {
    Message& message = messages_[m];
    const int from = sends ? group_.rank() : peer, to = sends ? peer : group_.rank();
    const std::size_t size = 1 + draw(round, from, to, channel, number, 0) % options_.most_bytes;
    message = {peer, channel, number, sends, true, draw(round, from, to, channel, number, 1), {}};
    message.memory.resize(size, std::byte{0xEE});
    for (std::size_t b = 0; b < size && sends; ++b) message.memory[b] = byte(message, b);
    const int ticket = static_cast<int>(m);
    const Bytes memory(message.memory.data(), Shape(size));
    if (sends) group_.send(ticket, peer, channel, memory);
    else group_.receive(ticket, peer, channel, memory);
  }

  static std::byte byte(const Message& message, std::size_t b) {
    return static_cast<std::byte>((message.start + b * 131) >> (b % 5));
  }

  Error end(std::size_t m) {
    Message& message = messages_[m];
    if (!message.under_way) return {};
    message.under_way = false;
    const int ticket = static_cast<int>(m);
    static_cast<void>(group_.done(ticket));  // either answer is right
    if (const Error why = group_.wait(ticket)) return why;
    if (!group_.done(ticket)) return Error::say("done(", ticket, ") is false behind its wait()");
    if (message.sends) {
      message.memory.assign(message.memory.size(), std::byte{0xDD});  // ours again
      return {};
    }
    for (std::size_t b = 0; b < message.memory.size(); ++b)
      if (message.memory[b] != byte(message, b))
        return Error::say("byte ", b, " of ", message.memory.size(), " of message ", message.number,
                          " from rank ", message.peer, " to rank ", group_.rank(), " on channel ",
                          message.channel, " is not the one that was sent");
    return {};
  }

  GroupRef group_;
  GroupCheckOptions options_;
  std::vector<Message> messages_;
};

}  // namespace detail

/// No error if `group` keeps its contract while nothing fails. The group is used for nothing else meanwhile, and all
/// its ranks call this with the same options.
inline Error check_group(GroupRef group, const GroupCheckOptions& options = {}) {
  return detail::GroupCheck(group, options).run();
}

}}}  // namespace adacc::v0_1::testing
