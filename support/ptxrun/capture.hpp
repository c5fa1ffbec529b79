// SPDX-License-Identifier: MIT
// What streams are given while they are captured: pieces of work, each behind others.
#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "parse.hpp"

struct CUgraph_st {
  struct Node {
    std::function<cudaError_t()> run;
    std::vector<std::size_t> behind;
  };
  std::vector<Node> nodes;
};

namespace ptxrun {

/// Streams that are captured together: the one that began, and those that waited for an event of one that
/// was.
class Capture {
 public:
  using Place = std::vector<std::size_t>;  // behind these nodes

  explicit Capture(cudaStream_t origin) : origin_(origin) { ends_[origin]; }

  void add(cudaStream_t stream, std::function<cudaError_t()> work) {
    Place& end = ends_[stream];
    graph_.nodes.push_back({std::move(work), std::move(end)});
    end = {graph_.nodes.size() - 1};
  }
  /// Where the stream is now.
  Place place(cudaStream_t stream) { return ends_[stream]; }
  /// What the stream is given from now on comes behind that place, too.
  void wait(cudaStream_t stream, const Place& place) {
    Place& end = ends_[stream];
    for (const std::size_t node : place)
      if (std::find(end.begin(), end.end(), node) == end.end()) end.push_back(node);
  }
  /// Whether the stream that began comes behind all that the others were given.
  bool joined() const {
    std::vector<bool> reached(graph_.nodes.size());
    Place next = ends_.at(origin_);
    while (!next.empty()) {
      const std::size_t node = next.back();
      next.pop_back();
      if (reached[node]) continue;
      reached[node] = true;
      next.insert(next.end(), graph_.nodes[node].behind.begin(), graph_.nodes[node].behind.end());
    }
    return std::find(reached.begin(), reached.end(), false) == reached.end();
  }

  cudaStream_t origin() const { return origin_; }
  const std::map<cudaStream_t, Place>& streams() const { return ends_; }
  const CUgraph_st& graph() const { return graph_; }

  bool ended = false;
  bool broken = false;  // by a call that must not be made meanwhile

 private:
  cudaStream_t origin_;
  std::map<cudaStream_t, Place> ends_;
  CUgraph_st graph_;
};

/// An order in which a graph may run: "random", "descending" (what was recorded last comes as early as it
/// may), or else as recorded.
inline std::vector<std::size_t> order_of(const CUgraph_st& graph, const std::string& how,
                                         std::mt19937_64& random) {
  std::vector<std::size_t> order, ready, left(graph.nodes.size());
  std::vector<std::vector<std::size_t>> before(graph.nodes.size());
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    left[n] = graph.nodes[n].behind.size();
    for (const std::size_t other : graph.nodes[n].behind) before[other].push_back(n);
    if (left[n] == 0) ready.push_back(n);
  }
  while (!ready.empty()) {
    std::sort(ready.begin(), ready.end());
    const std::size_t at = how == "random"       ? random() % ready.size()
                           : how == "descending" ? ready.size() - 1
                                                 : 0;
    const std::size_t node = ready[at];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(at));
    order.push_back(node);
    for (const std::size_t next : before[node])
      if (--left[next] == 0) ready.push_back(next);
  }
  return order;
}

}  // namespace ptxrun
