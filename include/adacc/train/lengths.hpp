// SPDX-License-Identifier: MIT
/// Sequences as they come: a Training on inputs of any length up to a largest one.
///
///     auto training = Training<>::make(net, Lengths{.largest = Shape(4, 512), .multiples_of = 64},
///                                      {.budget_bytes = 20 * MiB});
///     training->step(x, y, 1e-3);   // x and y of shape (4, t), with any t from 1 to 512
///
/// There is a plan for each length class. The largest class is planned by make(), other classes at their first batch,
/// or in advance. All have one budget, one arena as large as the largest of their plans, and one block of parameters,
/// gradients and moments. A change of class binds another program in this arena, and allocates nothing. Where a plan is
/// new, or has changed, the arena may be exchanged for another one within the budget.
///
/// A batch as long as its class has the bits of a Training of this fixed shape. A shorter batch is filled up: with
/// ignored targets, with KernelCall::lengths cut to the batch's own, and, if documents are packed, with
/// padding as a document of its own. Then
///   - losses are means over the batch's own targets, and padding has no gradient. Under lossless plans the loss has
///     the bits of the unpadded batch if rows of activations are multiples of 64 bytes; gradients are sums over the
///     same rows, added up in other groups, and equal but for rounding;
///   - layers with random numbers have others, since elements of later sequences have other indices;
///   - codecs see padding as rows of the tensor.
/// Micro-batches of one update may differ in length, and weigh by their counted targets.
///
/// Each plan evolves by observations of its own steps. Checkpoints have all plans. evaluate(), infer(), accumulate()
/// and slices take any length, too. plan(), peak_bytes() and evolution() are those of the class used last.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../io/plan_text.hpp"
#include "make.hpp"
#include "padded_batch.hpp"

namespace adacc { inline namespace v0_1 {

/// The lengths of a training's inputs, and their classes: either multiples or powers.
struct Lengths {
  Shape largest;                 ///< of an input, such as (batch, time)
  std::size_t multiples_of = 0;  ///< classes are the multiples of this length, and the largest
  std::size_t powers_from = 0;   ///< classes are this length, twice, four times it, and the largest
  int axis = 1;             ///< the length is this extent of the input: 1, or 0 for rows of a batch
  bool in_advance = false;  ///< make() plans all classes

  std::size_t longest() const { return largest[axis]; }

  /// The least class with room for `length`, at most the longest.
  std::size_t class_of(std::size_t length) const {
    std::size_t room = powers_from;
    if (multiples_of != 0) room = (length + multiples_of - 1) / multiples_of * multiples_of;
    else
      while (room < length && room < longest()) room *= 2;
    return room < longest() ? room : longest();
  }

  Error examine() const {
    if ((axis != 0 && axis != 1) || axis >= largest.rank() || largest.elems() == 0)
      return Error::misuse(
          "lengths are extent 1 of an input, or 0, of a largest shape such as (batch, "
          "time); got extent ",
          axis, " of ", largest);
    if ((multiples_of == 0) == (powers_from == 0))
      return Error::misuse(
          "length classes are the multiples of a length (multiples_of), or its powers "
          "(powers_from): set one of them");
    const std::size_t least = multiples_of + powers_from;
    if (least > longest())
      return Error::misuse("the least length class, ", least, ", is above the largest length, ",
                           longest());
    return {};
  }
};

namespace detail {

/// A plan, a compiled step and passes for each length class of a training.
template <class T, class Context, class Optimizer>
class LengthPlans final : public PlanKeeper<Training<T, Context, Optimizer>> {
 public:
  using Owner = Training<T, Context, Optimizer>;
  using Options = TrainingOptions<Context, Optimizer>;
  using Plans = EvolvingPlan<T, Context, Optimizer>;

  template <class Network>
  LengthPlans(const Network& network, const Lengths& lengths, const Options& options)
      : lengths_(lengths), options_(options), network_(&network), graph_(&graph_of<Network>) {
    options_.planning.profile = {};  // of the largest class alone
  }

  /// Finds, in the graph of the largest class, all parts that depend on the length, and takes memory for padding.
  Error examine(const Graph& largest) {
    const std::size_t longest = lengths_.longest();
    std::size_t other = lengths_.class_of(1);
    if (other == longest) other = longest - 1;
    if (other == 0) return Error::misuse("a largest length of 1 leaves no other length");
    const Result<Graph> shorter = graph_(network_, input_shape(other), options_);
    if (!shorter) return of_class(other, shorter.error);
    const bool has_loss = largest.has_loss;
    for (const Node& node : largest.nodes)
      if (lengths_.axis == 1 && !node.takes_padding && mixing_ == nullptr) mixing_ = node.name;
    outputs_follow_ = follows(shorter->output(), other, largest.output());
    targets_follow_ = has_loss && follows(shorter->loss.targets, other, largest.loss.targets);
    loss_pads_ = !has_loss || !outputs_follow_ || (targets_follow_ && largest.loss.classes != 0);
    Result<PaddedBatch> batch =
        PaddedBatch::make(lengths_.largest, largest.input_dtype,
                          targets_follow_ ? largest.loss.targets : Shape(), lengths_.axis);
    if (!batch) return batch.error;
    batch_ = std::move(*batch);
    return {};
  }

  /// Takes over a training of the largest class.
  Error take_over(Owner& training) {
    auto entry = std::make_unique<Entry>();
    entry->length = lengths_.longest();
    entry->plan.reset(static_cast<Plans*>(training.keeper_.release()));
    current_ = entry.get();
    entries_.push_back(std::move(entry));
    if (!lengths_.in_advance) return {};
    for (std::size_t length = 1; length < lengths_.longest();) {
      const std::size_t next = lengths_.class_of(length);
      if (const Error why = run_class(training, next)) return why;
      length = next + 1;
    }
    return run_class(training, lengths_.longest());
  }

  Result<Shape> fit(Owner& training, AnyView& input, AnyView& targets) override {
    release(training);
    if (const Error why = check_input(training, input)) return why;
    const std::size_t length = input.shape()[lengths_.axis];
    if (const Error why = run_class(training, lengths_.class_of(length))) return why;
    const Graph& graph = training.step_.graph();
    const Shape whole = input_shape(current_->length), given = targets.shape();
    const Shape output = with_length(graph.output(), outputs_follow_, length);
    if (training.batches_ == 0) {
      all_targets_ = with_length(graph.loss.targets, targets_follow_, length).elems();
      first_class_ = current_->length;
      mixed_ = false;
    }
    mixed_ = mixed_ || current_->length != first_class_;
    divide(training);
    if (length == current_->length) return output;
    if (const Error why = check_padding(given.rank() != 0)) return why;
    if (given.rank() != 0 && targets_follow_) {
      const Shape taken = with_length(graph.loss.targets, true, length);
      if (targets.dtype() != Dtype::i32 || !(given == taken))
        return Error::misuse("the loss takes targets of ", name_of(Dtype::i32), " ", taken,
                             ", and got ", name_of(targets.dtype()), " ", given);
    }
    if (const Error why = batch_.lend(training.context_, input.shape(), whole)) {
      release(training);
      return why;
    }
    input = batch_.pad_input(input, whole);
    if (given.rank() != 0 && targets_follow_)
      targets = batch_.pad_targets(targets, graph.loss.targets);
    return output;
  }

  void release(Owner& training) override { batch_.release(training.context_); }
  std::size_t held_bytes() const override { return batch_.bytes(); }

  Error before(Owner& training, PlanBoundary& boundary, AnyView input, AnyView targets) override {
    const std::size_t length = current_->length;
    if (has_budget_)
      if (const Error why = follow_budget(training, boundary)) return why;
    if (const Error why = run_class(training, length)) return why;
    updating_ = current_;
    if (const Error why = current_->plan->before(training, boundary, input, targets)) return why;
    divide(training);
    return {};
  }
  Error prepare(Owner& training, PlanBoundary& boundary, AnyView input, AnyView targets) override {
    return current_->plan->prepare(training, boundary, input, targets);
  }
  void after(Owner& training, double seconds) override {
    if (current_ == updating_) current_->plan->after(training, mixed_ ? 0 : seconds);
    updating_ = nullptr;
  }
  Evolution& evolution() override { return current_->plan->evolution(); }
  ClockRef clock() const override { return current_->plan->clock(); }

  void want_budget(std::size_t bytes) override {
    budget_ = bytes;
    has_budget_ = true;
  }

  const Step<T, Context>& saved_step(const Owner& training) const override {
    return current_ == &largest() ? training.step_ : largest().step;
  }
  Error run_saved_step(Owner& training) override { return run_class(training, lengths_.longest()); }

  /// A title; and for each class a line, its length and the bytes of its plan and evolution, and these two.
  std::string text() const override {
    std::string all(lengths_title);
    all += '\n';
    for (const std::unique_ptr<Entry>& entry : entries_) {
      const Evolution& evolution = entry->plan->evolution();
      const std::string plan = plan_text(evolution.graph(), evolution.plan());
      const std::string evolved = entry->plan->text();
      all.append(std::to_string(entry->length)).append(" ").append(std::to_string(plan.size()));
      all.append(" ").append(std::to_string(evolved.size())).append("\n").append(plan);
      all += evolved;
    }
    return all;
  }

  /// `training` runs the largest class. A text without a title comes from a training of one shape, the largest.
  Error restore(Owner& training, Plan plan, const std::string& text) override {
    if (text.compare(0, lengths_title.size(), lengths_title) != 0)
      return current_->plan->restore(training, std::move(plan), text);
    std::vector<SavedClass> saved;
    if (const Error why = read_classes(text, saved)) return why;
    for (SavedClass& one : saved) {
      if (lengths_.class_of(one.length) != one.length) continue;
      if (const Error why = run_class(training, one.length)) return why;
      const Graph& graph = evolution().graph();
      Array<const CodecInfo*> codecs;
      for (const auto& codec : training.step_.dispatch().codecs) codecs.push_back(codec.info);
      Result<Plan> its = parse_plan(one.plan, graph, codecs, graph.fingerprint);
      if (!its) return of_class(one.length, its.error);
      if (const Error why = current_->plan->restore(training, std::move(*its), one.evolved))
        return of_class(one.length, why);
    }
    if (const Error why = run_class(training, lengths_.longest())) return why;
    drop_above(evolution().wanted_budget_bytes());
    return {};
  }

 private:
  /// A length class. The running class has lent `step`, `passes` and `watched` to the training.
  struct Entry {
    std::size_t length = 0;
    std::unique_ptr<Plans> plan;
    Step<T, Context> step;
    ForwardPasses<T, Context> passes;
    typename TrainingMemory<Context>::template Block<std::byte> watched;
  };
  struct SavedClass {
    std::size_t length = 0;
    std::string plan, evolved;
  };
  using Entries = std::vector<std::unique_ptr<Entry>>;

  template <class Network>
  static Result<Graph> graph_of(const void* network, Shape input, const Options& options) {
    Result<Graph> graph = make_graph<Context>(*static_cast<const Network*>(network), input,
                                              graph_options(options, dtype_of<T>));
    if (!graph) return graph;
    if (const Error why = set_forms<T, Context>(*graph, options.graph)) return why;
    return graph;
  }

  static Error of_class(std::size_t length, const Error& why) {
    return Error::say("for inputs of length ", length, ": ", why.text());
  }

  Shape input_shape(std::size_t length) const {
    return lengths_.largest.with_extent(lengths_.axis, length);
  }
  Shape with_length(Shape shape, bool follows, std::size_t length) const {
    return follows ? shape.with_extent(lengths_.axis, length) : shape;
  }
  /// Whether a tensor of shape `whole` at the largest length, and `other` at `length`, is as long as the input.
  bool follows(Shape other, std::size_t length, Shape whole) const {
    const int axis = lengths_.axis;
    return axis < whole.rank() && axis < other.rank() && whole[axis] == lengths_.longest() &&
           other[axis] == length;
  }

  Entry& largest() const { return *entries_.front(); }

  Error check_input(const Owner& training, AnyView input) const {
    const int axis = lengths_.axis;
    const std::size_t length = input.shape().rank() > axis ? input.shape()[axis] : 0;
    if (input.dtype() != training.step_.graph().input_dtype ||
        !(input.shape().with_extent(axis, lengths_.longest()) == lengths_.largest))
      return Error::misuse("the training takes inputs of ",
                           name_of(training.step_.graph().input_dtype), " ", lengths_.largest,
                           ", in which extent ", axis, " may be less, and got ",
                           name_of(input.dtype()), " ", input.shape());
    if (length == 0 || length > lengths_.longest())
      return Error::misuse("the training takes lengths from 1 to ", lengths_.longest(),
                           ", and got an input of length ", length);
    return {};
  }

  /// Whether the batch may be filled up to the running class.
  Error check_padding(bool has_targets) const {
    constexpr const char* end = "give batches lengths of classes, such as ";
    if (context_traits<Context>::own_memory)
      return Error::misuse(
          "batches are filled up to their length class in the host's memory; on a device, ", end,
          current_->length);
    if (mixing_ != nullptr)
      return Error::misuse(
          "batches are filled up to their length class, and a layer of the network, ", mixing_,
          ", may mix rows of padding with others (layers cut by Split::rows do not, nor do those "
          "that "
          "declare reads_positions or reads_lengths): ",
          end, current_->length);
    if (has_targets && !loss_pads_)
      return Error::misuse(
          "batches are filled up to their length class with ignored targets, and the network's "
          "loss ignores none: ",
          end, current_->length);
    return {};
  }

  Entry* find(std::size_t length) const {
    for (const std::unique_ptr<Entry>& entry : entries_)
      if (entry->length == length) return entry.get();
    return nullptr;
  }

  /// Plans and compiles a class. Costs are estimated; errors of codecs come from the largest class.
  Result<std::unique_ptr<Entry>> make_class(const Owner& training, std::size_t length) const {
    Result<Graph> graph = graph_(network_, input_shape(length), options_);
    if (!graph) return graph.error;
    const Evolution& known = largest().plan->evolution();
    if (!same_parameters(*graph, known.graph()))
      return Error::say("the network's parameters depend on the length of its input");
    CostProfile profile = estimated_profile(*graph);
    copy_errors(known.profile(), profile);
    Result<Evolution> evolution = Evolution::start(
        std::move(*graph), std::move(profile), known.request(), known.planner(), known.options());
    if (!evolution) return evolution.error;
    Result<Program> program = make_program(evolution->graph(), evolution->plan());
    if (!program) return program.error;
    auto step = Step<T, Context>::make(training.step_.dispatch(), std::move(*program));
    if (!step) return step.error;
    auto entry = std::make_unique<Entry>();
    entry->length = length;
    entry->plan = std::make_unique<Plans>(std::move(*evolution), options_);
    entry->step = std::move(*step);
    entry->passes = ForwardPasses<T, Context>(entry->step);
    Error error;
    if (options_.planning.evolving)
      take(entry->watched, entry->step.watch_bytes(), "what codecs saw", error);
    if (error) return error;
    return static_cast<std::unique_ptr<Entry>&&>(entry);  // nvcc would copy it
  }

  static bool same_parameters(const Graph& a, const Graph& b) {
    bool same = a.parameter_elems == b.parameter_elems && a.nodes.size() == b.nodes.size() &&
                a.parameters.size() == b.parameters.size();
    for (std::size_t i = 0; same && i < a.parameters.size(); ++i)
      same = a.parameters[i].offset == b.parameters[i].offset &&
             a.parameters[i].shape == b.parameters[i].shape;
    return same;
  }

  /// Has `training` run the class of `length` from now on. A failure changes nothing.
  Error run_class(Owner& training, std::size_t length) {
    if (current_->length == length) return {};
    Entry* next = find(length);
    const bool is_new = next == nullptr;
    if (is_new) {
      auto made = make_class(training, length);
      if (!made) return of_class(length, made.error);
      next = made->get();
      entries_.push_back(std::move(*made));
    }
    std::size_t needed = training.arena_for(next->step);
    if (needed < training.arena_.size()) needed = training.arena_.size();
    if (const Error why = training.bind_in_arena(next->step, needed)) {
      if (is_new) entries_.pop_back();
      return of_class(length, why);
    }
    exchange(training, *current_);
    exchange(training, *next);
    current_ = next;
    training.note_steps();
    return {};
  }

  static void exchange(Owner& training, Entry& entry) {
    training.step_.exchange(entry.step);
    std::swap(training.passes_, entry.passes);
    std::swap(training.watched_, entry.watched);
  }

  /// Forgets plans of more than `bytes`, but for the running class.
  void drop_above(std::size_t bytes) {
    Entries kept;
    for (std::unique_ptr<Entry>& entry : entries_)
      if (entry.get() == current_ || entry->step.arena_bytes() <= bytes)
        kept.push_back(std::move(entry));
    entries_ = std::move(kept);
  }

  /// Plans the largest class within another budget, which the other classes then have, too.
  Error follow_budget(Owner& training, PlanBoundary& boundary) {
    has_budget_ = false;
    if (const Error why = run_class(training, lengths_.longest())) return why;
    drop_above(budget_);
    evolution().set_budget(budget_);
    current_->plan->advance(training, boundary);
    if (boundary.update.failed) return {};
    for (const std::unique_ptr<Entry>& entry : entries_)
      if (entry.get() != current_) entry->plan->evolution().set_budget(budget_);
    const std::size_t needed = training.arena_for(training.step_);
    return training.arena_.size() > needed ? training.bind_in_arena(training.step_, needed)
                                           : Error();
  }

  /// All micro-batches of an update divide their losses by the targets of the first.
  void divide(Owner& training) const { training.step_.divide_by_all(true, all_targets_); }

  static Error read_classes(const std::string& text, std::vector<SavedClass>& saved) {
    std::string_view rest(text);
    rest.remove_prefix(lengths_title.size() + 1);
    while (!rest.empty()) {
      std::size_t numbers[3] = {};
      bool good = true;
      for (int i = 0; i < 3; ++i) {
        good = good && take_number(rest, numbers[i]) && !rest.empty() &&
               rest[0] == (i < 2 ? ' ' : '\n');
        if (good) rest.remove_prefix(1);
      }
      good = good && numbers[1] <= rest.size() && numbers[2] <= rest.size() - numbers[1];
      if (!good) return Error::say("the list of length classes is cut off, or damaged");
      saved.push_back({numbers[0], std::string(rest.substr(0, numbers[1])),
                       std::string(rest.substr(numbers[1], numbers[2]))});
      rest.remove_prefix(numbers[1] + numbers[2]);
    }
    return {};
  }

  Lengths lengths_;
  Options options_;
  const void* network_;
  Result<Graph> (*graph_)(const void*, Shape, const Options&);
  const char* mixing_ = nullptr;  ///< a layer disturbed by padding
  bool outputs_follow_ = false;   ///< the last activation is as long as the input
  bool targets_follow_ = false;   ///< so are the targets
  bool loss_pads_ = false;        ///< the loss can leave out padding
  PaddedBatch batch_;
  Entries entries_;  ///< the largest class is first
  Entry* current_ = nullptr;
  Entry* updating_ = nullptr;  ///< the class at the beginning of this update
  std::size_t all_targets_ = 0;
  std::size_t first_class_ = 0;  ///< the length of the update's first micro-batch
  bool mixed_ = false;           ///< the update has micro-batches of several classes
  std::size_t budget_ = 0;       ///< bytes, from the next update on
  bool has_budget_ = false;
};

}  // namespace detail

template <class T, class Context, class Optimizer>
template <class Network>
Result<Training<T, Context, Optimizer>> Training<T, Context, Optimizer>::make(
    const Network& network, const Lengths& lengths, Options options) {
  if (const Error why = lengths.examine()) return why;
  return detail::or_no_memory("to set up the training", [&]() -> Result<Training> {
    Result<Graph> graph =
        make_graph<Context>(network, lengths.largest, detail::graph_options(options, dtype_of<T>));
    if (!graph) return graph.error;
    auto plans =
        std::make_unique<detail::LengthPlans<T, Context, Optimizer>>(network, lengths, options);
    if (const Error why = plans->examine(*graph)) return why;
    if (options.total_bytes != 0) {
      if (options.total_bytes <= plans->held_bytes())
        return Error::say("a total of ", shown(options.total_bytes),
                          " is too small: memory for batches filled up takes ",
                          shown(plans->held_bytes()));
      options.total_bytes -= plans->held_bytes();
    }
    Result<Training> training =
        set_up(make_dispatch<T, Context>(network), std::move(*graph), std::move(options));
    if (!training) return training;
    if (const Error why = plans->take_over(*training)) return why;
    training->keeper_ = std::move(plans);
    return training;
  });
}

}}  // namespace adacc::v0_1
