// SPDX-License-Identifier: MIT
/// An optimizer's state as a checkpoint has it, taken into the forms that a training keeps it in.
///
/// Moments that were saved in another form are converted, rounded to the nearest: from full to 8 bits
/// to save memory from now on, and back. Saved and kept in the same forms, they are read as they are.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "../core/array.hpp"
#include "../core/block.hpp"
#include "../core/error.hpp"
#include "update_table.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class T>
class SavedState {
 public:
  /// Of `bytes` bytes that `text` describes (UpdateTable::text, or a name alone: all as it is), for
  /// the state that `mine` lays out. An error says why they cannot be converted.
  template <class Optimizer, class Table>
  static Result<SavedState> make(const std::string& text, std::size_t bytes,
                                 const Optimizer& optimizer, const Table& table,
                                 const UpdateTable& mine) {
    SavedState saved;
    if (text == mine.text()) return saved;
    saved.converts_ = true;
    const auto other = [&] {
      return Error::say("it keeps another state: \"", in_a_line(text).c_str(),
                        "\"; this optimizer keeps \"", in_a_line(mine.text()).c_str(), "\"");
    };
    std::size_t line = text.find('\n'), end = 0;
    const bool named = line != std::string::npos;
    for (std::size_t s = 0; s < mine.states(); ++s) {
      StateForm form = StateForm::full;
      StateSpec spec;
      for (std::size_t o = 0; o < mine.owners(); ++o) {
        spec = state_of(optimizer, s, table[mine.owner(o)]);
        if (o == 0 && named) {
          if (line == std::string::npos) return other();
          const std::string start = std::string("\n") + spec.name + ": ";
          if (text.compare(line, start.size(), start) != 0) return other();
          const std::string name = text.substr(line + start.size(), 5);
          if (name == "full ") form = StateForm::full;
          else if (name == "bf16 ") form = StateForm::bf16;
          else if (name == "int8 ") form = StateForm::int8;
          else return other();
          line = text.find('\n', line + 1);
        }
        saved.parts_.push_back(
            {end, mine.begin(s, o), spec.elems, form, spec.form, spec.non_negative});
        end += align_up(state_bytes(form, spec.elems, dtype_of<T>));
      }
    }
    if (end != bytes || (named && line != std::string::npos)) return other();
    Result<Block<std::byte>> memory = Block<std::byte>::make(bytes, "the saved state");
    if (!memory) return memory.error;
    saved.memory_ = std::move(*memory);
    return saved;
  }

  /// Where the checkpoint is to be read to, if this is not `target` itself; then convert().
  Bytes memory(Bytes target) { return converts_ ? memory_.view() : target; }

  void convert(Bytes target) {
    for (const Part& part : parts_) {
      std::byte *const from = memory_.data() + part.from, *const to = target.data() + part.to;
      if (part.non_negative) convert_state<true, T>(part.saved, from, part.kept, to, part.elems);
      else convert_state<false, T>(part.saved, from, part.kept, to, part.elems);
    }
  }

 private:
  struct Part {
    std::size_t from, to, elems;
    StateForm saved, kept;
    bool non_negative;
  };

  static std::string in_a_line(std::string text) {
    for (char& c : text)
      if (c == '\n') c = ';';
    return text.size() > 160 ? text.substr(0, 160) + "..." : text;
  }

  bool converts_ = false;
  Array<Part> parts_;
  Block<std::byte> memory_;
};

}}}  // namespace adacc::v0_1::detail
