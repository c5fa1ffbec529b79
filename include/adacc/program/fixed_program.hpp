/// A program that the compiler has made, in static storage: for devices without a heap.
///
/// make_program works on arrays that grow, which a constant expression may use but not keep. Here
/// its result is copied, while compiling, into arrays of just the right size. The planner, the
/// scheduler and the layout are then not in the binary, and set-up allocates nothing:
///
///     constexpr auto make = [] { return adacc::make_program(net, adacc::Shape(16, 64, 3)); };
///     constinit adacc::FixedProgram<decltype(make)> fixed;
///     adacc::FixedDispatch<float, adacc::Cpu, fixed.layer_count> dispatch;
///     auto step = adacc::Step<>::make(dispatch.make(net), fixed.program());
///
/// The objects must outlive the step, which works in their memory.
#pragma once

#include <cstddef>

#include "program.hpp"

namespace adacc { inline namespace v0_1 {

/// `Make` is the type of a function object without state whose constexpr call returns
/// Result<Program>.
template <class Make>
class FixedProgram {
  struct Sizes {
    bool made = false;
    std::size_t nodes = 0, adds = 0, candidates = 0, parameters = 0, policies = 0;
    std::size_t instructions = 0, buffers = 0, layers = 0, peak_bytes = 0, parameter_elems = 0;
  };
  static constexpr Sizes measure() {
    const Result<Program> result = Make{}();
    const Graph& graph = result->graph;
    const Schedule& schedule = result->schedule;
    Sizes found;
    found.made = static_cast<bool>(result);
    found.nodes = graph.nodes.size();
    found.adds = graph.adds.size();
    found.candidates = graph.candidates.size();
    found.parameters = graph.parameters.size();
    found.policies = result->plan.policies.size();
    found.instructions = schedule.instructions.size();
    found.buffers = schedule.buffers.size();
    found.peak_bytes = result->peak_bytes();
    found.parameter_elems = graph.parameter_elems;
    for (const Node& node : graph.nodes) {
      const auto layers = static_cast<std::size_t>(node.layer) + 1;
      if (layers > found.layers) found.layers = layers;
    }
    return found;
  }
  static constexpr Sizes sizes = measure();
  static_assert(sizes.made,
                "adacc: make_program returns an error for this network, input and plan; print the "
                "error of the same call to see which");

 public:
  static constexpr std::size_t peak_bytes = sizes.peak_bytes;  ///< of the arena
  static constexpr std::size_t parameter_elems = sizes.parameter_elems;
  static constexpr std::size_t parameter_count = sizes.parameters;
  static constexpr std::size_t instruction_count = sizes.instructions;
  static constexpr std::size_t layer_count = sizes.layers;

  constexpr FixedProgram() {
    const Result<Program> result = Make{}();
    const Graph& graph = result->graph;
    copy(graph.nodes, nodes_);
    copy(graph.adds, adds_);
    copy(graph.candidates, candidates_);
    copy(graph.parameters, parameters_);
    copy(result->plan.policies, policies_);
    copy(result->schedule.instructions, instructions_);
    copy(result->schedule.buffers, buffers_);
    copy(result->layout.offsets, offsets_);
    copy(result->exact, exact_);
    rest_ = {graph.input,
             graph.input_dtype,
             graph.scalar,
             graph.workers,
             graph.parts,
             graph.loss,
             graph.fingerprint,
             result->plan.version,
             result->mode,
             result->schedule.output,
             result->layout.live_bytes};
  }
  FixedProgram(const FixedProgram&) = delete;
  FixedProgram& operator=(const FixedProgram&) = delete;

  /// The program, over the arrays in here: one at a time.
  Program program() {
    Program made;
    Graph& graph = made.graph;
    graph.input = rest_.input;
    graph.input_dtype = rest_.input_dtype;
    graph.scalar = rest_.scalar;
    graph.workers = rest_.workers;
    graph.parts = rest_.parts;
    graph.loss = rest_.loss;
    graph.fingerprint = rest_.fingerprint;
    graph.parameter_elems = sizes.parameter_elems;
    graph.nodes = lend(nodes_, sizes.nodes);
    graph.adds = lend(adds_, sizes.adds);
    graph.candidates = lend(candidates_, sizes.candidates);
    graph.parameters = lend(parameters_, sizes.parameters);
    made.plan.policies = lend(policies_, sizes.policies);
    made.plan.version = rest_.version;
    made.plan.made_for = rest_.fingerprint;
    made.mode = rest_.mode;
    made.schedule.instructions = lend(instructions_, sizes.instructions);
    made.schedule.buffers = lend(buffers_, sizes.buffers);
    made.schedule.output = rest_.output;
    made.layout.offsets = lend(offsets_, sizes.buffers);
    made.layout.arena_bytes = sizes.peak_bytes;
    made.layout.live_bytes = rest_.live_bytes;
    made.exact = lend(exact_, sizes.nodes);
    return made;
  }

 private:
  /// What is not an array.
  struct Rest {
    Shape input{};
    Dtype input_dtype{}, scalar{};
    int workers = 1, parts = 1;
    LossNode loss{};
    Fingerprint fingerprint{};
    std::size_t version = 1;
    Mode mode{};
    int output = -1;
    std::size_t live_bytes = 0;
  };

  static constexpr std::size_t at_least_one(std::size_t n) { return n == 0 ? 1 : n; }

  template <class T, std::size_t n>
  static constexpr void copy(const Array<T>& from, T (&to)[n]) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = from[i];
  }
  template <class T, std::size_t n>
  static Array<T> lend(T (&from)[n], std::size_t size) {
    return Array<T>::over(from, size, n);
  }

  Node nodes_[at_least_one(sizes.nodes)]{};
  int adds_[at_least_one(sizes.adds)]{};
  const CodecInfo* candidates_[at_least_one(sizes.candidates)]{};
  Parameter parameters_[at_least_one(sizes.parameters)]{};
  Policy policies_[at_least_one(sizes.policies)]{};
  Instruction instructions_[at_least_one(sizes.instructions)]{};
  Buffer buffers_[at_least_one(sizes.buffers)]{};
  std::size_t offsets_[at_least_one(sizes.buffers)]{};
  bool exact_[at_least_one(sizes.nodes)]{};
  Rest rest_{};
};

}}  // namespace adacc::v0_1
