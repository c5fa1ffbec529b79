// SPDX-License-Identifier: MIT
/// A model and the loss at its end, if any: a training step is made from a network.
#pragma once

#include "sequential.hpp"

namespace adacc { inline namespace v0_1 {

/// In place of a loss: the network is a part of something larger, which reads the network's last activation and gives
/// this activation's gradient (Step::output, Step::output_gradient).
struct NoLoss {};

template <class Model, class Loss = NoLoss>
struct Network {
  static_assert(is_model_part<Model>,
                "adacc: the first argument of Network is a model: Sequential<Layer<...>, ...>");
  Model model{};
  Loss loss{};
};

template <class Model, class Loss>
Network(Model, Loss) -> Network<Model, Loss>;
template <class Model>
Network(Model) -> Network<Model, NoLoss>;

}}  // namespace adacc::v0_1
