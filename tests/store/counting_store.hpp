// SPDX-License-Identifier: MIT
/// A MemoryStore that knows which transfers were begun and not waited for.
#pragma once

#include <doctest/doctest.h>

#include <adacc/store/memory_store.hpp>

#include <vector>

namespace sample {

/// What nobody waits for would touch memory that its owner believes to have back.
class CountingStore : public adacc::MemoryStore {
 public:
  using MemoryStore::MemoryStore;

  adacc::Error prepare(int tickets, adacc::Bytes memory) {
    CHECK(under_way() == 0);  // the contract
    open_.assign(static_cast<std::size_t>(tickets), false);
    return MemoryStore::prepare(tickets, memory);
  }
  void begin(int ticket, const adacc::StoreTransfer& what) {
    open_[static_cast<std::size_t>(ticket)] = true;
    MemoryStore::begin(ticket, what);
  }
  adacc::Error wait(int ticket) {
    open_[static_cast<std::size_t>(ticket)] = false;
    return MemoryStore::wait(ticket);
  }

  int under_way() const {
    int count = 0;
    for (const bool open : open_) count += open;
    return count;
  }

 private:
  std::vector<bool> open_;  ///< by ticket
};

}  // namespace sample
