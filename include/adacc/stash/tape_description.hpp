// SPDX-License-Identifier: MIT
/// The kernels of a Tape (stash/tape.hpp) as described by the trainer, and the model of a stash that follows from them
/// for a batch of any size.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "../core/same_text.hpp"
#include "evolving_stash.hpp"
#include "tape_group.hpp"

namespace adacc { inline namespace v0_1 { namespace detail {

template <class T, class Context>
class TapeDescription {
 public:
  using Kernel = TapeKernel<T, Context>;
  using Entry = TapeEntry<T, Context>;
  using Group = TapeGroup<T, Context>;

  struct Activation {
    const char* name = "";
    Shape shape;  ///< with all items; empty: `count` bytes
    std::size_t count = 0;
    TapeType type = TapeType::own;
    typename TapeOutput<T, Context>::Codecs codecs;
    bool per_item = false;
    int kernel = none;
    int last_reader = none;  ///< the last reader in forward
    int readers = 0;         ///< kernels that read it in forward
    bool saved = false;      ///< for some backward
    bool gradient = false;
    bool may_have_gradient = false;  ///< has one if a later kernel reads it
    int carried = none;              ///< the gradient's number in the stash
    int stash = none;                ///< the number in the stash; none: a kernel overwrites it
    int overwritten = none;          ///< by this output of the next kernel
    void* value = nullptr;           ///< in forward

    bool is_raw() const { return shape.rank() == 0 || type != TapeType::own; }
  };

  /// The gradient of an activation: from the backward of kernel `first` to that of `last`, with a lower number.
  struct Gradient {
    int first = 0, last = 0;
    int activation = 0;
    bool begun = false;  ///< in this step
  };

  /// The tape with so many items in a batch, and the plan.
  struct Size {
    int items = 0;
    std::vector<TapeExtent> extents;  ///< by activation
    StashModel<T, Context> model;
    EvolvingStash<T, Context> stash;
  };

  static constexpr int none = -1;

  TapeDescription() = default;
  /// Messages number kernels and activations from `first` on.
  explicit TapeDescription(int first) : base_(first) {}
  TapeDescription(const TapeDescription&) = delete;  // groups know the address
  TapeDescription& operator=(const TapeDescription&) = delete;

  /// Kernels so far: they are numbered from 0 in the order of forward.
  int kernels() const { return static_cast<int>(entries_.size()); }
  /// The number of the kernel for activation `id`; -1 if there is no such activation.
  int kernel_of(int id) const { return known(id) ? activations_[at(id)].kernel : -1; }
  const char* name_of_kernel(int k) const { return entries_[at(k)]->call.name; }

  int shown_as(int number) const { return number + base_; }
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  bool known(int id) const { return id >= 0 && at(id) < activations_.size(); }

  /// Adds a kernel of `outputs`; the id of the first, -1 if there is none. The first mistake is kept.
  template <class Function>
  int add(const Kernel& call, std::size_t outputs, const Function& function) {
    static_assert(
        requires(const TapeCall<T>& k) { function(k); },
        "adacc: the callable of a kernel on a tape takes (const TapeCall<T>&)");
    const int first = static_cast<int>(activations_.size());
    const auto refuse = [&](const auto&... why) { refuse_kernel(kernels(), call.name, why...); };
    if (closed_) return refuse("is added after start()"), none;
    if (call.writes.size() != outputs && !(call.writes.empty() && outputs == 1))
      refuse("writes ", call.writes.size(), " activations, and kernel<", outputs,
             "> is to return the ids of ", outputs);
    auto callable = std::make_unique<TapeCallableOf<T, Function>>(function);
    auto entry = std::make_unique<Entry>();
    entry->call = call;
    entry->mark = callable->mark();
    entry->callable = std::move(callable);
    entry->first = first;
    describe_reads(*entry);
    for (std::size_t i = 0; i < call.writes.size(); ++i) describe_output(*entry, i);
    describe_saves(*entry);
    entries_.push_back(std::move(entry));
    return call.writes.empty() ? none : first;
  }

  template <class... Pieces>
  void refuse_kernel(int k, const char* name, const Pieces&... why) {
    if (!described_) described_ = Error::say("kernel ", shown_as(k), " (", name, ") ", why...);
  }

  void describe_reads(const Entry& entry) {
    const Kernel& call = entry.call;
    const auto refuse = [&](const auto&... why) { refuse_kernel(kernels(), call.name, why...); };
    if (call.writes.empty() && call.workspace_bytes > 0)
      refuse("writes nothing and has a workspace, which lies beside outputs");
    if (call.writes.empty() && call.reads.numbers().empty() && call.saves.empty() &&
        call.backward_bytes == 0)
      refuse("reads and writes nothing, nor does its backward");
    for (const int id : call.reads.numbers()) {
      if (!known(id)) {
        refuse("reads activation ", shown_as(id), ", which no kernel before it makes: they made ",
               activations_.size());
        continue;
      }
      Activation& read = activations_[at(id)];
      if (read.last_reader != kernels()) ++read.readers;
      read.last_reader = kernels();
    }
  }

  void describe_output(Entry& entry, std::size_t i) {
    const Kernel& call = entry.call;
    const TapeOutput<T, Context>& output = call.writes[i];
    const auto refuse = [&](const auto&... why) {
      refuse_kernel(kernels(), call.name, "writes ", output.described.name, ", ", why...);
    };
    Activation activation;
    activation.name = output.described.name;
    activation.kernel = kernels();
    activation.shape = output.described.shape;
    activation.count = output.described.bytes.count;
    activation.codecs = output.described.codecs;
    activation.per_item = has(output.options, TapeOutputs::per_item);
    activation.gradient = has(output.options, TapeOutputs::gradient);
    if (!detail::same_text(name_of(output.type), name_of(dtype_of<T>)))
      activation.type = output.type;
    entry.begins_as.push_back(none);
    if (const int input = output.in_place_of; input >= 0) {
      const Array<int>& reads = call.reads.numbers();
      for (std::size_t r = reads.size(); r-- > 0;)
        if (reads[r] == input) entry.begins_as[i] = static_cast<int>(r);
      if (entry.begins_as[i] < 0 || !known(input))
        return refuse("which takes the place of activation ", shown_as(input),
                      ", and the kernel does not read that one");
      for (std::size_t other = 0; other < i; ++other)
        if (call.writes[other].in_place_of == input)
          refuse("which takes the place of ", activations_[at(input)].name, ", as ",
                 call.writes[other].described.name, " does");
      if (has(output.options, TapeOutputs::zeroed))
        refuse("which is zeroed, and begins as ", activations_[at(input)].name);
      const Activation& from = activations_[at(input)];
      activation.shape = from.shape;
      activation.count = from.count;
      activation.type = from.type;
      activation.per_item = from.per_item;
    }
    const bool bytes = activation.shape.rank() == 0 || activation.type == TapeType::bytes;
    const char* const type = bytes                              ? "bytes"
                             : activation.type == TapeType::own ? name_of(dtype_of<T>)
                                                                : name_of(activation.type);
    if (activation.is_raw() && !activation.codecs.empty())
      refuse("of ", type, ", and codecs of this tape encode ", name_of(dtype_of<T>), " alone");
    const bool real = !bytes && activation.type != TapeType::i32;
    activation.may_have_gradient = call.gradients && real;
    if (activation.gradient && !real)
      refuse("of ", type, ", and a gradient is asked for: gradients are of real numbers");
    activations_.push_back(activation);
  }

  void describe_saves(Entry& entry) {
    for (const StashRead& read : entry.call.saves) {
      int id = read.id;
      if (read.name != nullptr || read.output >= 0) {
        const int output = output_number(
            read, entry.call.writes,
            [](const TapeOutput<T, Context>& written) { return written.described.name; });
        if (output >= 0) id = entry.output(static_cast<std::size_t>(output));
        else if (read.name == nullptr)
          refuse_kernel(kernels(), entry.call.name, "has no output ", read.output, ": it writes ",
                        entry.call.writes.size());
        else
          refuse_kernel(kernels(), entry.call.name, "has ",
                        output == -1 ? "no output" : "several outputs", " called ", read.name,
                        ", which its backward is to read");
      } else if (id < 0 || id >= entry.first) {
        refuse_kernel(kernels(), entry.call.name, "saves activation ", shown_as(id),
                      ", which no kernel before it makes: they made ", entry.first,
                      ", and its own outputs are saved by name");
        id = none;
      }
      if (!known(id)) continue;
      activations_[at(id)].saved = true;
      entry.saves.push_back(id);
    }
  }

  /// Ends the description: gradients go from the last reader of an activation to the maker, and neighbours in place
  /// become groups. Batches have `items`, or less.
  Error end_description(int items) {
    if (described_) return described_;
    if (activations_.empty())
      return Error::say("the tape has ", kernels(),
                        " kernels, and none of them writes an activation: "
                        "describe them by kernel() before start()");
    if (!closed_) {
      for (std::size_t id = 0; id < activations_.size(); ++id) {
        Activation& activation = activations_[id];
        if (activation.may_have_gradient && activation.last_reader >= 0) activation.gradient = true;
        if (!activation.gradient) continue;
        if (activation.last_reader < 0)
          return described_ = Error::say(
                     "output ", activation.name, " of kernel ", shown_as(activation.kernel), " (",
                     name_of_kernel(activation.kernel),
                     ") asks for a gradient, and no kernel reads it: none flows there");
        activation.carried = static_cast<int>(carried_.size());
        carried_.push_back(
            {activation.last_reader, activation.kernel, static_cast<int>(id), false});
      }
      make_groups();
    }
    closed_ = true;
    items_ = items;
    return {};
  }

  /// Whether output i of kernel k can take the very memory of its input: nobody else wants that one.
  bool overwrites(int k, std::size_t i) const {
    const Entry& entry = *entries_[at(k)];
    if (entry.begins_as[i] < 0) return false;
    const Activation& input = activations_[at(entry.call.writes[i].in_place_of)];
    return input.kernel == k - 1 && input.readers == 1 && !input.saved;
  }

  void make_groups() {
    for (int k = 0; k < kernels(); ++k) {
      Entry& entry = *entries_[at(k)];
      bool joins = false;
      for (std::size_t i = 0; i < entry.call.writes.size(); ++i)
        if (overwrites(k, i)) {
          activations_[at(entry.call.writes[i].in_place_of)].overwritten = entry.output(i);
          joins = true;
        }
      if (!joins) {
        groups_.push_back(std::make_unique<Group>());
        groups_.back()->now = &now_;
        groups_.back()->first = k;
      }
      groups_.back()->last = k;
      entry.group = groups_.size() - 1;
    }
    int stash_id = 0;
    for (const auto& group : groups_) {
      for (int k = group->first; k <= group->last; ++k)
        for (std::size_t i = 0; i < entries_[at(k)]->call.writes.size(); ++i) {
          const int id = entries_[at(k)]->output(i);
          if (activations_[at(id)].overwritten >= 0) continue;
          activations_[at(id)].stash = stash_id++;
          group->writes.push_back(id);
        }
      for (int k = group->first; k <= group->last; ++k) wire(*group, k);
    }
  }

  void wire(Group& group, int k) {
    const Entry& entry = *entries_[at(k)];
    const auto output_of = [&](int id) {
      const int last = kept_as(id);
      std::size_t i = 0;
      while (group.writes[i] != last) ++i;
      return static_cast<int>(i);
    };
    typename Group::Member member{&entry, {}, {}};
    for (const int id : entry.call.reads.numbers()) {
      if (activations_[at(id)].kernel >= group.first) {
        member.inputs.push_back(-1 - output_of(id));
        continue;
      }
      std::size_t i = 0;
      while (i < group.reads.size() && group.reads[i] != id) ++i;
      if (i == group.reads.size()) group.reads.push_back(id);
      member.inputs.push_back(static_cast<int>(i));
    }
    for (std::size_t i = 0; i < entry.call.writes.size(); ++i)
      member.outputs.push_back(output_of(entry.output(i)));
    group.in.reserve(member.inputs.size());
    group.out.reserve(member.outputs.size());
    group.members.push_back(std::move(member));
  }

  /// The activation with the memory of `id`: the last one of those that overwrite each other.
  int kept_as(int id) const {
    while (activations_[at(id)].overwritten >= 0) id = activations_[at(id)].overwritten;
    return id;
  }

  /// The model of the tape with `items` in a batch.
  Result<std::unique_ptr<Size>> describe(int items) {
    auto size = std::make_unique<Size>();
    size->items = items;
    std::vector<Shape> shapes;
    for (const Activation& activation : activations_) {
      Shape shape = activation.shape;
      std::size_t first = shape.rank() == 0 ? activation.count : shape[0];
      if (activation.per_item) {
        const auto refuse = [&](const auto&... why) {
          return Error::misuse("output ", activation.name, " of kernel ",
                               shown_as(activation.kernel), " (", name_of_kernel(activation.kernel),
                               ") is per item, and ", why...);
        };
        if (items_ < 1) return refuse("start() was not told the items of a batch");
        if (first % static_cast<std::size_t>(items_) != 0)
          return refuse("its ", first, " rows are no multiple of the batch's ", items_, " items");
        first = first / static_cast<std::size_t>(items_) * static_cast<std::size_t>(items);
      }
      if (shape.rank() > 0) shape = shape.with_first(first);
      shapes.push_back(shape);
      const std::size_t each =
          activation.type == TapeType::own ? sizeof(T) : bytes_of(activation.type);
      const std::size_t bytes = shape.rank() == 0 ? first : shape.elems() * each;
      size->extents.push_back({activation.is_raw() ? Shape(bytes / sizeof(T)) : shape, bytes});
    }
    for (const auto& watched : watched_) size->model.watch(watched.name, watched.memory);
    for (const auto& group : groups_) describe(*size, shapes, *group);
    for (const Gradient& gradient : carried_) {
      const auto id = at(gradient.activation);
      const TapeExtent& extent = size->extents[id];
      if (activations_[id].is_raw())
        size->model.carry(activations_[id].name, StashBytes{extent.bytes}, gradient.first,
                          gradient.last);
      else size->model.carry(activations_[id].name, extent.view, gradient.first, gradient.last);
    }
    return static_cast<std::unique_ptr<Size>&&>(size);  // nvcc would copy it
  }

  void describe(Size& size, const std::vector<Shape>& shapes, const Group& group) const {
    using Said = StashKernel<StashModel<T, Context>>;
    const auto backward_of = [&](int k) {
      const Entry& entry = *entries_[at(k)];
      return Said{.name = entry.call.name, .stage = k, .backward_bytes = entry.call.backward_bytes};
    };
    Said said = backward_of(group.last);
    said.hold = true;
    for (const int id : group.reads) said.reads.push_back(activations_[at(id)].stash);
    for (const int id : group.writes) {
      const Activation& activation = activations_[at(id)];
      StashOutput<StashModel<T, Context>> output(activation.name, shapes[at(id)],
                                                 activation.codecs);
      if (activation.shape.rank() == 0) output.bytes = {size.extents[at(id)].bytes};
      if (activation.type != TapeType::own) output.elem_bytes = bytes_of(activation.type);
      said.writes.push_back(output);
    }
    const int first = group.writes.empty() ? none : activations_[at(group.writes[0])].stash;
    for (const int id : entries_[at(group.last)]->saves) {
      const int stash = activations_[at(id)].stash;
      said.backward_reads.push_back(
          first >= 0 && stash >= first ? StashRead::nth_output(stash - first) : StashRead(stash));
    }
    StashRecompute<T> how{&group, &Group::again};
    for (const typename Group::Member& member : group.members) {
      const Kernel& call = member.kernel->call;
      if (call.workspace_bytes > said.needs.workspace_bytes)
        said.needs.workspace_bytes = call.workspace_bytes;
      how.mark = how.mark * 1099511628211ULL + member.kernel->mark;
      if (call.once) how.call = nullptr;
    }
    if (group.writes.empty()) how.call = nullptr;
    size.model.kernel_by(said, how);
    for (int k = group.first; k < group.last; ++k) {  // they have backwards of their own
      Said backward = backward_of(k);
      for (const int id : entries_[at(k)]->saves)
        backward.backward_reads.push_back(activations_[at(id)].stash);
      static_cast<void>(size.model.kernel(backward));
    }
  }

  int base_ = 0;  ///< the number of the first kernel, and of the first activation, in messages
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<Activation> activations_;
  std::vector<Gradient> carried_;
  std::vector<typename StashModel<T, Context>::Watched> watched_;
  std::vector<std::unique_ptr<Group>> groups_;
  int items_ = 0;    ///< in a whole batch; 0: unknown
  Error described_;  ///< the first mistake in a description
  bool closed_ = false;
  TapeNow<Context> now_;
};

}}}  // namespace adacc::v0_1::detail
