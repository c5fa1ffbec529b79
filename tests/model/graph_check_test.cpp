// SPDX-License-Identifier: MIT
/// Graphs that somebody wrote down by hand: what cannot be worked on is refused in words.
#include <doctest/doctest.h>

#include <adacc/cost/estimate.hpp>
#include <adacc/cost/evaluate.hpp>
#include <adacc/program/program.hpp>

#include <deque>
#include <string>

namespace graph_check_test { namespace {

using namespace adacc;

std::string why(const Graph& graph) { return examine(graph).text(); }

/// A chain of layers that read their inputs in backward.
Graph chain(int layers) {
  Graph graph;
  graph.input = Shape(4, 16);
  for (int k = 0; k < layers; ++k) {
    Node node;
    node.name = "layer";
    node.layer = k;
    node.input = node.output = graph.input;
    node.output_bytes = 256;
    node.reads = Reads::input;
    const int from = k - 1;
    graph.append(node, {&from, 1});
  }
  return graph;
}

TEST_CASE("bytes that are too many together") {
  const char* const words = "together are too large to address";
  const auto too_large = [&](const Graph& graph) {
    return why(graph).find(words) != std::string::npos;
  };
  constexpr std::size_t all = static_cast<std::size_t>(-1);
  // Of each its value, twice, its blob and its gradient.
  Graph graph = chain(3);
  graph.nodes[0].output_bytes = graph.nodes[1].output_bytes = all / 8 - 4096;
  CHECK(why(graph) == "");
  graph.nodes[1].output_bytes = all / 8 + 8192;
  CHECK(too_large(graph));
  graph.nodes[1].output_bytes = all;
  CHECK(too_large(graph));
  const auto node = [&](std::size_t Node::*bytes) {
    Graph one = chain(3);
    one.nodes[1].*bytes = all / 4;
    CHECK(why(one) == "");
    one.nodes[1].*bytes = all - 64;
    CHECK(too_large(one));
  };
  for (std::size_t Node::*const bytes :
       {&Node::aux_bytes, &Node::forward_workspace, &Node::backward_workspace,
        &Node::forward_packed, &Node::backward_packed})
    node(bytes);
  graph = chain(3);
  graph.loss.backward_workspace = all - 256;
  CHECK(too_large(graph));
  graph.loss.backward_workspace = all / 2;
  CHECK(why(graph) == "");
  graph.gradients.push_back({0, 1, 1, all / 2});
  CHECK(too_large(graph));
}

TEST_CASE("lists of activations") {
  CHECK(why(chain(3)) == "");
  Graph graph = chain(3);
  graph.ids[graph.nodes[1].sources.first] = 1;
  CHECK(why(graph) ==
        "the graph's node 1 (layer) reads activation 1 in forward; it can read the step's input "
        "(-1) and those before it");
  graph = chain(3);
  graph.set_backward_reads(1, {});
  CHECK(why(graph) == "");
  const int far = 2;
  graph.set_backward_reads(1, {&far, 1});
  CHECK(why(graph) == "");
  graph.ids[graph.nodes[1].backward_reads.first] = 3;
  CHECK(why(graph) == "the graph's node 1 (layer) reads activation 3 in backward, and there are 3");
  graph = chain(3);
  graph.nodes[2].sources.count = 2;
  CHECK(why(graph).find("node 2 (layer)") != std::string::npos);
  graph = chain(3);
  graph.nodes[2].adds = {graph.ids.size(), 1};
  CHECK(why(graph) ==
        "the graph's node 2 (layer) has a list that lies beyond the end of the graph's ids");
  graph = chain(3);
  graph.nodes[1].candidates.count = 1;
  CHECK(why(graph).find("beyond the end of the graph's candidates") != std::string::npos);
}

TEST_CASE("two layers with one input") {
  Graph graph = chain(3);
  graph.ids[graph.nodes[2].sources.first] = 0;
  const std::string unread =
      "the graph's node 1 (layer) makes an activation that no layer reads and ";
  CHECK(why(graph) == unread + "0 sums add: its gradient could only be that of one sum");
  graph.add(1);
  CHECK(why(graph) == "");
  graph.add(1);
  CHECK(why(graph) == unread + "2 sums add: its gradient could only be that of one sum");
}

TEST_CASE("more codecs than a set of them can hold") {
  std::deque<CodecInfo> codecs(Graph::most_codecs + 1, CodecInfo{"codec", nullptr, false, true});
  Graph graph = chain(3);
  for (const CodecInfo& codec : codecs) {
    CHECK(why(graph) == "");
    graph.candidates.push_back(&codec);
  }
  CHECK(why(graph) ==
        "the graph's layers tolerate more than 64 different codecs, which is the most that a plan "
        "can choose among");
  CostProfile profile = empty_profile(chain(3));
  for (const CodecInfo& codec : codecs) profile.codecs.push_back(&codec);
  CHECK(std::string(examine(chain(3), profile).text()) ==
        "the profile has costs of 65 codecs; a plan can choose among 64");
}

TEST_CASE("no layers at all") {
  CHECK(why(Graph{}) == "the graph has no layers");
  CHECK(std::string(make_program(Graph{}, Plan{}).error.text()) == "the graph has no layers");
  CHECK(peak_bytes(Graph{}, Plan{}) == 0);
  CHECK(estimated_profile(Graph{}).nodes.empty());
  CHECK(retain_all(Graph{}).policies.empty());
}

}}  // namespace graph_check_test
