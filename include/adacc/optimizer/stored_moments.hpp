// SPDX-License-Identifier: MIT
/// An optimizer's state in a store, read ahead of each update and written afterwards.
///
/// Memory holds a window of a few slots. While one turn is updated in its slot, earlier turns are being written and
/// later ones read, as far as there are slots; the first turns of the next update are read as soon as the last ones
/// of this update have left. A read into a slot waits for the write out of it, so a slow store makes updates longer,
/// and changes neither bits nor bytes.
///
/// Every failure is final: an update may have changed some parameters and not others, and state may be lost. All
/// later calls return the same error, until write() has replaced the whole state.
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

/// A store for an optimizer's state, which is then in memory by turns. No other user may share the store.
struct MomentStore {
  StoreRef store{};       ///< none: the state is in memory. Must outlive the training
  MomentWindow window{};  ///< memory for the passing state
};

namespace detail {

class StoredMoments {
 public:
  StoredMoments(const StoredMoments&) = delete;
  StoredMoments& operator=(const StoredMoments&) = delete;
  ~StoredMoments() { finish(); }

  /// A state of zeros. Earlier contents of the store do not matter.
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
  /// The final error, if there is one.
  const Error& failure() const { return failure_; }

  /// Calls update(piece, state) for each piece of the turns [first, last), with the piece's number and the turn's
  /// place in memory. Neither allocates nor throws if `update` does not.
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

  /// Calls put(ConstBytes) for the whole state, in the order of UpdateTable's block; returns the first error of `put`
  /// or the store.
  template <class Put>
  Error read(const Put& put) {
    rewind(0);
    for (const MomentTurns::Part& part : turns_.parts()) {
      if (failure_) return failure_;
      // Offsets in the store are whole units, as is the end of the turn.
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

  /// Calls fill(piece, state) for each piece, as in run(), to replace the whole state, starting from zeros. After an
  /// error of `fill` or the store, the state is useless.
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
  /// Waits for the transfer under way in slot k.
  void wait(std::size_t k) {
    if (!under_way_[k]) return;
    under_way_[k] = false;
    if (const Error why = store_.wait(static_cast<int>(k))) fail(why);
  }
  void finish() {
    for (std::size_t k = 0; k < under_way_.size(); ++k) wait(k);
  }

  // Turns are counted through all updates: number n is turn n % turns, in slot n % slots. There are no more slots
  // than turns, so a turn that is read was written by a transfer that this read, or an earlier one, has waited for.

  void begin_read() {
    const std::size_t t = static_cast<std::size_t>(begun_ % turns_.turns().size());
    const std::size_t k = static_cast<std::size_t>(begun_ % turns_.slot_count());
    ++begun_;
    wait(k);
    if (written_[t]) begin_turn(t, k, StoreTransfer::Direction::read);
    else std::memset(slot(k), 0, turns_.turns()[t].bytes);
  }

  /// The place of turn t in memory, in order or out of order.
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

  /// Turn t comes next: drops other turns that were read ahead.
  void rewind(std::size_t t) {
    finish();
    next_ = begun_ = t;
  }

  MomentTurns turns_;
  StoreRef store_;
  Block<std::byte> window_;
  Array<bool> written_;                 ///< by turn; a turn never written is zero
  Array<bool> under_way_;               ///< by slot
  std::uint64_t next_ = 0, begun_ = 0;  ///< turns updated so far, and reads begun so far
  Error failure_;
};

}  // namespace detail

}}  // namespace adacc::v0_1
