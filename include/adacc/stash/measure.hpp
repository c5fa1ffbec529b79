// SPDX-License-Identifier: MIT
/// The cost profile of a stash, measured on the running machine: callables and codecs, no more.
///
/// Activations registered alike (stash/model.hpp) share their times, like a trainer's layers:
/// measured one by one, equal ones would get unequal costs by chance, and then unequal policies.
/// The time of the trainer's own stages is the same under every plan; it is one number in the
/// profile, so that the planner's gap refers to the whole step.
#pragma once

#include <cstddef>

#include "../core/bfloat16.hpp"
#include "../core/clock.hpp"
#include "../core/random.hpp"
#include "../cost/profile.hpp"
#include "../step/memory_check.hpp"
#include "estimate.hpp"
#include "model.hpp"
#include "queue.hpp"

namespace adacc { inline namespace v0_1 {

struct StashMeasurement {
  ClockRef clock;   ///< needed
  int repeats = 7;  ///< for each kind of callable and codec, at least 1; the median counts
  /// Seconds of the trainer's own step, everything retained, by the same clock. If unknown (0), backward is
  /// assumed to last twice as long as forward of all recomputable activations.
  double step_seconds = 0;
};

/// Bytes of scratch for measure_stash().
constexpr std::size_t stash_measure_bytes(const Graph& graph) {
  std::size_t most = 0;
  const auto need = [&](std::size_t bytes) { most = bytes > most ? bytes : most; };
  for (int id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    for (std::size_t i = 0; i < node.candidates.count; ++i)
      need(align_up(node.output_bytes) + graph.candidates_of(node)[i]->encoded_bytes(
                                             node.output.rows(), node.output.cols(), graph.scalar));
    if (graph.maker_of(id) != id) continue;
    std::size_t together = node.forward_workspace;
    for (const int source : graph.sources(id))
      together += align_up(graph.node(source).output_bytes);
    for (int k = id; k < graph.node_count() && graph.maker_of(k) == id; ++k)
      together += align_up(graph.node(k).output_bytes);
    need(together);
  }
  return most;
}

namespace detail {

/// Values between -1 and 1; for devices, see stash/measure.cuh.
template <class Context>
struct StashSample {
  template <class T>
  static void fill(Context&, View<T> values) {
    static_assert(!context_traits<Context>::own_memory,
                  "adacc: what measures a stash on a device is in stash/measure.cuh");
    const RandomKey key;
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = rounded<T>(2 * unit_float(random_word(key, i)) - 1);
  }
};

/// Times the callables and codecs of one model.
template <class T, class Context>
class StashTimer {
 public:
  StashTimer(const StashModel<T, Context>& model, const Graph& graph, Context& context,
             Bytes scratch, const StashMeasurement& how)
      : model_(model), graph_(graph), context_(context), scratch_(scratch), how_(how) {}

  /// Seconds of the callable of all activations like `id`, their first: a median, with the
  /// activations taken in turn.
  double callable(int id) {
    Array<int> alike;
    for (int k = id; k < model_.activation_count(); ++k)
      if (graph_.node(k).layer == graph_.node(id).layer) alike.push_back(k);
    return median([&](std::size_t turn) {
      const int k = alike[turn % alike.size()];
      Bytes rest = scratch_;
      Array<View<const T>> sources;
      for (const int source : graph_.sources(k)) sources.push_back(sample(source, rest));
      Array<View<T>> outputs;
      for (int output = k; output < graph_.node_count() && graph_.maker_of(output) == k; ++output)
        outputs.push_back(sample(output, rest));
      const Bytes workspace(rest.data(), Shape(graph_.node(k).forward_workspace));
      const StashRecompute<T>& again = model_.recompute_of(k);
      return seconds(
          [&] { again.call(again.function, sources.data(), outputs.data(), workspace); });
    });
  }

  /// Writes the seconds of encoding activation `id` by `info`, and of decoding, to `cost`.
  Error codec(int id, const CodecInfo& info, CodecCost& cost) {
    const Node& node = graph_.node(id);
    Bytes rest = scratch_;
    const View<T> values = sample(id, rest);
    const View<T> x(values.data(), Shape(node.output.rows(), node.output.cols()));
    const Bytes blob(rest.data(), Shape(info.encoded_bytes(x.rows(), x.cols(), graph_.scalar)));
    const CodecDispatch<T, Context>& calls = *model_.dispatch().find(&info);
    Error why;
    cost.encode = median([&](std::size_t) {
      return seconds([&] {
        why = calls.encode(context_, x, blob, {});
        if (!why && calls.row_errors != nullptr)
          static_cast<void>(calls.row_errors(context_, x, blob, {}));
      });
    });
    if (why) return why;
    cost.decode = median(
        [&](std::size_t) { return seconds([&] { why = calls.decode(context_, blob, x, {}); }); });
    return why;
  }

 private:
  /// Takes room for activation `id` from `rest`. Activations registered as bytes become zeros, valid
  /// as indices, too.
  View<T> sample(int id, Bytes& rest) const {
    const Node& node = graph_.node(id);
    const std::size_t bytes = align_up(node.output_bytes);
    const bool raw = model_.is_raw(id);
    std::byte* const place = rest.data();
    const View<T> values(static_cast<T*>(static_cast<void*>(place)),
                         raw ? Shape(node.output_bytes / sizeof(T)) : node.output);
    rest = Bytes(rest.data() + bytes, Shape(bytes < rest.size() ? rest.size() - bytes : 0));
    if (raw) fill_bytes(context_, Bytes(place, Shape(node.output_bytes)), 0);
    else StashSample<Context>::fill(context_, values);
    return values;
  }

  template <class Call>
  double seconds(const Call& call) const {
    const double start = how_.clock();
    call();
    return how_.clock() - start;
  }

  /// The median of time(0), time(1), …, behind one call that pays for cold caches. At least a
  /// nanosecond: a clock may be too coarse to see a short call.
  template <class Time>
  double median(const Time& time) {
    static_cast<void>(time(0));
    times_.clear();
    for (int i = 0; i < how_.repeats; ++i) times_.push_back(time(static_cast<std::size_t>(i)));
    sort(times_, [](double a, double b) { return a < b; });
    const double middle = times_[times_.size() / 2];
    return middle > 1e-9 ? middle : 1e-9;
  }

  const StashModel<T, Context>& model_;
  const Graph& graph_;
  Context& context_;
  Bytes scratch_;
  const StashMeasurement& how_;
  Array<double> times_;
};

}  // namespace detail

/// Times the callables and codecs of `model` in `scratch`, of stash_measure_bytes(graph) bytes, 64-byte
/// aligned. Callables run on random values (zeros for activations registered as bytes). On a device the
/// clock must wait (StreamClock in cost/measure.cuh): times are those of single calls, with a launch,
/// and a wait for it, in each. Gradient errors are the numbers of allow(), or else estimates:
/// stash/probe.hpp measures them.
template <class T, class Context>
Result<CostProfile> measure_stash(const StashModel<T, Context>& model, Context& context,
                                  Bytes scratch, const StashMeasurement& how) {
  const Result<Graph> described = model.graph();
  if (!described) return described.error;
  const Graph& graph = *described;
  if (!how.clock || how.repeats < 1)
    return Error::misuse("measuring a stash needs a clock and at least 1 repeat");
  const std::size_t bytes = stash_measure_bytes(graph);
  if (scratch.size() < bytes)
    return Error::misuse("measuring a stash needs ", shown(bytes), " of scratch, and got ",
                         shown(scratch.size()));
  const detail::LentMemory lent{"bytes of the scratch", scratch.data(), bytes};
  if (const Error why = detail::check_memory({lent})) return why;
  if (const Error why = detail::check_place<Context>(lent)) return why;
  CostProfile profile = empty_profile(graph);
  detail::StashTimer<T, Context> timer(model, graph, context, scratch, how);
  for (int id = 0; id < model.activation_count(); ++id) {
    const Node& node = graph.node(id);
    if (node.copy > 0) continue;
    NodeCost cost;
    if (model.recompute_of(id).call != nullptr && graph.maker_of(id) == id)
      cost.forward = timer.callable(id);
    for (int k = id; k < model.activation_count(); ++k)
      if (graph.node(k).layer == node.layer) profile.nodes[static_cast<std::size_t>(k)] = cost;
    for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
      const CodecInfo& info = *profile.codecs[c];
      CodecCost coded;
      if (!graph.candidates_of(node).contains(&info)) continue;
      if (const Error why = timer.codec(id, info, coded)) return why;
      for (int k = id; k < model.activation_count(); ++k)
        if (graph.node(k).layer == node.layer) profile.codec_cost(k, static_cast<int>(c)) = coded;
    }
  }
  if (const Error why = detail::queue_fault(context))
    return Error::say("measuring a stash: ", why.text());
  detail::set_rest(profile, how.step_seconds);
  detail::set_errors(model, graph, profile);
  return profile;
}

}}  // namespace adacc::v0_1
