// SPDX-License-Identifier: MIT
// What the graph says of layers that are cut into parts.
#include <doctest/doctest.h>

#include <adacc/adacc.hpp>

#include <string>

namespace split_test {

using namespace adacc;

namespace {

/// Needs one byte of aux for a row, and as many bytes of workspace as rows times three.
template <Split how>
struct Needy {
  static constexpr const char* name = "needy";
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = how;
  static constexpr LayerNeeds needs(Shape in, NeedsQuery query) {
    return {.aux = in.rows(),
            .workspace = in.rows() * (query.pass == Pass::forward ? 3 : 5) *
                         static_cast<std::size_t>(query.workers),
            .split_items = how == Split::own ? 7 : items_of(how, in)};
  }
};
/// Halves the rows.
template <Split how>
struct Halve {
  static constexpr const char* name = "halve";
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = how;
  static constexpr Shape output_shape(Shape in) {
    return in.rank() == 3 ? Shape(in[0], in[1] / 2, in[2]) : Shape(in[0] / 2, in[1]);
  }
};
/// Wants ten rows at least, in each part of its work, too.
struct Tall {
  static constexpr const char* name = "tall";
  static constexpr auto backward_reads = reads::none;
  static constexpr auto split = Split::rows;
  static constexpr LayerNeeds needs(Shape in, NeedsQuery) {
    if (in.rows() >= 10) return {};
    return {.error = Error::say("takes 10 rows or more, and got ", in)};
  }
};
struct Loss {
  static constexpr const char* name = "loss";
  static constexpr auto split = Split::rows;
  static constexpr Shape target_shape(Shape in) { return Shape(in.rows() + 1); }
};
struct Sum {
  static constexpr const char* name = "sum";
};

template <class F>
Result<Graph> graph_of(Shape in, int parts, int workers = 1) {
  return make_graph(Network<Sequential<Layer<F>>, Sum>{}, in, {.workers = workers, .parts = parts});
}

}  // namespace

TEST_CASE("aux lies part after part, workspaces are those of the largest part") {
  const auto whole = graph_of<Needy<Split::rows>>(Shape(100, 16), 1, 2);
  REQUIRE(whole);
  CHECK(whole->node(0).cut.parts() == 1);
  CHECK(whole->node(0).aux_bytes == 100);
  CHECK(whole->node(0).forward_workspace == 600);
  const auto cut = graph_of<Needy<Split::rows>>(Shape(100, 16), 8, 2);
  REQUIRE(cut);
  const Node& node = cut->node(0);
  CHECK(node.cut.part_items == 13);  // 64 bytes a row: any row will do
  CHECK(node.cut.parts() == 8);
  CHECK(node.part_aux_bytes == 13);
  CHECK(node.aux_bytes == 7 * 64 + 9);
  CHECK(node.forward_workspace == 13 * 3 * 2);
  CHECK(node.backward_workspace == 13 * 5 * 2);
  CHECK(node.cut.shape(node.input, node.cut.count(7)) == Shape(9, 16));
}

TEST_CASE("a part that a layer refuses is an error of the graph") {
  CHECK(graph_of<Tall>(Shape(100, 16), 1));
  CHECK(graph_of<Tall>(Shape(100, 16), 10));
  const auto refused = graph_of<Tall>(Shape(100, 16), 8);  // 7 parts of 13 rows, and one of 9
  REQUIRE_FALSE(refused);
  CHECK(std::string(refused.error.text()) ==
        "layer 0 (tall): takes 10 rows or more, and got (9, 16)");
}

TEST_CASE("parts begin aligned: rows of odd width are taken together") {
  const auto cut = graph_of<Needy<Split::rows>>(Shape(100, 3), 50);
  REQUIRE(cut);
  CHECK(cut->node(0).cut.part_items == 16);  // 16 rows of 12 bytes are three lines
  CHECK(cut->node(0).cut.parts() == 7);
}

TEST_CASE("rows are taken together by 32 where each part has as many, and sequences stay whole") {
  const auto part = [](std::size_t rows, std::size_t parts, std::size_t entry_rows = 1) {
    return make_cut(Split::rows, rows, parts, 64, 64, entry_rows).part_items;
  };
  CHECK(part(132, 4) == 64);  // 33 rows each would do, and change bits
  CHECK(part(128, 4) == 32);
  CHECK(part(127, 4) == 32);  // of 31.75 rows: too few to be taken together
  CHECK(part(100, 8) == 13);
  CHECK(part(400, 4, 100) == 100);  // a sequence each, as attention has it
  CHECK(part(400, 3, 100) == 160);  // 134 rows are no whole sequences
  CHECK(part(1024, 4, 256) == 256);
  CHECK(make_cut(Split::batch, 132, 4, 64, 64).part_items == 33);
  CHECK(make_cut(Split::own, 132, 4, 64, 64).part_items == 33);
  CHECK(make_cut(Split::rows, 400, 3, 1, 1).part_items == 192);  // 64 bytes
}

TEST_CASE("by batch, whole sequences; by itself, the whole tensor and a run of items") {
  const auto batch = graph_of<Needy<Split::batch>>(Shape(6, 10, 16), 4);
  REQUIRE(batch);
  CHECK(batch->node(0).cut.parts() == 3);
  CHECK(batch->node(0).cut.shape(batch->node(0).input, 2) == Shape(2, 10, 16));
  const auto own = graph_of<Needy<Split::own>>(Shape(6, 10, 16), 3);
  REQUIRE(own);
  CHECK(own->node(0).cut.items == 7);
  CHECK(own->node(0).cut.parts() == 3);
  CHECK(own->node(0).aux_bytes == 60);
  CHECK(own->node(0).forward_workspace == 180);
  const auto none = graph_of<Needy<Split::none>>(Shape(6, 10, 16), 5);
  CHECK(none->node(0).cut.parts() == 1);
  CHECK(graph_of<Needy<Split::rows>>(Shape(6, 16), -3)->node(0).cut.parts() == 1);
}

TEST_CASE("a layer that cannot split as it says is refused with both shapes") {
  const auto words = [](const Result<Graph>& graph) { return std::string(graph.error.text()); };
  CHECK(words(graph_of<Halve<Split::rows>>(Shape(8, 16), 4)) ==
        "halve: its input (8, 16) splits (rows) into 8 items, and (4, 16) does not");
  CHECK(words(graph_of<Halve<Split::batch>>(Shape(8, 16), 4)).find("(batch) into 8 items") !=
        std::string::npos);
  CHECK(graph_of<Halve<Split::batch>>(Shape(8, 4, 16), 4));  // time may change, the batch not
  const Network<Sequential<Layer<Needy<Split::rows>>>, Loss> net{};
  CHECK(words(make_graph(net, Shape(8, 16), {.parts = 4})) ==
        "loss: its input (8, 16) splits (rows) into 8 items, and (9) does not");
}

}  // namespace split_test
