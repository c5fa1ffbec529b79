/// The cost profile of a stash, measured on the running machine: callables and codecs, no more.
///
/// What backward stages take is the trainer's and the same under every plan, so it stands in the
/// profile as one number, `step_seconds`, which only the planner's gap refers to.
#pragma once

#include <cstddef>

#include "../core/random.hpp"
#include "../cost/profile.hpp"
#include "stash.hpp"

namespace adacc { inline namespace v0_1 {

struct StashMeasurement {
  double (*now)() = nullptr;  ///< seconds of some clock; needed
  int repeats = 5;            ///< of each; the median counts
  double step_seconds = 0;    ///< of the trainer's own step, everything retained, if known
};

/// Bytes of scratch that measure_stash() works in.
constexpr std::size_t stash_measure_bytes(const Graph& graph) {
  std::size_t most = 0;
  for (int id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    std::size_t sources = 0, blob = 0;
    graph.forward_reads(id,
                        [&](int source) { sources += align_up(graph.node(source).output_bytes); });
    const CodecSpan codecs = graph.candidates_of(node);
    for (std::size_t i = 0; i < codecs.count; ++i) {
      const std::size_t bytes =
          codecs[i]->encoded_bytes(node.output.rows(), node.output.cols(), graph.scalar);
      if (bytes > blob) blob = bytes;
    }
    const std::size_t bytes = align_up(node.output_bytes) + (sources > blob ? sources : blob);
    if (bytes > most) most = bytes;
  }
  return most;
}

namespace detail {

/// Medians of a few calls' times.
class Stopwatch {
 public:
  explicit Stopwatch(const StashMeasurement& how) : how_(how) {}

  /// At least a nanosecond: a clock may be too coarse to see a short call.
  template <class Call>
  double median(const Call& call) {
    times_.clear();
    call();  // the first one pays for cold caches
    for (int i = 0; i < how_.repeats; ++i) {
      const double start = how_.now();
      call();
      times_.push_back(how_.now() - start);
    }
    sort(times_, [](double a, double b) { return a < b; });
    const double middle = times_[times_.size() / 2];
    return middle > 1e-9 ? middle : 1e-9;
  }

 private:
  const StashMeasurement& how_;
  Array<double> times_;
};

/// Values between -1 and 1 for whole elements of T; other bytes become zero, which is an index too.
template <class T>
void fill_sample(Bytes memory, bool raw) {
  if (raw) {
    for (std::byte& byte : memory) byte = std::byte{0};
    return;
  }
  RandomKey key;
  T* values = reinterpret_cast<T*>(memory.data());
  for (std::size_t i = 0; i < memory.size() / sizeof(T); ++i)
    values[i] = static_cast<T>(2 * unit_float(random_word(key, i)) - 1);
}

}  // namespace detail

/// Times the callables and codecs of `model` in `scratch`, of stash_measure_bytes(graph) bytes,
/// 64-byte aligned. Callables are run on random values (zeros for what is registered as bytes).
template <class T, class Context>
Result<CostProfile> measure_stash(const StashModel<T, Context>& model, Context& context,
                                  Bytes scratch, const StashMeasurement& how) {
  const Result<Graph> made = model.graph();
  if (!made) return made.error;
  const Graph& graph = *made;
  if (how.now == nullptr || how.repeats < 1)
    return Error::say("measuring a stash needs a clock and at least 1 repeat");
  if (scratch.size() < stash_measure_bytes(graph) || !detail::is_aligned(scratch.data()))
    return Error::say("measuring a stash needs ", shown(stash_measure_bytes(graph)),
                      " of scratch, 64-byte aligned, and got ", shown(scratch.size()));
  CostProfile profile = empty_profile(graph);
  profile.rest = how.step_seconds;
  detail::Stopwatch watch(how);
  for (NodeCost& cost : profile.nodes) cost.forward = cost.backward = 1e-9;  // the trainer's own
  for (int id = 0; id < model.activation_count(); ++id) {
    const Node& node = graph.node(id);
    Bytes rest = scratch;
    const auto take = [&](int k) {
      const bool raw = graph.node(k).output_bytes != graph.node(k).output.elems() * sizeof(T);
      const Bytes memory(rest.data(), Shape(graph.node(k).output_bytes));
      const std::size_t used = align_up(memory.size());
      rest = Bytes(rest.data() + used, Shape(used < rest.size() ? rest.size() - used : 0));
      detail::fill_sample<T>(memory, raw);
      return View<T>(reinterpret_cast<T*>(memory.data()),
                     raw ? Shape(memory.size() / sizeof(T)) : graph.node(k).output);
    };
    const View<T> value = take(id);
    const View<T> matrix(value.data(), Shape(node.output.rows(), node.output.cols()));
    for (std::size_t c = 0; c < node.candidate_count; ++c) {
      const CodecInfo* info = graph.candidates_of(node)[c];
      const CodecDispatch<T, Context>& codec = *model.dispatch().find(info);
      const Bytes blob(rest.data(), Shape(info->encoded_bytes(node.output.rows(),
                                                              node.output.cols(), graph.scalar)));
      CodecCost& cost = profile.codec_cost(id, profile.column(info));
      Error why;
      cost.encode = watch.median([&] { why = codec.encode(context, matrix, blob, {}); });
      if (!why) cost.decode = watch.median([&] { why = codec.decode(context, blob, matrix, {}); });
      if (why) return why;
      cost.error = model.error_of(id, info);
    }
    for (std::size_t c = 0; c < profile.codecs.size(); ++c) {
      // What is made again from encoded sources has their errors, or those that they carry.
      double carried = 0;
      graph.forward_reads(id, [&](int source) {
        const CodecCost& from = profile.codec_cost(source, static_cast<int>(c));
        carried += from.error > from.carried_error ? from.error : from.carried_error;
      });
      profile.codec_cost(id, static_cast<int>(c)).carried_error = carried;
    }
    const StashRecompute<T>& again = model.recompute_of(id);
    if (again.call == nullptr) continue;
    Array<View<const T>> sources;
    for (const int source : graph.sources(id)) sources.push_back(take(source));
    profile.nodes[static_cast<std::size_t>(id)].forward =
        watch.median([&] { again.call(again.function, sources.data(), value); });
  }
  return profile;
}

}}  // namespace adacc::v0_1
