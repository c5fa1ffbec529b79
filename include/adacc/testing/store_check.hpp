// SPDX-License-Identifier: MIT
/// Tests a store's contract: written bytes come back, whatever else is under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../core/block.hpp"
#include "../core/random.hpp"
#include "../store/store.hpp"

namespace adacc { inline namespace v0_1 { namespace testing {

struct StoreCheckOptions {
  int transfers = 400;
  int tickets = 6;  ///< most transfers under way at once
  std::uint64_t seed = 1;
};

namespace detail {

class StoreCheck {
 public:
  StoreCheck(StoreRef store, const StoreCheckOptions& options)
      : store_(store), options_(options), unit_(store.alignment()) {}

  Error run() {
    if (unit_ < alignment || (unit_ & (unit_ - 1)) != 0)
      return Error::say("the store's alignment is ", unit_, "; it must be a power of 2, at least ",
                        alignment);
    const std::size_t tickets = static_cast<std::size_t>(options_.tickets);
    places_ = store_.bytes() / unit_;
    if (places_ < tickets)
      return Error::say("the store has room for ", shown(store_.bytes()),
                        "; this check wants at least ", shown(tickets * unit_));
    most_ = places_ / tickets < 64 ? places_ / tickets : 64;
    const std::size_t bytes = tickets * most_ * unit_;
    auto memory = Block<std::byte>::make(bytes, "the check of the store", unit_);
    if (!memory) return memory.error;
    memory_ = static_cast<Block<std::byte>&&>(*memory);
    if (Error why = store_.prepare(options_.tickets, memory_.view())) return why;
    shadow_.assign(most_ * tickets * unit_, std::byte{0});
    known_.assign(tickets, 0);
    for (int i = 0; i < options_.transfers; ++i)
      if (Error why = turn(i)) return why;
    for (int ticket = 0; ticket < options_.tickets; ++ticket)
      if (Error why = end(ticket)) return why;
    return {};
  }

 private:
  struct Ticket {
    bool under_way = false;
    StoreTransfer what;
  };

  std::size_t draw(std::size_t below) {
    RandomKey key;
    key.seed = options_.seed;
    return random_word(key, drawn_++) % below;
  }

  /// Each ticket has a place of its own, in memory and in the store: transfers of different tickets may end in any
  /// order.
  Error turn(int i) {
    const auto ticket = static_cast<int>(draw(static_cast<std::size_t>(options_.tickets)));
    if (Error why = end(ticket)) return why;
    const auto t = static_cast<std::size_t>(ticket);
    const bool write = known_[t] == 0 || draw(2) == 0;
    const std::size_t size = write ? (1 + draw(most_)) * unit_ : known_[t];
    std::byte* const memory = memory_.data() + t * most_ * unit_;
    for (std::size_t b = 0; b < size; ++b)
      memory[b] = write ? static_cast<std::byte>((b * 131 + static_cast<std::size_t>(i) * 29) >> 3)
                        : std::byte{0xEE};
    Ticket& transfer = tickets_[t];
    transfer.under_way = true;
    transfer.what = {write ? StoreTransfer::Direction::write : StoreTransfer::Direction::read,
                     t * most_ * unit_, Bytes(memory, Shape(size))};
    if (write) {
      std::memcpy(shadow_.data() + t * most_ * unit_, memory, size);
      known_[t] = size;
    }
    store_.begin(ticket, transfer.what);
    return {};
  }

  Error end(int ticket) {
    const auto t = static_cast<std::size_t>(ticket);
    Ticket& transfer = tickets_[t];
    if (!transfer.under_way) return {};
    transfer.under_way = false;
    static_cast<void>(store_.done(ticket));  // either answer is right
    if (Error why = store_.wait(ticket)) return why;
    if (!store_.done(ticket))
      return Error::say("done(", ticket, ") is false behind wait(", ticket, ")");
    if (transfer.what.direction == StoreTransfer::Direction::write) {
      std::memset(transfer.what.memory.data(), 0xDD, transfer.what.memory.size());  // ours again
      return {};
    }
    const Bytes memory = transfer.what.memory;
    for (std::size_t b = 0; b < memory.size(); ++b)
      if (memory[b] != shadow_[transfer.what.offset + b])
        return Error::say("byte ", b, " of ", memory.size(), " read back from offset ",
                          transfer.what.offset, " is not the one that was written");
    return {};
  }

  StoreRef store_;
  StoreCheckOptions options_;
  std::size_t unit_;
  std::size_t places_ = 0, most_ = 0;
  Block<std::byte> memory_;
  std::vector<std::byte> shadow_;   ///< contents the store should have
  std::vector<std::size_t> known_;  ///< by ticket: bytes written
  std::vector<Ticket> tickets_ = std::vector<Ticket>(static_cast<std::size_t>(options_.tickets));
  std::uint64_t drawn_ = 0;
};

}  // namespace detail

/// No error if `store` keeps its contract through some hundred random transfers with several under way at once. The
/// store is used for nothing else meanwhile; its contents are lost.
inline Error check_store(StoreRef store, const StoreCheckOptions& options = {}) {
  return detail::StoreCheck(store, options).run();
}

}}}  // namespace adacc::v0_1::testing
