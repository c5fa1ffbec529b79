// SPDX-License-Identifier: MIT
/// Measurements of a rank before a pipeline is planned: the layers of a stage, its update, its link.
///
/// Each rank measures a stage in its own memory, under the conditions of training, so networks too large for
/// one rank can be measured, too. Parameters are drawn, and inputs made up, because times of layers do
/// not depend on numbers. All memory is given back.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "../../core/any_view.hpp"
#include "../../core/bfloat16.hpp"
#include "../../core/block.hpp"
#include "../../core/clock.hpp"
#include "../../cost/combine.hpp"
#include "../../cost/measure.hpp"
#include "../../cost/measuring_plans.hpp"
#include "../../model/stage.hpp"
#include "../../optimizer/gradient_norm.hpp"
#include "../../optimizer/update_table.hpp"
#include "../../plan/pipeline/request.hpp"
#include "../../train/initialize.hpp"
#include "../group.hpp"

namespace adacc { inline namespace v0_1 {

/// The costs of a stage, measured by a rank.
struct StageCosts {
  MeasuredNodes nodes;
  double update_seconds = 0;      ///< for norm and update of the nodes' parameters; 0: not known
  std::size_t trained_elems = 0;  ///< elements of these parameters
};

/// How costs are measured.
struct StageMeasuring {
  ClockRef clock{};  ///< none: costs are estimated
  /// A micro-batch of the network; only the first stage reads the input, only the last the targets.
  AnyView input{}, targets{};
  MeasureOptions steps{};
};

namespace detail {

/// Nodes to measure, in the order of trials: the stage first..last, then the half of the stage with
/// the network's end (or else its beginning), and so on.
inline Array<MeasuredNodes> pieces_to_measure(const Graph& graph, int first, int last) {
  Array<int> ends;  // last nodes of the parts of the stage
  for (const int cut : cuts_of(graph))
    if (first <= cut && cut < last) ends.push_back(cut);
  ends.push_back(last);
  Array<MeasuredNodes> pieces;
  const bool at_end = last + 1 == graph.node_count() && first > 0;
  for (std::size_t count = ends.size(); count > 0; count /= 2) {
    MeasuredNodes piece;
    piece.first = at_end && count < ends.size() ? ends[ends.size() - count - 1] + 1 : first;
    piece.last = at_end ? last : ends[count - 1];
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

/// Seconds of the work behind the last micro-batch: norms of the gradients, and an update at the rate 0, which
/// changes nothing.
template <class T, class Context, class Optimizer>
double update_seconds(Context& context, const Graph& stage, const Optimizer& optimizer,
                      const UpdateTable& table, const UpdateMemory<T>& memory, ClockRef clock) {
  Array<double> seconds;
  for (int i = 0; i < 3; ++i) {
    const double start = clock();
    double norm = 0;
    for (std::size_t o = 0; o < table.owners(); ++o) {
      const Parameter& parameter = stage.parameters[table.owner(o)];
      norm += gradient_norm(context, View<T>(memory.gradients.data() + parameter.offset,
                                             Shape(parameter.shape.elems())));
    }
    optimizer_kernel<Optimizer, Context>::update(optimizer, context, table, stage.parameters,
                                                 memory, {1, 0, clip_scale(norm, 1), context.key});
    seconds.push_back(clock() - start);
  }
  const double middle = median(seconds);
  return middle > 0 && middle < 1e9 ? middle : 0;
}

}  // namespace detail

/// Measures nodes first..last of `graph` within `memory` bytes, on this rank alone: as many nodes as have
/// room, maybe none.
template <class T, class Context, class Optimizer>
Result<StageCosts> measure_stage(Context context, const Dispatch<T, Context>& dispatch,
                                 const Graph& graph, int first, int last, std::size_t memory,
                                 const Optimizer& optimizer, const StageMeasuring& how) {
  StageCosts costs;
  for (MeasuredNodes& piece : detail::pieces_to_measure(graph, first, last)) {
    const Result<Graph> cut = stage_of(graph, piece.first, piece.last);
    if (!cut) return cut.error;
    const std::size_t fed = piece.first == 0 ? 0 : cut->input.elems();
    const std::size_t held =
        (cut->parameter_elems + cut->gradient_elems) * sizeof(Wide<T>) + align_up(fed * sizeof(T));
    if (held >= memory) continue;
    const Result<UpdateTable> table =
        UpdateTable::make(optimizer, cut->parameters, wide(cut->scalar));
    if (!table) return table.error;
    // Moments use the arena's memory, behind the measurement of nodes.
    std::size_t room = measuring_bytes(*cut);
    if (room < table->bytes()) room = table->bytes();
    if (room > memory - held) room = memory - held;
    if (!measuring_plans(*cut, room)) continue;

    Block<Wide<T>> params, gradients;
    Block<T> input;
    Block<std::byte> arena;
    Error error;
    detail::take(params, cut->parameter_elems, "parameters", error);
    detail::take(gradients, cut->gradient_elems, "gradients", error);
    detail::take(input, fed, "what a stage is fed", error);
    detail::take(arena, room, "measuring a stage", error);
    if (error) return error;
    initialize_parameters(context, cut->parameters, params.view(), context.key.seed,
                          cut->first_parameter);
    // Input of mean 0 and variance 1.
    for (std::size_t i = 0; i < fed; ++i)
      input[i] = detail::rounded<T>(3.4641F * (unit_float(random_word(context.key, i)) - 0.5F));
    const AnyView x = fed == 0 ? how.input : AnyView(View<const T>(input.data(), cut->input));
    const Bytes place(arena.data(), Shape(arena.size()));
    const Result<CostProfile> profile =
        measure(context, dispatch, *cut, place, params.view(), gradients.view(), x, how.targets,
                how.clock, how.steps);
    if (!profile) return profile.error;
    piece.costs = widened(graph, *profile, piece.first);
    costs.nodes = std::move(piece);
    if (table->bytes() > room) return costs;
    std::memset(arena.data(), 0, table->bytes());
    costs.trained_elems = cut->gradient_elems;
    costs.update_seconds =
        detail::update_seconds(context, *cut, optimizer, *table,
                               UpdateMemory<Wide<T>>{params.view(), gradients.view(),
                                                     Bytes(arena.data(), Shape(table->bytes()))},
                               how.clock);
    return costs;
  }
  return costs;
}

/// Measures latency and rate of each link between a rank and the next, by messages there and back. All ranks
/// of the group call measure_links(). `bytes`: the same on all ranks; by rank, the bytes sent to the next rank,
/// or 0: the link is not measured. `machine`: gets this rank's latency and rate.
inline Error measure_links(GroupRef group, const Array<std::size_t>& bytes, ClockRef clock,
                           StageMachine& machine) {
  constexpr std::size_t least = 64;
  if (const Error why = group.prepare(1)) return why;
  const auto there_and_back = [&](bool begins, int peer, Bytes message) -> Error {
    for (const bool sends : {begins, !begins}) {
      if (sends) group.send(0, peer, 0, message);
      else group.receive(0, peer, 0, message);
      if (const Error why = group.wait(0)) return why;
    }
    return {};
  };
  const int me = group.rank(), last = group.size() - 1;
  for (int from = 0; from < 2; ++from) {  // links that begin with even ranks, then with odd ones
    const bool begins = me % 2 == from;
    const int first = begins ? me : me - 1;
    if (first < 0 || first == last || bytes[static_cast<std::size_t>(first)] == 0) continue;
    const std::size_t most = 2 * least + bytes[static_cast<std::size_t>(first)];
    std::vector<std::byte> memory(most);
    double seconds[2] = {};
    for (const std::size_t size : {least, most}) {
      // The shortest time counts: longer ones include waiting for a processor.
      double shortest = 0;
      for (int i = 0; i < 9; ++i) {
        const double start = clock();
        const Bytes message(memory.data(), Shape(size));
        if (const Error why = there_and_back(begins, begins ? me + 1 : me - 1, message)) return why;
        const double takes = 0.5 * (clock() - start);
        if (i == 0 || takes < shortest) shortest = takes;
      }
      seconds[size == least ? 0 : 1] = shortest;
    }
    if (!begins) continue;
    // Times too short for the clock count as a nanosecond.
    const double more = seconds[1] - seconds[0];
    machine.link_latency = seconds[0] > 0 ? seconds[0] : 0;
    machine.link_rate = static_cast<double>(most - least) / (more > 1e-9 ? more : 1e-9);
  }
  return {};
}

}}  // namespace adacc::v0_1
