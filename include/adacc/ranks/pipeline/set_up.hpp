// SPDX-License-Identifier: MIT
/// How a stage of a Pipeline takes memory, makes steps, and meets the neighbours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "../../core/thread_stack.hpp"
#include "pipeline.hpp"

namespace adacc { inline namespace v0_1 {

template <class T, class Context, class Optimizer>
Error Pipeline<T, Context, Optimizer>::set_up(const Dispatch<T, Context>& dispatch,
                                              const Graph& graph, const PipelineOutcome& plan,
                                              int micro_batches) {
  stage_ = group_.rank();
  stages_ = group_.size();
  micro_batches_ = micro_batches;
  if (micro_batches < 1 || micro_batches > 0xFFFF)
    return Error::misuse("a step has 1 to 65535 micro-batches, and ", micro_batches,
                         " were asked for");
  if (plan.stages.size() != static_cast<std::size_t>(stages_))
    return Error::misuse("the plan has ", plan.stages.size(), " stages, and the group ", stages_,
                         " ranks: each runs one");
  if (const Error why = detail::check_stack<Context>()) return why;
  if (!graph.has_loss) return Error::misuse("a pipeline is of a network with a loss");
  if (graph.parameter_form != ParameterForm::full)
    return Error::misuse(
        "stages of a pipeline hold parameters in full, and this graph has them in ",
        name_of(graph.parameter_form));
  if (graph.stored_bytes != 0)
    return Error::misuse(
        "stages of a pipeline hold parameters in full, and some of this graph's are in a file");
  const StageOutcome& outcome = plan.stages[static_cast<std::size_t>(stage_)];
  first_ = outcome.first, last_ = outcome.last;
  whole_ = graph;
  for (const StageOutcome& stage : plan.stages) last_nodes_.push_back(stage.last);
  const Result<UpdateTable> all =
      UpdateTable::make(optimizer, graph.parameters, wide(graph.scalar));
  if (!all) return all.error;
  whole_table_ = *all;
  Result<Graph> cut = stage_of(graph, outcome.first, outcome.last);
  if (!cut) return cut.error;
  if (const Error why = examine(*cut, outcome.plan)) return why;
  const Result<InFlightProgram> step = make_in_flight_program(*cut, outcome.plan);
  if (!step) return step.error;
  const int flying = adacc::in_flight(stages_, stage_, micro_batches);
  const std::size_t scalar = sizeof(T);
  in_bytes_ = is_first() ? 0 : cut->input.elems() * scalar;
  out_bytes_ = is_last() ? 0 : cut->output().elems() * scalar;
  Error error;
  params_.take(*cut, error);
  detail::take(gradients_, cut->gradient_elems, "gradients", error);
  detail::take(boundary_, adacc::boundary_bytes(in_bytes_, out_bytes_, flying, micro_batches),
               "what is received and sent", error);
  const std::uint32_t before =
      UpdateTable::trained_before(graph.parameters, cut->first_parameter - graph.first_parameter);
  Result<Updater<Wide<T>, Context>> updater =
      Updater<Wide<T>, Context>::make(optimizer, *cut, {}, nullptr, before);
  if (!updater) return updater.error;
  updater_ = std::move(*updater);
  norms_.resize(updater_.table().owners());
  told_.resize(asked + detail::count_of_asked(optimizer));
  calls_.resize(static_cast<std::size_t>(group_.size()));
  updater_.take_state(error);
  if (error) return error;
  if (const Error why = arrange(dispatch, *step)) return why;
  initialize_parameters(context_, cut->parameters, params(), context_.key.seed,
                        cut->first_parameter);
  under_way_.resize(static_cast<std::size_t>(tickets()));
  return group_.prepare(tickets());
}

template <class T, class Context, class Optimizer>
Error Pipeline<T, Context, Optimizer>::arrange(const Dispatch<T, Context>& dispatch,
                                               const InFlightProgram& stage) {
  const int flying = adacc::in_flight(stages_, stage_, micro_batches_);
  steps_.clear();
  cursors_.clear();
  arena_ = {};  // there may be no room for two arenas
  Error error;
  detail::take(arena_, stage.layout.bytes.arena(flying), "activations", error);
  if (error) return error;
  for (int slot = 0; slot < flying; ++slot) {
    auto step = Step<T, Context>::make(dispatch, stage.of(slot, flying));
    if (!step) return step.error;
    if (const Error why = step->bind(this->arena(), params(), gradients_.view())) return why;
    step->divide_by_all(true);
    steps_.push_back(static_cast<Step<T, Context>&&>(*step));
  }
  sequences_.resize(steps_.size());
  for (Step<T, Context>& step : steps_) {
    auto cursor = Cursor<T, Context>::make(step);
    if (!cursor) return cursor.error;
    cursors_.push_back(static_cast<Cursor<T, Context>&&>(*cursor));
  }
  passes_ = detail::ForwardPasses<T, Context>(steps_[0]);
  waits_ = steps_[0].hand_over();
  if (is_last()) {
    const Array<Instruction>& list = steps_[0].program().schedule.instructions;
    for (waits_ = 0; list[waits_].op != Op::loss_gradient;) ++waits_;
    --waits_;  // the loss belongs to backward
  }
  return {};
}

template <class T, class Context, class Optimizer>
Error Pipeline<T, Context, Optimizer>::meet_neighbours(const Graph& graph) {
  detail::StageHello hello{graph.fingerprint.structure,
                           graph.fingerprint.bytes,
                           context_.key.seed,
                           stages_,
                           micro_batches_,
                           first_,
                           last_};
  for (const int by : {-1, 1}) {
    const int peer = stage_ + by;
    if (peer < 0 || peer == stages_) continue;
    detail::StageHello others;
    begin(number_out(), GroupMessage::Direction::send, peer, numbers,
          {reinterpret_cast<std::byte*>(&hello), Shape(sizeof hello)});
    begin(number_in(), GroupMessage::Direction::receive, peer, numbers,
          {reinterpret_cast<std::byte*>(&others), Shape(sizeof others)});
    const Error received = wait(number_in()), sent = wait(number_out());
    if (received) return received;
    if (sent) return sent;
    if (const Error why = detail::StageHello::differences(hello, stage_, others, peer)) return why;
  }
  Agreement agreement;
  detail::agree_on(agreement, optimizer, whole_table_.text());
  return agreement.examine(group_);
}

}}  // namespace adacc::v0_1
