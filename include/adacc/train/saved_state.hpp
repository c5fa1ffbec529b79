// SPDX-License-Identifier: MIT
/// An optimizer's state in a checkpoint, converted to the forms of a training.
///
/// Moments saved in another form are converted, rounded to the nearest: from full to 8 bits
/// to save memory from now on, and back. Moments saved in the training's own forms are read as is.
/// Moments of parameters that are no longer trained are dropped; newly trained parameters start at zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "../core/array.hpp"
#include "../core/block.hpp"
#include "../core/error.hpp"
#include "../io/checkpoint.hpp"
#include "../model/graph.hpp"
#include "../optimizer/moment_turns.hpp"
#include "../optimizer/update_table.hpp"
#include "file_order.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

inline constexpr char trained_line[] = "\ntrained: ";

/// A checkpoint's description of the state in `table`: UpdateTable::text() and, unless all
/// parameters are trained, the numbers of trained ones, counted among parameters that own storage:
/// "trained: 2-5 9".
inline std::string state_text(const UpdateTable& table, const Graph& graph) {
  std::string numbers;
  std::size_t owner = 0, first = 0;
  bool all = true, open = false;
  const auto close = [&] {
    if (open && owner - first > 1) numbers += '-' + std::to_string(owner - 1);
    open = false;
  };
  for (const Parameter& parameter : graph.parameters) {
    if (!parameter.owner) continue;
    if (parameter.frozen) {
      all = false;
      close();
    } else if (!open) {
      open = true;
      first = owner;
      numbers += (numbers.empty() ? "" : " ") + std::to_string(owner);
    }
    ++owner;
  }
  close();
  return all || numbers.empty() ? table.text() : table.text() + trained_line + numbers;
}

/// The fields of a checkpoint of any training of `graph`, with the optimizer's state in `table`.
inline CheckpointInfo checkpoint_info(const Graph& graph, const UpdateTable& table,
                                      const std::string& model, std::uint64_t data_position,
                                      std::uint64_t seed, std::uint64_t updates) {
  CheckpointInfo info;
  info.model = model;
  info.optimizer = state_text(table, graph);
  info.updates = updates;
  info.data_position = data_position;
  info.key.seed = seed;
  info.key.step = static_cast<std::uint32_t>(updates);
  info.layout = layout_of(graph);
  info.graph = graph.fingerprint;
  info.scalar = wide(graph.scalar);
  info.parameter_elems = graph.parameter_elems;
  info.state_bytes = table.bytes();
  return info;
}

template <class T>
class SavedState {
 public:
  /// Prepares to convert `bytes` bytes of saved state to the state in `mine`, of the trained parameters of
  /// `graph`. An error says why the state cannot be converted.
  /// `text`: describes the saved state (state_text(), or a name alone: all as is).
  /// `in_pieces`: the state is read by read_piece().
  template <class Optimizer>
  static Result<SavedState> make(const std::string& text, std::size_t bytes,
                                 const Optimizer& optimizer, const Graph& graph,
                                 const UpdateTable& table, bool in_pieces = false) {
    SavedState saved;
    saved.owners_ = table.owners();
    const std::string my_text = state_text(table, graph);
    if (text == my_text) {
      for (std::size_t s = 0; s < table.states() && in_pieces; ++s)
        for (std::size_t o = 0; o < table.owners(); ++o) {
          const std::size_t at = table.begin(s, o);
          const StateSpec spec = state_of(optimizer, s, graph.parameters[table.owner(o)]);
          saved.parts_.push_back(
              {at, at, spec.elems, spec.form, spec.form, spec.non_negative, true});
        }
      return static_cast<SavedState&&>(saved);  // nvcc would copy it
    }
    saved.converts_ = true;
    const auto other = [&] {
      return Error::say("it keeps another state: \"", in_a_line(text).c_str(),
                        "\"; this optimizer keeps \"", in_a_line(my_text).c_str(), "\"");
    };
    Array<std::size_t> owners;  // entries of graph.parameters
    for (std::size_t p = 0; p < graph.parameters.size(); ++p)
      if (graph.parameters[p].owner) owners.push_back(p);
    // Parameters whose state was saved.
    const std::size_t list = text.find(trained_line);
    Array<bool> was_trained;
    for (std::size_t o = 0; o < owners.size(); ++o)
      was_trained.push_back(list == std::string::npos);
    if (list != std::string::npos &&
        !read_numbers(text, list + std::string(trained_line).size(), was_trained))
      return other();

    std::size_t line = text.find('\n'), end = 0;
    const bool named = line != list;
    for (std::size_t s = 0; s < table.states(); ++s) {
      StateForm form = StateForm::full;
      std::size_t trained = 0;
      for (std::size_t o = 0; o < owners.size(); ++o) {
        const Parameter& parameter = graph.parameters[owners[o]];
        const StateSpec spec = state_of(optimizer, s, parameter);
        if (o == 0 && named) {
          if (line == list) return other();
          const std::string start = std::string("\n") + spec.name + ": ";
          if (text.compare(line, start.size(), start) != 0) return other();
          const std::string name = text.substr(line + start.size(), 5);
          if (name == "full ") form = StateForm::full;
          else if (name == "bf16 ") form = StateForm::bf16;
          else if (name == "int8 ") form = StateForm::int8;
          else return other();
          line = text.find('\n', line + 1);
        }
        if (!parameter.frozen)
          saved.parts_.push_back({end, table.begin(s, trained), spec.elems, form, spec.form,
                                  spec.non_negative, was_trained[o]});
        if (was_trained[o]) end += align_up(state_bytes(form, spec.elems, dtype_of<T>));
        trained += parameter.frozen ? 0U : 1U;
      }
    }
    if (end != bytes || (named && line != list)) return other();
    if (in_pieces) return static_cast<SavedState&&>(saved);
    Result<Block<std::byte>> memory = Block<std::byte>::make(bytes, "the saved state");
    if (!memory) return memory.error;
    saved.memory_ = std::move(*memory);
    return static_cast<SavedState&&>(saved);
  }

  /// Memory to read the checkpoint into: `target`, or a block of its own; then call convert().
  Bytes memory(Bytes target) { return converts_ ? memory_.view() : target; }

  /// Converts to `target`. State of parameters not trained before starts at zero.
  void convert(Bytes target) {
    if (converts_) std::memset(target.data(), 0, target.size());
    for (const Part& part : parts_)
      if (part.known)
        convert(part, memory_.data() + part.from, target.data() + part.to, part.elems);
  }

  /// Reads numbers [begin, begin + elems) of tensor s of the table's o-th parameter with state,
  /// into zeros at `to`, as a tensor of their own.
  Error read_piece(CheckpointFile& file, std::size_t s, std::size_t o, std::size_t begin,
                   std::size_t elems, std::byte* to) {
    const Part& part = parts_[s * owners_ + o];
    if (!part.known || elems == 0) return {};
    const bool same = part.saved == part.kept;
    if (!same) {
      const std::size_t bytes = align_up(state_bytes(part.saved, elems, dtype_of<T>));
      if (memory_.size() < bytes) {
        auto memory = Block<std::byte>::make(bytes, "a piece of the saved state");
        if (!memory) return memory.error;
        memory_ = std::move(*memory);
      }
    }
    std::byte* const read_to = same ? to : memory_.data();
    Error failed;
    MomentTurns::each_run({"", part.elems, part.saved}, begin, elems, dtype_of<T>,
                          [&](std::size_t at, std::size_t in_tensor, std::size_t bytes) {
                            if (failed) return;
                            failed = file.read_state(part.from + in_tensor,
                                                     Bytes(read_to + at, Shape(bytes)));
                          });
    if (!failed && !same) convert(part, read_to, to, elems);
    return failed;
  }

 private:
  struct Part {
    std::size_t from, to, elems;
    StateForm saved, kept;
    bool non_negative;
    bool known;  ///< the parameter was trained before
  };

  static void convert(const Part& part, std::byte* from, std::byte* to, std::size_t elems) {
    if (part.non_negative) convert_state<true, T>(part.saved, from, part.kept, to, elems);
    else convert_state<false, T>(part.saved, from, part.kept, to, elems);
  }

  /// Reads numbers such as "2-5 9" up to the end of a line, and sets them in `chosen`. False if malformed.
  static bool read_numbers(const std::string& text, std::size_t at, Array<bool>& chosen) {
    const auto number = [&](std::size_t& n) {
      const std::size_t start = at;
      for (n = 0; at < text.size() && text[at] >= '0' && text[at] <= '9' && n < chosen.size(); ++at)
        n = 10 * n + static_cast<std::size_t>(text[at] - '0');
      return at > start && n < chosen.size();
    };
    for (;;) {
      std::size_t first = 0;
      if (!number(first)) return false;
      std::size_t last = first;
      if (at < text.size() && text[at] == '-' && (++at, !number(last))) return false;
      for (std::size_t i = first; i <= last; ++i) chosen[i] = true;
      if (at == text.size() || text[at] == '\n') return true;
      if (text[at++] != ' ') return false;
    }
  }

  static std::string in_a_line(std::string text) {
    for (char& c : text)
      if (c == '\n') c = ';';
    return text.size() > 160 ? text.substr(0, 160) + "..." : text;
  }

  bool converts_ = false;
  std::size_t owners_ = 0;
  Array<Part> parts_;  ///< by trained parameter, tensor after tensor; none: read as is
  Block<std::byte> memory_;
};

}}}  // namespace adacc::v0_1::detail
