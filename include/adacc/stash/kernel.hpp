// SPDX-License-Identifier: MIT
/// The description of one call of a kernel by a trainer written by hand: reads and writes of forward,
/// reads of backward, and needs. Readers of an activation follow from the descriptions of all
/// kernels, so nobody lists them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "../core/array.hpp"
#include "../core/bytes.hpp"
#include "../core/same_text.hpp"
#include "../core/view.hpp"

namespace adacc { inline namespace v0_1 {

/// A list of ids or stages: {1, 2}, or {first, count}.
class StashList {
 public:
  constexpr StashList() = default;
  constexpr StashList(const int* first, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) numbers_.push_back(first[i]);
  }
  constexpr StashList(std::initializer_list<int> list) : StashList(list.begin(), list.size()) {}

  constexpr void push_back(int number) { numbers_.push_back(number); }

  constexpr const Array<int>& numbers() const { return numbers_; }

 private:
  Array<int> numbers_;
};

/// The needs of a recomputation.
struct RecomputeNeeds {
  /// Scratch memory of the callable, 64-byte aligned, passed as the last argument.
  std::size_t workspace_bytes = 0;
  // For estimated_profile() alone; measure_stash() takes times.
  double operations = 0;   ///< multiplications and additions, each counted
  double moved_bytes = 0;  ///< read and written; 0: the bytes of sources and outputs

  friend constexpr bool operator==(const RecomputeNeeds&, const RecomputeNeeds&) = default;
};

/// How activations are produced again: by a callable of somebody else.
template <class T>
struct StashRecompute {
  const void* function = nullptr;
  void (*call)(const void* function, const View<const T>* sources, const View<T>* outputs,
               Bytes workspace) = nullptr;
  /// Tell kinds of callables apart if they share `call`.
  void (*kind)() = nullptr;
  std::uint64_t mark = 0;
};

/// An activation read by the backward of a kernel: by id, or by name for an output of the kernel
/// itself, before there is an id.
struct StashRead {
  int id = -1;
  const char* name = nullptr;  ///< an output of the kernel
  int output = -1;             ///< the number among outputs, if told by number

  constexpr StashRead() = default;
  constexpr StashRead(int of) : id(of) {}
  constexpr StashRead(const char* of) : name(of) {}
  static constexpr StashRead nth_output(int i) {
    StashRead read;
    read.output = i;
    return read;
  }
};

/// A codec as part of a description: stash_codec<Int8Outlier>(), or with a gradient error, as in
/// StashModel::allow().
template <class Codec>
struct StashCodecError {
  double error = 0;
  bool known = false;
};
template <class Codec>
constexpr StashCodecError<Codec> stash_codec() {
  return {};
}
template <class Codec>
constexpr StashCodecError<Codec> stash_codec(double error) {
  return {error, true};
}

/// A StashCodecError of any codec, for a model of type `Model`.
template <class Model>
struct StashCodec {
  void (*allow)(Model& model, int id, const StashCodec& self) = nullptr;
  double error = 0;
  bool known = false;

  constexpr StashCodec() = default;
  template <class Codec>
  constexpr StashCodec(const StashCodecError<Codec>& of)
      : allow([](Model& model, int id, const StashCodec& self) {
          if (self.known) model.template allow<Codec>(id, self.error);
          else model.template allow<Codec>(id);
        }),
        error(of.error), known(of.known) {}
};

/// A list of any length.
template <class Entry>
class StashListOf {
 public:
  constexpr StashListOf() = default;
  constexpr StashListOf(std::initializer_list<Entry> list) {
    for (const Entry& entry : list) push_back(entry);
  }
  constexpr void push_back(const Entry& entry) { entries_.push_back(entry); }

  constexpr std::size_t size() const { return entries_.size(); }
  constexpr bool empty() const { return entries_.empty(); }
  constexpr const Entry& operator[](std::size_t i) const { return entries_[i]; }
  constexpr const Entry* begin() const { return entries_.begin(); }
  constexpr const Entry* end() const { return entries_.end(); }

 private:
  Array<Entry> entries_;
};

/// The activations read by the backward of a kernel: {id, "name", ...}, or a list of ids.
class StashReads : public StashListOf<StashRead> {
 public:
  constexpr StashReads() = default;
  constexpr StashReads(std::initializer_list<StashRead> list) : StashListOf(list) {}
  constexpr StashReads(const StashList& ids) {
    for (const int id : ids.numbers()) push_back(id);
  }
};

/// Instead of a shape: bytes of anything, such as masks or indices, which no codec takes.
struct StashBytes {
  std::size_t count = 0;
};

/// The number of the output `read` among `outputs` of the names name(output); -1 if there is none, -2 if there are
/// several.
template <class Outputs, class Name>
constexpr int output_number(const StashRead& read, const Outputs& outputs, const Name& name) {
  const int count = static_cast<int>(outputs.size());
  if (read.name == nullptr) return read.output < count ? read.output : -1;
  int found = -1;
  for (int i = 0; i < count; ++i)
    if (detail::same_text(name(outputs[static_cast<std::size_t>(i)]), read.name))
      found = found == -1 ? i : -2;
  return found;
}

/// An activation made by a kernel. A class with constructors: g++ 12 cannot compile defaults of an
/// aggregate of these members.
template <class Model>
struct StashOutput {
  const char* name = "";  ///< must outlive everything made of the model
  Shape shape;
  StashBytes bytes;            ///< none: there is a shape
  std::size_t elem_bytes = 0;  ///< elements of another type than T, which no codec takes; 0: T
  StashListOf<StashCodec<Model>> codecs;

  constexpr StashOutput() = default;
  /// Elements of T, to be kept encoded by a codec of `by`.
  constexpr StashOutput(const char* of, Shape has, const StashListOf<StashCodec<Model>>& by = {})
      : name(of), shape(has), codecs(by) {}
  constexpr StashOutput(const char* of, StashBytes has) : name(of), bytes(has) {}
};

/// One call of a kernel.
template <class Model>
struct StashKernel {
  static constexpr int own_stage = -1;

  const char* name = "";  ///< in errors; must outlive everything made of the model
  StashList reads = {};   ///< ids of activations read by forward
  StashListOf<StashOutput<Model>> writes = {};  ///< outputs, in the callable's order
  StashReads backward_reads = {};  ///< activations read by backward, these or any other
  /// The backward stage with the kernel's backward: shared by all kernels that take their pointers at
  /// once. By default a new stage, above the stages of all kernels before.
  int stage = own_stage;
  /// Gradients and scratch of backward in the arena; the bytes of a stage's kernels are added up.
  std::size_t backward_bytes = 0;
  RecomputeNeeds needs = {};  ///< the callable's
  bool hold = false;          ///< forward's values of the outputs lie in the arena
};

namespace detail {

/// The ids of `count` outputs from `first` on: one id, or an array of several.
template <std::size_t count>
constexpr auto ids_from(int first) {
  if constexpr (count == 1) {
    return first;
  } else {
    std::array<int, count> ids{};
    for (std::size_t i = 0; i < count; ++i) ids[i] = first + static_cast<int>(i);
    return ids;
  }
}

}  // namespace detail

}}  // namespace adacc::v0_1
