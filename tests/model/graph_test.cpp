// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>

#include <array>
#include <string>

namespace graph_test {

using namespace adacc;

namespace {

struct Plain {
  static constexpr const char* name = "plain";
  static constexpr auto backward_reads = reads::input;
};
/// (…, C) -> (…, out), with a weight that may be tied.
struct Dense {
  std::size_t out = 4;
  const char* tied = nullptr;
  static constexpr const char* name = "dense";
  static constexpr auto backward_reads = reads::input;
  constexpr Shape output_shape(Shape in) const { return in.with_cols(out); }
  constexpr std::array<ParameterSpec, 2> parameters(Shape in) const {
    return {ParameterSpec{"weight", Shape(out, in.cols()), Init::normal(0.1F), true, tied},
            ParameterSpec{"bias", Shape(out), {}, false}};
  }
  constexpr LayerNeeds needs(Shape in, NeedsQuery query) const {
    if (out == 0) return {.error = Error::say("needs at least one output column")};
    return {.workspace = in.cols() * bytes_of(query.scalar) *
                         static_cast<std::size_t>(query.workers) *
                         (query.pass == Pass::backward ? 2 : 1)};
  }
};
struct Lookup {
  using input_type = std::int32_t;
  static constexpr const char* name = "lookup";
  static constexpr auto backward_reads = reads::input;
  constexpr Shape output_shape(Shape in) const { return in.append(4); }
};
struct Loss {
  static constexpr const char* name = "loss";
  using target_type = std::int32_t;
  constexpr Shape target_shape(Shape in) const { return Shape(in.rows()); }
};

std::string why(const Result<Graph>& graph) { return graph.error.text(); }

}  // namespace

TEST_CASE("lowering numbers layers and copies, and lays out parameters") {
  using Block = Residual<Layer<Plain, Recompute>, Layer<Dense>>;
  const Network<Sequential<Layer<Dense>, Repeat<Block>, Layer<Dense>>, Loss> net{
      {{Dense{.out = 6}}, {3, Block({}, {Dense{.out = 6}})}, {Dense{.out = 2}}}, {}};
  const auto graph = make_graph(net, Shape(5, 3), {.workers = 2});
  REQUIRE_MESSAGE(graph, why(graph));
  REQUIRE(graph->node_count() == 8);
  const int layers[] = {0, 1, 2, 1, 2, 1, 2, 3}, copies[] = {0, 0, 0, 1, 1, 2, 2, 0};
  for (int k = 0; k < 8; ++k) {
    CHECK(graph->node(k).layer == layers[k]);
    CHECK(graph->node(k).copy == copies[k]);
  }
  REQUIRE(graph->adds(4).size() == 1);
  CHECK(graph->adds(4)[0] == 2);
  for (int k = 0; k < 8; ++k) {
    REQUIRE(graph->sources(k).size() == 1);
    CHECK(graph->input_of(k) == k - 1);
  }
  CHECK(graph->output() == Shape(5, 2));
  CHECK(graph->loss.targets == Shape(5));
  CHECK(graph->loss.target_dtype == Dtype::i32);
  CHECK(graph->node(0).forward_workspace == 3 * 4 * 2);
  CHECK(graph->node(0).backward_workspace == 2 * 3 * 4 * 2);
  REQUIRE(graph->parameters.size() == 10);
  for (const Parameter& parameter : graph->parameters) CHECK(parameter.offset * 4 % alignment == 0);
  CHECK(graph->parameters[1].offset == 32);  // 6 x 3 floats, rounded up to 64 bytes
  const Plan plan = plan_from_types(*graph);
  CHECK(plan[1].recomputes());
  CHECK(plan[2].retains());
  CHECK(plan_from_types(*graph, recompute())[2].recomputes());
}

TEST_CASE("tied parameters share storage, if their shapes agree") {
  const Network<Sequential<Layer<Dense>, Layer<Dense>>, Loss> tied{
      {{Dense{.out = 4, .tied = "w"}}, {Dense{.out = 4, .tied = "w"}}}, {}};
  const auto graph = make_graph(tied, Shape(2, 4));
  REQUIRE(graph);
  CHECK(graph->parameters[2].offset == graph->parameters[0].offset);
  CHECK_FALSE(graph->parameters[2].owner);
  CHECK(graph->parameter_elems == 16 + 16 + 16);
  const auto bad = make_graph(tied, Shape(2, 3));
  CHECK(why(bad) == "dense: the tied parameter 'w' is (4, 3) in one layer and (4, 4) in another");
}

TEST_CASE("a Repeat's count may be a constant expression or known only at run time") {
  using Net = Network<Sequential<Layer<Dense>, Repeat<Sequential<Layer<Plain>>>>, Loss>;
  constexpr auto nodes = [](int count) {
    const Net net{{{}, {count, {}}}, {}};
    return make_graph(net, Shape(2, 4))->node_count();
  };
  static_assert(nodes(3) == 4);
  volatile int count = 7;
  CHECK(nodes(count) == 8);
}

TEST_CASE("what cannot be lowered says which layer, and what it needs") {
  using Chain = Network<Sequential<Layer<Plain>, Layer<Dense>>, Loss>;
  CHECK(why(make_graph(Chain{{{}, {Dense{.out = 0}}}, {}}, Shape(2, 4))) ==
        "layer 1 (dense): needs at least one output column");
  CHECK(why(make_graph(Chain{}, Shape(0, 4))) ==
        "the step's input: a tensor of shape (0, 4) has no elements");
  CHECK(why(make_graph(Chain{}, Shape(std::size_t{1} << 40, std::size_t{1} << 40)))
            .find("too large to address") != std::string::npos);
  CHECK(why(make_graph(Chain{}, Shape())).find("the step's input") == 0);

  const Network<Residual<Layer<Dense>>, Loss> sum{Residual<Layer<Dense>>(Layer<Dense>{}), {}};
  CHECK(why(make_graph(sum, Shape(2, 3))) ==
        "Residual: turns (2, 3) into (2, 4); a sum needs equal shapes");

  using Widening = Repeat<Sequential<Layer<Dense>>>;
  const Network<Sequential<Widening>, Loss> widening{Sequential<Widening>(Widening{2, {}}), {}};
  CHECK(why(make_graph(widening, Shape(2, 3))) ==
        "Repeat: needs a block that keeps its input's shape; this one turns (2, 3) into (2, 4)");
  const Network<Sequential<Widening>, Loss> none{Sequential<Widening>(Widening{0, {}}), {}};
  CHECK(why(make_graph(none, Shape(2, 4))) ==
        "Repeat: needs at least 1 copy of its block, and got 0");

  const Network<Sequential<Layer<Plain>, Layer<Lookup>>, Loss> late{};
  CHECK(why(make_graph(late, Shape(2, 4))) ==
        "layer 1 (lookup): takes tokens, so it must be the first layer");
}

TEST_CASE("a model that is too large for a graph is refused before it takes memory") {
  using Pair = Sequential<Layer<Plain>, Layer<Dense>>;
  const auto lower = [](const auto& model, std::size_t most) {
    GraphBuilder<> builder(Shape(2, 4), {}, most);
    model.visit(builder);
    builder.loss(Loss{});
    return builder.finish();
  };
  constexpr int huge = 1 << 30;
  const Network<Repeat<Pair>, Loss> net{{huge, {}}, {}};
  CHECK(
      why(make_graph(net, Shape(2, 4))) ==
      "Repeat: asks for 1073741824 copies of a block with 2 layers, which is too many: a model may "
      "have at most 16777216 layers, which read at most 268435456 activations");
  using Repeated = Repeat<Pair>;
  CHECK(lower(Repeated{50, {}}, 100)->node_count() == 100);
  CHECK(why(lower(Repeated{51, {}}, 101)).find("asks for 51 copies") != std::string::npos);
  // Also where each Repeat has room by itself.
  CHECK(lower(Repeat<Repeated>{4, {5, {}}}, 40)->node_count() == 40);
  CHECK(why(lower(Repeat<Repeated>{huge, {5, {}}}, 40))
            .find("asks for 1073741824 copies of a block with "
                  "10 layers") != std::string::npos);
  CHECK(lower(Sequential<Layer<Plain>, Repeated>{{}, {2, {}}}, 5)->node_count() == 5);
  CHECK(
      why(lower(Sequential<Layer<Plain>, Repeated>{{}, {2, {}}}, 4)) ==
      "Repeat: asks for 2 copies of a block with 2 layers, which is too many: a model may have at "
      "most 4 layers, which read at most 64 activations");
  CHECK(why(lower(Pair{}, 1)) ==
        "dense: is one layer too many: a model may have at most 1 layers, which read at most 16 "
        "activations");
  // Sums read activations, too.
  using One = Residual<Layer<Plain>>;
  using Four = Residual<Residual<Residual<One>>>;
  using Sixteen = Residual<Residual<Residual<Residual<
      Residual<Residual<Residual<Residual<Residual<Residual<Residual<Residual<Four>>>>>>>>>>>>;
  CHECK(why(lower(Sixteen{}, 1)) ==
        "Residual: is one sum too many: a model may have at most 1 layers, which read at most 16 "
        "activations");
  CHECK(
      why(lower(Repeat<Sixteen>{3, {}}, 3)).find("Repeat: asks for 3 copies of a block with 1 ") ==
      0);
}

TEST_CASE("tokens are an input type of their own") {
  const Network<Sequential<Layer<Lookup>, Layer<Plain>>, Loss> net{};
  const auto graph = make_graph(net, Shape(2, 3), {.scalar = Dtype::f64});
  REQUIRE(graph);
  CHECK(graph->input_dtype == Dtype::i32);
  CHECK(graph->output() == Shape(2, 3, 4));
  CHECK(graph->node(0).output_bytes == 2 * 3 * 4 * 8);
}

}  // namespace graph_test
