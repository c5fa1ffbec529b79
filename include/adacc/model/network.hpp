/// A model and the loss that ends it: what a training step is made from.
#pragma once

#include "sequential.hpp"

namespace adacc { inline namespace v0_1 {

template <class Model, class Loss>
struct Network {
  static_assert(is_model_part<Model>,
                "adacc: the first argument of Network is a model: Sequential<Layer<...>, ...>");
  Model model{};
  Loss loss{};
};

template <class Model, class Loss>
Network(Model, Loss) -> Network<Model, Loss>;

}}  // namespace adacc::v0_1
