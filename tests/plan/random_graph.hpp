// SPDX-License-Identifier: MIT
/// Random graphs and profiles for planners, drawn number by number rather than from layers: any
/// mixture of readers, sizes, workspaces, residual sums, fixed policies and codecs.
#pragma once

#include <adacc/cost/evaluate.hpp>
#include <adacc/plan/choices.hpp>

#include <random>
#include <vector>

namespace random_graph {

using namespace adacc;

/// A codec that stores Num / Den of the bytes, and a few more.
template <std::size_t Num, std::size_t Den, std::size_t More>
constexpr std::size_t part(std::size_t rows, std::size_t cols, Dtype dtype) {
  return rows * cols * bytes_of(dtype) * Num / Den + More;
}

constexpr std::size_t rows_of(std::size_t rows, std::size_t) { return rows; }
constexpr std::size_t row_elements(std::size_t cols) { return cols; }

/// The same, cut by rows.
template <std::size_t Num, std::size_t Den, std::size_t More>
inline constexpr CodecInfo cut_codec{"cut",    &part<Num, Den, More>, false, true,         0,
                                     &rows_of, "offload_cut",         0,     &row_elements};

inline constexpr CodecInfo codecs[] = {
    {"half", &part<1, 2, 0>, false, true},     {"quarter", &part<1, 4, 24>, false, true},
    {"eighth", &part<1, 8, 70>, false, true},  {"mask", &part<1, 32, 8>, true, false},
    {"lossless", &part<3, 4, 16>, true, true}, {"larger", &part<9, 8, 5>, false, true},
    {"third", &part<1, 3, 12>, false, true},   {"sixth", &part<1, 6, 40>, false, true},
};
inline constexpr std::size_t codec_count = sizeof codecs / sizeof *codecs;
inline constexpr std::size_t mask = 3, larger = 5;

class Source {
 public:
  explicit Source(unsigned seed) : engine_(seed) {}
  std::size_t below(std::size_t n) { return engine_() % n; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  double unit() { return static_cast<double>(engine_() >> 8) / 16777216.0; }

 private:
  std::mt19937 engine_;
};

/// The residual sum from `source` to `node` crosses none that is there.
inline bool nests(const Graph& graph, int source, int node) {
  for (int k = 0; k < node; ++k)
    for (const int other : graph.adds(k)) {
      if (source < k && source > other) return false;
    }
  return true;
}

/// Whether backward of some layer reads activation `id` as its input.
inline bool is_read_as_input(const Graph& graph, int id) {
  for (int k = id + 1; k < graph.node_count(); ++k)
    if (graph.input_of(k) == id && reads_input(graph.node(k).reads)) return true;
  return false;
}
/// Whether some layer's forward reads activation `id`; those that none reads are added once.
inline bool has_layer(const Graph& graph, int id) {
  for (int k = id + 1; k < graph.node_count(); ++k)
    if (graph.input_of(k) == id) return true;
  return id == step_input;
}

/// Up to `most_free` open activations among at most three more; `rows` scales all sizes. Without
/// `branches` each layer reads what the one before it made.
inline Graph draw(Source& random, int most_free, std::size_t rows = 8, bool branches = true) {
  Graph graph;
  const std::size_t widths[] = {16, 16, 32, 40};
  graph.input = Shape(rows, 16);
  graph.loss.name = "loss";
  graph.loss.dx_overwrites_x = random.one_in(2);
  graph.loss.backward_workspace = random.one_in(2) ? random.below(900) : 0;
  const int count = most_free + static_cast<int>(random.below(4));
  int free = 0;
  for (int k = 0; k < count; ++k) {
    Node node;
    node.name = "node";
    node.layer = k;
    // Some read the same as the layer before, and add what that made.
    const bool begins = branches && k >= 2 && has_layer(graph, k - 2) && random.one_in(8);
    const int from = begins ? k - 2 : k - 1;
    node.input = k == 0 ? graph.input : graph.node(from).output;
    node.output = random.one_in(2) ? node.input : Shape(rows, widths[random.below(4)]);
    if (begins) node.output = graph.node(k - 1).output;
    node.output_bytes = node.output.elems() * bytes_of(graph.scalar);
    const Reads reads[] = {Reads::none, Reads::input, Reads::output, Reads::both, Reads::input};
    node.reads = reads[random.below(5)];
    if (begins && reads_output(node.reads)) node.reads = Reads::input;
    node.dx_overwrites_dy = random.one_in(2);
    node.accepts_empty_dx = random.one_in(2);
    node.aux_bytes = random.one_in(3) ? 1 + random.below(300) : 0;
    node.forward_workspace = random.one_in(3) ? random.below(3000) : 0;
    node.backward_workspace = random.one_in(3) ? random.below(3000) : 0;
    graph.append(node, {&from, 1});
    if (begins) graph.add(k - 1);
    for (int sums = random.one_in(2) ? 1 : random.one_in(3) ? 2 : 0; sums > 0; --sums) {
      const int source = static_cast<int>(random.below(static_cast<std::size_t>(k) + 1)) - 1;
      const Shape added = source < 0 ? graph.input : graph.node(source).output;
      if (reads_output(node.reads) || !(added == node.output)) continue;
      if (!nests(graph, source, k) || !has_layer(graph, source)) continue;
      graph.add(source);
    }
  }
  for (int k = 0; k < count; ++k) {
    Node& node = graph.nodes[static_cast<std::size_t>(k)];
    const bool next_reads = is_read_as_input(graph, k);
    const std::size_t begin = graph.candidates.size();
    if (node.read_in_backward)
      for (std::size_t tries = random.below(5); tries > 0 && graph.candidates.size() - begin < 2;
           --tries) {
        const std::size_t drawn = random.below(codec_count);
        if (drawn == larger || (drawn == mask && next_reads)) continue;
        if (node.output_bytes <= codecs[drawn].encoded_bytes(rows, node.output.cols(), Dtype::f32))
          continue;
        graph.candidates.push_back(&codecs[drawn]);
      }
    node.candidates = {begin, graph.candidates.size()};
    const std::size_t fixed = random.below(free < most_free ? 24 : 4);
    if (fixed == 0) node.policy = retain();
    else if (fixed == 1) node.policy = recompute();
    else if (fixed == 2) node.policy = compress(&codecs[larger]);
    else if (fixed == 3) node.policy = compress(&codecs[random.below(2)]);
    else ++free;
  }
  return graph;
}

/// Cuts most layers of `graph`, and its loss, into `parts` parts, for loops. Encoding is cut with
/// those codecs that can be.
inline void cut(Source& random, Graph& graph, int parts) {
  graph.parts = parts;
  const auto count = static_cast<std::size_t>(parts);
  for (Node& node : graph.nodes)
    if (!random.one_in(6))
      node.cut = make_cut(Split::rows, node.output.rows(), count, node.input.cols() * 4,
                          node.output.cols() * 4);
  if (!random.one_in(3)) {
    const Shape last = graph.output();
    graph.loss.cut = make_cut(Split::rows, last.rows(), count, last.cols() * 4, 0);
  }
  for (const CodecInfo*& codec : graph.candidates)
    if (codec->keeps_values && random.one_in(2))
      codec = random.one_in(2) ? &cut_codec<1, 2, 0> : &cut_codec<1, 4, 24>;
}

/// Freezes the first nodes of `graph`, at least one: they have no gradients, and read nothing in
/// backward. The node behind them is trained.
inline void freeze(Source& random, Graph& graph) {
  const std::size_t count = 1 + random.below(graph.nodes.size());
  for (std::size_t k = 0; k < graph.nodes.size(); ++k) {
    Node& node = graph.nodes[k];
    node.read_in_backward = false;
    if (k >= count) continue;
    node.runs_backward = false;
    node.reads = Reads::none;
    node.backward_reads = {};
    node.backward_workspace = 0;
  }
  for (int k = 0; k < graph.node_count(); ++k)
    for (const int id : graph.backward_reads(k))
      graph.nodes[static_cast<std::size_t>(id)].read_in_backward = true;
  for (Node& node : graph.nodes)
    if (!node.read_in_backward) node.candidates.count = 0;
}

/// Gives the nodes of `graph` that are trained, and its loss, gradients of parameters that live in the
/// arena; some are shared by two of them.
inline void fuse(Source& random, Graph& graph) {
  graph.updates = Updates::fused;
  const int count = graph.node_count();
  for (int k = 0; k <= count; ++k) {
    if (k < count && !graph.node(k).runs_backward) continue;
    for (std::size_t own = random.below(3); own > 0; --own) {
      const auto beyond = static_cast<int>(random.below(static_cast<std::size_t>(count - k) + 1));
      graph.gradients.push_back(
          {0, random.one_in(4) ? k + beyond : k, k, 64 * (1 + random.below(40))});
    }
  }
}

/// `graph` with its first `count` nodes, each changed by change(node), as a chain without sums.
template <class Change>
inline Graph chain_of(const Graph& graph, std::size_t count, const Change& change) {
  Graph chain = graph;
  chain.nodes.clear();
  chain.ids.clear();
  for (std::size_t k = 0; k < count; ++k) {
    Node node = graph.nodes[k];
    node.adds = {};
    node.read_in_backward = false;
    change(node);
    const int from = static_cast<int>(k) - 1;
    chain.append(node, {&from, 1});
  }
  return chain;
}

/// Times of a few microseconds to a millisecond; with `even`, all alike, so that plans tie.
inline CostProfile draw_profile(Source& random, const Graph& graph, bool even) {
  CostProfile profile = empty_profile(graph);
  const auto time = [&](double most) {
    return even ? most * static_cast<double>(1 + random.below(2)) : most * (0.05 + random.unit());
  };
  for (NodeCost& cost : profile.nodes) cost = {time(1e-3), time(2e-3), time(1e-4), time(1e-4)};
  for (CodecCost& cost : profile.codec_costs) {
    cost = {time(2e-4), time(2e-4), time(1e-3), 0};
    cost.carried_error = cost.error * (even ? 2 : 10 * random.unit());
  }
  profile.loss = time(1e-4);
  profile.rest = time(1e-4);
  return profile;
}

}  // namespace random_graph
