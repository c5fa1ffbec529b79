// SPDX-License-Identifier: MIT
/// The plan of a pipeline as text and back: sent to ranks, and kept in files.
///
///     pipeline STAGES MICRO_BATCHES
///     network STRUCTURE BYTES                  the graph's fingerprint
///     search PLANS TIMED_OUT SECONDS
///     stage FIRST LAST STATE_BYTES ERROR RETAIN FORWARD BACKWARD ACTIVATION GRADIENT UPDATE
///     0 layer_norm recompute                   the stage's plan (plan_text.hpp), and so on
///
/// Times are seconds, written to be read back to the bit. Values that follow from a plan (bytes, steps in
/// flight, the time of a step) are computed again by the reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "../core/no_memory.hpp"
#include "../core/number_text.hpp"
#include "../core/read_number.hpp"
#include "../model/stage.hpp"
#include "../plan/pipeline/request.hpp"
#include "../program/program.hpp"
#include "plan_text.hpp"
#include "profile_text.hpp"

namespace adacc { inline namespace v0_1 {

/// The lines of `outcome`, made by plan_pipeline() for `graph` and `micro_batches`.
inline std::string pipeline_text(const Graph& graph, const PipelineOutcome& outcome,
                                 int micro_batches) {
  std::string text = "pipeline " + std::to_string(outcome.stages.size()) + ' ' +
                     std::to_string(micro_batches) + "\nnetwork " +
                     std::to_string(graph.fingerprint.structure) + ' ' +
                     std::to_string(graph.fingerprint.bytes) + "\nsearch " +
                     std::to_string(outcome.plans) + (outcome.timed_out ? " 1 " : " 0 ");
  text += NumberText::shortest(outcome.solve_seconds);
  text += '\n';
  for (const StageOutcome& stage : outcome.stages) {
    text += "stage " + std::to_string(stage.first) + ' ' + std::to_string(stage.last) + ' ' +
            std::to_string(stage.state_bytes);
    for (const double number :
         {stage.error, stage.retain_seconds, stage.time.forward, stage.time.backward,
          stage.time.activation, stage.time.gradient, stage.time.update}) {
      text += ' ';
      text += NumberText::shortest(number);
    }
    text += '\n';
    const Result<Graph> cut = stage_of(graph, stage.first, stage.last);
    if (cut) text += plan_text(*cut, stage.plan);
  }
  return text;
}

namespace detail {

class PipelineReader {
 public:
  PipelineReader(std::string_view text, const Graph& graph) : text_(text), graph_(graph) {}

  Result<PipelineOutcome> read() {
    PipelineOutcome out;
    std::size_t stages = 0;
    Fingerprint made_for;
    int timed_out = 0;
    if (!line("pipeline", stages, micro_batches_) || micro_batches_ < 1) return wrong("pipeline");
    if (!line("network", made_for.structure, made_for.bytes)) return wrong("network");
    if (const Error why = check_made_for("pipeline's plan", made_for, graph_.fingerprint))
      return why;
    if (!line("search", out.plans, timed_out, out.solve_seconds)) return wrong("search");
    out.timed_out = timed_out != 0;
    for (std::size_t s = 0; s < stages; ++s) {
      Result<StageOutcome> stage = read_stage(static_cast<int>(stages), static_cast<int>(s));
      if (!stage) return stage.error;
      const int expected = s == 0 ? 0 : out.stages[s - 1].last + 1;
      if (stage->first != expected)
        return Error::say("stage ", s, " begins with node ", stage->first, ", and not with ",
                          expected);
      out.stages.push_back(std::move(*stage));
    }
    if (!text_.empty()) return Error::say("the pipeline's plan goes on behind its last stage");
    if (stages == 0 || out.stages[stages - 1].last + 1 != graph_.node_count())
      return Error::say("the pipeline's stages end before the network does");
    out.time = simulate_pipeline(out.times(), micro_batches_);
    return out;
  }

 private:
  Result<StageOutcome> read_stage(int stages, int s) {
    StageOutcome stage;
    StageTime& time = stage.time;
    if (!line("stage", stage.first, stage.last, stage.state_bytes, stage.error,
              stage.retain_seconds, time.forward, time.backward, time.activation, time.gradient,
              time.update))
      return wrong("stage");
    const std::size_t next = text_.find("\nstage ");
    const std::size_t end = next == std::string_view::npos ? text_.size() : next + 1;
    Result<Graph> cut = stage_of(graph_, stage.first, stage.last);
    if (!cut) return cut.error;
    Result<Plan> plan =
        parse_plan(std::string(text_.substr(0, end)), *cut, codecs_of(graph_), cut->fingerprint);
    if (!plan) return Error::say("stage ", s, ": ", plan.error.text());
    text_.remove_prefix(end);
    const Result<PlacedSchedule> placed = place_schedule(*cut, *plan);
    if (!placed) return placed.error;
    const Result<InFlightLayout> layout = make_in_flight_layout(*placed);
    if (!layout) return layout.error;
    stage.plan = std::move(*plan);
    stage.in_flight = in_flight(stages, s, micro_batches_);
    stage.step_bytes = layout->bytes;
    const std::size_t scalar = bytes_of(cut->scalar);
    stage.boundary_bytes = boundary_bytes(s == 0 ? 0 : cut->input.elems() * scalar,
                                          s + 1 == stages ? 0 : cut->output().elems() * scalar,
                                          stage.in_flight, micro_batches_);
    stage.peak_bytes = stage.state_bytes + stage.boundary_bytes + stage.arena_bytes();
    return stage;
  }

  /// Takes the next line: `name` and these numbers, nothing else.
  template <class... Numbers>
  bool line(std::string_view name, Numbers&... numbers) {
    const std::size_t end = text_.find('\n');
    std::string_view rest = text_.substr(0, end);
    if (end == std::string_view::npos || rest.substr(0, name.size()) != name) return false;
    rest.remove_prefix(name.size());
    const auto take = [&](auto& number) {
      return take_word(rest, " ") && take_number(rest, number);
    };
    if (!(take(numbers) && ...) || !rest.empty()) return false;
    text_.remove_prefix(end + 1);
    return true;
  }
  Error wrong(const char* name) const {
    return Error::say("the pipeline's plan has the line \"",
                      one_line(std::string(text_.substr(0, text_.find('\n'))), 60).c_str(),
                      "\" where \"", name, " ...\" was expected");
  }

  std::string_view text_;
  const Graph& graph_;
  int micro_batches_ = 1;
};

}  // namespace detail

/// Reads the text of pipeline_text() for the same graph. Errors name the line or the stage.
inline Result<PipelineOutcome> parse_pipeline(const std::string& text, const Graph& graph) {
  return detail::or_no_memory("to read a pipeline's plan",
                              [&] { return detail::PipelineReader(text, graph).read(); });
}

}}  // namespace adacc::v0_1
