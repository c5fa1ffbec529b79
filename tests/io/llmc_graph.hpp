// SPDX-License-Identifier: MIT
/// As much of a GPT-2's graph as llm.c's reader looks at, without the layers.
#pragma once

#include "../train/support.hpp"
#include "adacc/core/array.hpp"
#include "adacc/model/parameter.hpp"

namespace train_test {

struct StubNode {
  int layer = 0;
  int copy = 0;
};

/// GPT-2's storage as a graph has it: block by block, the head's weight tied and the loss's own.
struct StubGraph {
  adacc::Array<adacc::Parameter> parameters;
  adacc::Array<StubNode> nodes;
  std::size_t parameter_elems = 0;

  StubGraph(std::size_t vocab, std::size_t context, std::size_t layers, std::size_t c) {
    add_node(0, 0);
    add(adacc::Shape(vocab, c));
    add(adacc::Shape(context, c));
    for (std::size_t l = 0; l < layers; ++l) {
      const std::size_t rows[] = {1, 3 * c, c, 1, 4 * c, c}, cols[] = {c, c, c, c, c, 4 * c};
      for (int i = 0; i < 6; ++i) {
        add_node(1 + i, static_cast<int>(l));
        const std::size_t r = rows[i];
        add(r == 1 ? adacc::Shape(c) : adacc::Shape(r, cols[i]));
        add(r == 1 ? adacc::Shape(c) : adacc::Shape(r));
      }
    }
    add_node(7, 0);
    add(adacc::Shape(c));
    add(adacc::Shape(c));
    adacc::Parameter head = parameters[0];
    head.owner = false;
    head.node = -1;
    parameters.push_back(head);
  }

  void add_node(int layer, int copy) { nodes.push_back({layer, copy}); }
  void add(adacc::Shape shape) {
    add_parameter(parameters, parameter_elems, shape, static_cast<int>(nodes.size()) - 1);
  }
};

}  // namespace train_test
