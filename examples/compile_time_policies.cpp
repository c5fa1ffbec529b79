// SPDX-License-Identifier: MIT
/// One network under ten assignments of policies: the compiler computes what each costs, and
/// chooses the best one within a budget.
///
/// Nothing of this happens at run time: the table is a constant, and the network that is trained in
/// the end is a type that follows from it. Copy it, put your own layers and budget in, and read
/// what the compiler says.
#include <adacc/adacc.hpp>
#include <adacc/codec/bf16.hpp>
#include <adacc/codec/int4_outlier.hpp>
#include <adacc/codec/int8_outlier.hpp>
#include <adacc/core/block.hpp>
#include <adacc/layer/plain/layer_norm.hpp>
#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/mean_squared_error.hpp>
#include <adacc/layer/plain/tanh.hpp>
#include <adacc/train/initialize.hpp>

#include <array>
#include <cstddef>
#include <cstdio>
#include <utility>

namespace {

using namespace adacc;

constexpr Shape input(64, 96);
constexpr std::size_t budget = 256 * KiB;

/// Four residual blocks. The policies are those of what the layers make: the norm's output, the
/// wide linear's, tanh's, and the sum that leaves the block.
template <class Norm, class Wide, class Bent, class Sum>
struct Blocks {
  using Block = Residual<Layer<plain::LayerNorm, Norm>, Layer<plain::Linear, Wide>,
                         Layer<plain::Tanh, Bent>, Layer<plain::Linear, Sum>>;
  using Net =
      Network<Sequential<Repeat<Block>, Layer<plain::Linear, Retain>>, plain::MeanSquaredError>;
  static constexpr Net net{
      {{4, Block{{}, {plain::Linear{.out = 192}}, {}, {plain::Linear{.out = 96}}}},
       {plain::Linear{.out = 8}}},
      {}};
};

using Int8 = Compress<Int8Outlier>;
using Int4 = Compress<Int4Outlier>;
using Half = Compress<Bf16>;

template <class... Assignments>
struct List {
  static constexpr std::size_t size = sizeof...(Assignments);
};
template <std::size_t i, class First, class... Rest>
constexpr auto at(List<First, Rest...>) {
  if constexpr (i == 0) return First{};
  else return at<i - 1>(List<Rest...>{});
}

//                     norm       wide       tanh       sum
using All = List<Blocks<Retain, Retain, Retain, Retain>,           //
                 Blocks<Recompute, Retain, Retain, Retain>,        //
                 Blocks<Recompute, Recompute, Recompute, Retain>,  //
                 Blocks<Half, Half, Half, Half>,                   //
                 Blocks<Int8, Int8, Int8, Int8>,                   //
                 Blocks<Int4, Int4, Int4, Int4>,                   //
                 Blocks<Recompute, Recompute, Half, Retain>,       //
                 Blocks<Recompute, Recompute, Half, Half>,         //
                 Blocks<Recompute, Recompute, Int8, Retain>,       //
                 Blocks<Recompute, Recompute, Int8, Int8>>;

/// What an assignment costs.
struct Row {
  Policy norm, wide, bent, sum;
  std::size_t peak_bytes = 0;  ///< of the arena, exact
  double more_work = 0;        ///< what recomputation and codecs add to the step's work
};

/// Multiply-adds of a forward pass, and a few for each element that only passes by. Backward is
/// twice that. A guess in place of a measurement, which a compiler cannot make.
constexpr double work(const Graph& graph, const Instruction& inst) {
  const Node& node = graph.node(inst.node);
  double sum = 4.0 * static_cast<double>(node.output.elems());
  for (std::size_t p = 0; p < node.parameters.count; ++p)
    sum += static_cast<double>(node.input.rows() *
                               graph.parameters[node.parameters.first + p].shape.elems());
  switch (inst.op) {
    case Op::forward: return sum;
    case Op::backward: return 2 * sum;
    default: return 4.0 * static_cast<double>(node.output.elems());
  }
}

template <class Assignment>
consteval Row row() {
  const Result<Program> program = make_program(Assignment::net, input);
  const Plan& plan = program->plan;
  Row made{plan[0], plan[1], plan[2], plan[3], program->peak_bytes(), 0};
  double needed = 0, added = 0;
  for (const Instruction& inst : program->schedule.instructions) {
    const bool extra = inst.again || inst.op == Op::encode || inst.op == Op::decode;
    (extra ? added : needed) += work(program->graph, inst);
  }
  made.more_work = added / needed;
  return made;
}

// A constant each: compilers limit the steps of one constant expression.
template <std::size_t i>
constexpr Row row_of = row<decltype(at<i>(All{}))>();

template <std::size_t... i>
consteval std::array<Row, sizeof...(i)> rows(std::index_sequence<i...>) {
  return {row_of<i>...};
}
constexpr auto table = rows(std::make_index_sequence<All::size>{});

/// The assignment within the budget that adds the least work; All::size where there is none.
consteval std::size_t best_within(std::size_t bytes) {
  std::size_t best = All::size;
  for (std::size_t i = 0; i < All::size; ++i) {
    if (table[i].peak_bytes > bytes) continue;
    if (best == All::size || table[i].more_work < table[best].more_work) best = i;
  }
  return best;
}
constexpr std::size_t best = best_within(budget);
static_assert(best < All::size, "no assignment fits the budget");
static_assert(table[0].peak_bytes > budget, "everything fits: there is nothing to choose");
static_assert(best_within(1) == All::size);
using Best = decltype(at<best>(All{}));

/// One step of the chosen network, in an arena of just the bytes that the compiler promised.
int run_best() {
  Cpu cpu;
  auto program = make_program(Best::net, input);
  if (!program) return std::printf("%s\n", program.error.text()), 1;
  auto step = Step<>::make(Best::net, std::move(*program));
  if (!step) return std::printf("%s\n", step.error.text()), 1;
  const std::size_t elems = step->graph().parameter_elems;
  auto arena = Block<std::byte>::make(table[best].peak_bytes, "the arena");
  auto params = Block<float>::make(elems, "parameters");
  auto gradients = Block<float>::make(elems, "gradients");
  auto x = Block<float>::make(input.elems(), "the input");
  auto y = Block<float>::make(step->graph().loss.targets.elems(), "the targets");
  for (const Error& why : {arena.error, params.error, gradients.error, x.error, y.error})
    if (why) return std::printf("%s\n", why.text()), 1;
  initialize_parameters(cpu, step->graph().parameters, params->view(), 1);
  for (std::size_t i = 0; i < x->size(); ++i) (*x)[i] = unit_float(random_word({}, i)) - 0.5F;
  if (const Error why = step->bind(arena->view(), params->view(), gradients->view()))
    return std::printf("%s\n", why.text()), 1;
  const auto loss = step->run(cpu, View<const float>(x->data(), input),
                              View<const float>(y->data(), step->graph().loss.targets));
  if (!loss) return std::printf("%s\n", loss.error.text()), 1;
  std::printf("a step of it in an arena of %zu bytes: loss %.6f\n", arena->size(), *loss);
  return 0;
}

}  // namespace

int main() {
  std::printf("   %-12s %-12s %-12s %-12s %10s  %s\n", "norm", "wide", "tanh", "sum", "peak bytes",
              "more work");
  for (std::size_t i = 0; i < All::size; ++i) {
    const Row& row = table[i];
    std::printf("%s  %-12s %-12s %-12s %-12s %10zu  %8.1f %%\n", i == best ? "*" : " ",
                name_of(row.norm), name_of(row.wide), name_of(row.bent), name_of(row.sum),
                row.peak_bytes, 100 * row.more_work);
  }
  std::printf("*  least work within %zu bytes, chosen by the compiler\n", budget);
  return run_best();
}
