// SPDX-License-Identifier: MIT
/// An optimizer's state in a store, read ahead of each update and written behind it.
///
/// What is in memory is a window of a few slots. While one turn is updated in its slot, those before
/// it are on their way out and those behind it on their way in, as far as there are slots; the first
/// turns of the next update are read as soon as the last ones of this one have left. A read into a
/// slot waits for the write out of it, so a slow store makes updates longer, and changes neither bits
/// nor bytes.
///
/// Whatever fails is final: an update may then have been made of some parameters and not of others,
/// and state may be lost. Everything that follows is the same error, until write() has brought all of
/// the state anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "../core/block.hpp"
#include "../core/error.hpp"
#include "../store/store.hpp"
#include "moment_turns.hpp"

namespace adacc { inline namespace v0_1 {

/// A store for an optimizer's state, which is then in memory by turns. Nobody else uses it.
struct MomentStore {
  StoreRef store{};       ///< none: the state is in memory. It outlives the training
  MomentWindow window{};  ///< memory that the state passes through
};

namespace detail {

class StoredMoments {
 public:
  StoredMoments(const StoredMoments&) = delete;
  StoredMoments& operator=(const StoredMoments&) = delete;
  ~StoredMoments() { finish(); }

  /// All state is zero. What the store holds does not matter.
  static Result<std::unique_ptr<StoredMoments>> make(MomentTurns turns, const StoreRef& store) {
    if (store.bytes() < turns.store_bytes())
      return Error::say("the optimizer's state takes ", shown(turns.store_bytes()),
                        " of a store, which has room for ", shown(store.bytes()));
    if (store.alignment() > transfer_alignment || transfer_alignment % store.alignment() != 0)
      return Error::say("the store wants transfers aligned to ", store.alignment(),
                        " bytes; the optimizer's state is aligned to ", transfer_alignment);
    auto window = Block<std::byte>::make(turns.window_bytes(),
                                         "the window of the optimizer's state", huge_page);
    if (!window) return window.error;
    if (const Error why = store.prepare(static_cast<int>(turns.slot_count()), window->view()))
      return why;
    return std::unique_ptr<StoredMoments>(
        new StoredMoments(std::move(turns), store, std::move(*window)));
  }

  const MomentTurns& turns() const { return turns_; }
  /// Why nothing can go on; none if it can.
  const Error& failure() const { return failure_; }

  /// update(piece, state) of each piece of the turns [first, last): with its number, and where its turn
  /// is in memory. Neither allocates nor throws if `update` does not.
  template <class Update>
  Error run(std::size_t first, std::size_t last, const Update& update) {
    for (std::size_t t = first; t < last; ++t) {
      std::byte* const state = open(t);
      if (failure_) return failure_;
      for (std::size_t p = turns_.turns()[t].first; p < turns_.turns()[t].last; ++p)
        update(p, state);
      close(t);
    }
    return failure_;
  }

  /// put(ConstBytes) of all state, in the order of the block that UpdateTable lays out; its first error,
  /// or the store's.
  template <class Put>
  Error read(const Put& put) {
    rewind(0);
    for (const MomentTurns::Part& part : turns_.parts()) {
      if (failure_) return failure_;
      // Offsets in the store are whole units, and so is the turn's end.
      const std::size_t begin = part.at / unit * unit;
      const std::size_t bytes = div_up(part.at + part.bytes, unit) * unit - begin;
      const Bytes to(window_.data(), Shape(bytes));
      if (written_[part.turn]) {
        begin_transfer(0, StoreTransfer::Direction::read, turns_.turns()[part.turn].offset + begin,
                       to);
        wait(0);
        if (failure_) return failure_;
      } else {
        std::memset(to.data(), 0, bytes);
      }
      if (const Error why = put(ConstBytes(to.data() + (part.at - begin), Shape(part.bytes))))
        return why;
    }
    return {};
  }

  /// fill(piece, state) of each piece, as in run(): all state anew, from zeros. After an error of `fill`,
  /// or of the store, none of it is worth anything.
  template <class Fill>
  Error write(const Fill& fill) {
    finish();
    failure_ = {};
    next_ = begun_ = 0;
    for (std::size_t t = 0; t < turns_.turns().size(); ++t) {
      const std::size_t k = t % turns_.slot_count();
      wait(k);
      std::byte* const state = slot(k);
      std::memset(state, 0, turns_.slot_bytes());
      for (std::size_t p = turns_.turns()[t].first; p < turns_.turns()[t].last && !failure_; ++p)
        if (const Error why = fill(p, state)) fail(why);
      if (failure_) return finish(), failure_;
      begin_turn(t, k, StoreTransfer::Direction::write);
      written_[t] = true;
    }
    finish();
    return failure_;
  }

 private:
  static constexpr std::size_t unit = transfer_alignment;

  StoredMoments(MomentTurns turns, const StoreRef& store, Block<std::byte> window)
      : turns_(std::move(turns)), store_(store), window_(std::move(window)) {
    written_.resize(turns_.turns().size());
    under_way_.resize(turns_.slot_count());
  }

  std::byte* slot(std::size_t k) { return window_.data() + k * turns_.slot_bytes(); }

  void fail(const Error& why) {
    if (!failure_)
      failure_ = Error::say("the optimizer's state is lost: ", why.text(),
                            "; training can go on from a checkpoint (load())");
  }

  void begin_transfer(std::size_t k, StoreTransfer::Direction direction, std::size_t offset,
                      Bytes memory) {
    under_way_[k] = true;
    store_.begin(static_cast<int>(k), {direction, offset, memory});
  }
  void begin_turn(std::size_t t, std::size_t k, StoreTransfer::Direction direction) {
    const MomentTurns::Turn& turn = turns_.turns()[t];
    if (turn.bytes != 0)
      begin_transfer(k, direction, turn.offset, Bytes(slot(k), Shape(turn.bytes)));
  }
  /// For what is under way in slot k.
  void wait(std::size_t k) {
    if (!under_way_[k]) return;
    under_way_[k] = false;
    if (const Error why = store_.wait(static_cast<int>(k))) fail(why);
  }
  void finish() {
    for (std::size_t k = 0; k < under_way_.size(); ++k) wait(k);
  }

  // Turns are counted through all updates: number n is of turn n % turns, in slot n % slots. There are
  // no more slots than turns, so what is read was written by a transfer that an earlier read, or this
  // one, has waited for.

  void begin_read() {
    const std::size_t t = static_cast<std::size_t>(begun_ % turns_.turns().size());
    const std::size_t k = static_cast<std::size_t>(begun_ % turns_.slot_count());
    ++begun_;
    wait(k);
    if (written_[t]) begin_turn(t, k, StoreTransfer::Direction::read);
    else std::memset(slot(k), 0, turns_.turns()[t].bytes);
  }

  /// Where turn t is in memory, in its turn or out of it.
  std::byte* open(std::size_t t) {
    if (next_ % turns_.turns().size() != t) rewind(t);
    if (failure_) return nullptr;
    if (begun_ == next_) begin_read();
    const std::size_t k = static_cast<std::size_t>(next_ % turns_.slot_count());
    wait(k);
    return slot(k);
  }

  void close(std::size_t t) {
    begin_turn(t, static_cast<std::size_t>(next_ % turns_.slot_count()),
               StoreTransfer::Direction::write);
    written_[t] = true;
    ++next_;
    while (!failure_ && begun_ < next_ + turns_.slot_count()) {
      const std::size_t k = static_cast<std::size_t>(begun_ % turns_.slot_count());
      if (under_way_[k] && !store_.done(static_cast<int>(k))) return;
      begin_read();
    }
  }

  /// Turn t comes next: what was read ahead of others is given up.
  void rewind(std::size_t t) {
    finish();
    next_ = begun_ = t;
  }

  MomentTurns turns_;
  StoreRef store_;
  Block<std::byte> window_;
  Array<bool> written_;                 ///< by turn; one that was not is zero
  Array<bool> under_way_;               ///< by slot
  std::uint64_t next_ = 0, begun_ = 0;  ///< turns that were updated, and whose reads began
  Error failure_;
};

}  // namespace detail

}}  // namespace adacc::v0_1
