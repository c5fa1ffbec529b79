// SPDX-License-Identifier: MIT
/// Pipeline::save() and load(): one checkpoint (io/checkpoint.hpp) of the whole network.
///
/// The file is the same as that of one rank accumulating the same micro-batches, but has no plan: each
/// stage has a separate plan, and a resumed run makes new plans. So one rank goes on from a pipeline's
/// checkpoint, a pipeline from one rank's, and a pipeline of any other number of stages. Rank 0 alone
/// reads and writes the file. Parameters and state travel to and from rank 0, one tensor after the other:
/// no rank needs memory for more than the largest tensor beside its own stage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "../../core/extremes.hpp"
#include "../../io/checkpoint.hpp"
#include "../../train/save.hpp"
#include "../../train/saved_state.hpp"
#include "../collectives.hpp"
#include "pipeline.hpp"

namespace adacc { inline namespace v0_1 {

namespace detail {

/// A tensor of the checkpoint: a parameter with the padding behind, or a tensor of a parameter's
/// optimizer state.
struct SavedPiece {
  int rank = 0;               ///< the rank of the parameter's stage
  std::size_t parameter = 0;  ///< number of the parameter in the whole network
  std::size_t state = 0;      ///< 0: the parameter's values; i + 1: tensor i of the state
  std::size_t owner = 0;      ///< number of the parameter in the whole network's table
  std::size_t bytes = 0;
  Bytes here;  ///< the tensor's memory, on `rank` alone
};

}  // namespace detail

template <class T, class Context, class Optimizer>
template <class Visit>
Error Pipeline<T, Context, Optimizer>::each_piece(const Visit& visit) {
  const Graph& part = graph();
  const std::size_t first = part.first_parameter - whole_.first_parameter;
  const auto piece_of = [&](std::size_t p) {
    detail::SavedPiece piece;
    const int node = whole_.parameters[p].node;
    piece.rank = stages_ - 1;  // parameters of the loss
    for (int s = stages_; s-- > 0 && node >= 0;)
      if (node <= last_nodes_[static_cast<std::size_t>(s)]) piece.rank = s;
    piece.parameter = p;
    return piece;
  };
  for (std::size_t p = 0; p < whole_.parameters.size(); ++p) {
    if (!whole_.parameters[p].owner) continue;
    detail::SavedPiece piece = piece_of(p);
    piece.bytes = padded_elems(whole_.parameters[p].shape, whole_.scalar) * sizeof(Wide<T>);
    if (piece.rank == stage_)
      piece.here = {static_cast<std::byte*>(
                        static_cast<void*>(params().data() + part.parameters[p - first].offset)),
                    Shape(piece.bytes)};
    if (const Error why = visit(std::as_const(piece))) return why;
  }
  for (std::size_t s = 0; s < whole_table_.states(); ++s) {
    std::size_t own = 0;  // number in this stage's table
    for (std::size_t o = 0; o < whole_table_.owners(); ++o) {
      detail::SavedPiece piece = piece_of(whole_table_.owner(o));
      piece.state = s + 1;
      piece.owner = o;
      const StateSpec spec = detail::state_of(optimizer, s, whole_.parameters[piece.parameter]);
      piece.bytes = align_up(state_bytes(spec.form, spec.elems, wide(whole_.scalar)));
      if (piece.rank == stage_)
        piece.here = {updater_.state().data() + updater_.table().begin(s, own++),
                      Shape(piece.bytes)};
      if (piece.bytes == 0) continue;
      if (const Error why = visit(std::as_const(piece))) return why;
    }
  }
  return {};
}

template <class T, class Context, class Optimizer>
Result<typename Pipeline<T, Context, Optimizer>::Passage>
Pipeline<T, Context, Optimizer>::make_passage() {
  std::size_t largest = 0;
  static_cast<void>(each_piece([&](const detail::SavedPiece& piece) {
    detail::raise(largest, piece.bytes);
    return Error();
  }));
  if (!is_first()) return Passage();
  return Passage::make(largest, "a tensor of a checkpoint");
}

template <class T, class Context, class Optimizer>
Error Pipeline<T, Context, Optimizer>::save(const std::string& path, const std::string& notes) {
  if (broken_) return broken_;
  Result<Passage> passage = make_passage();
  if (const Error why = share_error(group_, passage.error)) return why;
  bool gathered = false;
  // If rank 0 cannot write, the tensors of other ranks are received all the same.
  const auto gather = [&](const auto& put) {
    gathered = true;
    Error failed;
    const Error why = each_piece([&](const detail::SavedPiece& piece) {
      const Bytes to = is_first() ? Bytes(passage->data(), Shape(piece.bytes)) : Bytes();
      const Error lost = transfer(group_, piece.here, piece.rank, to, 0);
      if (is_first() && !lost && !failed) failed = put(ConstBytes(to.data(), to.shape()));
      return lost;
    });
    if (why) return broken_ = why;
    return failed;
  };
  const auto nowhere = [](ConstBytes) { return Error(); };
  Error why;
  if (is_first()) {
    CheckpointInfo info = detail::checkpoint_info(whole_, whole_table_, model, data_position,
                                                  context_.key.seed, updates_);
    info.notes = notes;
    why = save_checkpoint_in_pieces<Wide<T>>(path, info, whole_.parameter_elems,
                                             whole_table_.bytes(), gather);
  }
  if (!gathered) static_cast<void>(gather(nowhere));
  if (broken_) return broken_;
  return share_error(group_, why);
}

template <class T, class Context, class Optimizer>
Error Pipeline<T, Context, Optimizer>::load(const std::string& path) {
  if (broken_) return broken_;
  if (!idle()) return under_way();
  if (const Error why = detail::meet_in_call(group_, Call::load, calls_)) return broken_ = why;
  Result<Passage> passage = make_passage();
  CheckpointFile file;
  detail::SavedState<Wide<T>> state;
  std::uint64_t counts[3] = {};
  const auto open = [&]() -> Error {
    Result<CheckpointFile> opened = CheckpointFile::open(path);
    if (!opened) return opened.error;
    file = std::move(*opened);
    const CheckpointInfo& saved = file.info();
    if (const Error why =
            file.examine(detail::checkpoint_info(whole_, whole_table_, model, 0, 0, 0)))
      return why;
    std::string text = saved.optimizer;
    const auto fail = [&](const Error& why) {
      return Error::say("checkpoint ", one_line(path, 100).c_str(), ": ", why.text());
    };
    // The norm is ignored: a pipeline clips by the norm of the present step.
    if (const Error why = detail::take_norm(text).error) return fail(why);
    auto block = detail::SavedState<Wide<T>>::make(text, saved.state_bytes, optimizer, whole_,
                                                   whole_table_, true);
    if (!block) return fail(block.error);
    state = std::move(*block);
    counts[0] = saved.updates;
    counts[1] = saved.data_position;
    counts[2] = saved.key.seed;
    return {};
  };
  Error why = passage.error;
  if (!why && is_first()) why = open();
  if ((why = share_error(group_, why))) return why;
  const Bytes told(reinterpret_cast<std::byte*>(counts), Shape(sizeof counts));
  if ((why = broadcast(group_, told))) return broken_ = why;

  Error failed;
  std::size_t at = 0;  // offset in the file's parameters
  const auto read = [&](const detail::SavedPiece& piece, std::byte* to) -> Error {
    if (piece.state == 0) {
      using W = Wide<T>;
      const std::size_t elems = piece.bytes / sizeof(W), from = at;
      at += elems;
      return file.read_parameters(from,
                                  View<W>(static_cast<W*>(static_cast<void*>(to)), Shape(elems)));
    }
    const Parameter& parameter = whole_.parameters[piece.parameter];
    const std::size_t s = piece.state - 1;
    std::memset(to, 0, piece.bytes);
    return state.read_piece(file, s, piece.owner, 0,
                            detail::state_of(optimizer, s, parameter).elems, to);
  };
  why = each_piece([&](const detail::SavedPiece& piece) {
    const Bytes from = is_first() ? Bytes(passage->data(), Shape(piece.bytes)) : Bytes();
    if (is_first() && !failed) failed = read(piece, from.data());
    return transfer(group_, from, 0, piece.here, piece.rank);
  });
  if (why) return broken_ = why;
  // A mix of two runs' numbers must not be trained.
  if ((why = share_error(group_, failed))) return broken_ = why;
  updates_ = counts[0];
  data_position = counts[1];
  context_.key.seed = counts[2];
  clear_ = false;
  turn_ = 0;
  return {};
}

}}  // namespace adacc::v0_1
