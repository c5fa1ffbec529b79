// SPDX-License-Identifier: MIT
#include "layers_cases.hpp"

#include <adacc/core/block.hpp>

#include <cstring>

namespace layers {

namespace {

template <class T>
Block<T> block_of(const std::vector<T>& from) {
  auto block = Block<T>::make(from.size() + 1, "a tensor");
  std::memcpy(block->data(), from.data(), from.size() * sizeof(T));
  return static_cast<Block<T>&&>(*block);
}

template <class T>
std::vector<float> list(const T* from, std::size_t count) {
  return {from, from + count};
}

}  // namespace

template <class F>
Outcome cpu_run(const F& f, Shape in, const Inputs& inputs, const Call& call) {
  using Traits = layer_traits<F>;
  using X = input_type_of<F, float>;
  Cpu cpu;
  cpu.training = call.training;
  cpu.key = call.key;
  cpu.lengths = {call.lengths.data(), Shape(call.lengths.size())};
  const Shape out = Traits::output_shape(f, in);
  auto params = block_of(inputs.params), gradients = block_of(inputs.gradients);
  auto x = block_of(inputs.x), dy = block_of(inputs.dy);
  auto tokens = block_of(inputs.tokens), targets = block_of(inputs.targets);
  auto y = Block<float>::make(out.elems(), "y"), dx = Block<float>::make(in.elems(), "dx");
  const auto bytes = [](std::size_t n) { return Block<std::byte>::make(n + 1, "scratch"); };
  auto aux = bytes(Traits::needs(f, in, {Dtype::f32}).aux);
  auto forward = bytes(Traits::needs(f, in, {Dtype::f32, 1, Pass::forward}).workspace);
  auto backward = bytes(Traits::needs(f, in, {Dtype::f32, 1, Pass::backward}).workspace);
  const Params<const float> p(params.data(), inputs.table.data(), inputs.table.size());
  const Params<float> g(gradients.data(), inputs.table.data(), inputs.table.size());
  Outcome outcome;
  if constexpr (is_loss<F>) {
    using Target = target_type_of<F, float>;
    const Shape target = Traits::target_shape(f, in);
    const Target* first = nullptr;
    if constexpr (std::is_same_v<Target, float>) first = dy.data();
    else first = targets.data();
    Cpu::Loss loss;
    loss.clear();
    call_loss_gradient(f, cpu,
                       LossCall<float, Target>{.x = {x.data(), in},
                                               .targets = {first, target},
                                               .dx = {dx->data(), in},
                                               .params = p,
                                               .dparams = g,
                                               .workspace = backward->view(),
                                               .divisor = call.divisor},
                       loss);
    outcome.loss = loss.value();
  } else {
    const X* first = nullptr;
    if constexpr (std::is_same_v<X, float>) first = x.data();
    else first = tokens.data();
    const View<const X> input(first, in);
    call_forward(f, cpu,
                 ForwardCall<float, X>{.x = input,
                                       .y = {y->data(), out},
                                       .params = p,
                                       .aux = aux->view(),
                                       .workspace = forward->view()});
    call_backward(f, cpu,
                  BackwardCall<float, X>{
                      .x = input,
                      .y = {y->data(), out},
                      .dy = {dy.data(), out},
                      .dx = std::is_same_v<X, float> ? View<float>(dx->data(), in) : View<float>(),
                      .params = p,
                      .dparams = g,
                      .aux = aux->view(),
                      .workspace = backward->view(),
                      .exact_input = call.exact,
                      .exact_output = call.exact});
    outcome.y = list(y->data(), out.elems());
  }
  if (std::is_same_v<X, float>) outcome.dx = list(dx->data(), in.elems());
  for (std::size_t i = 0; call.adds_y && i < outcome.y.size(); ++i) outcome.y[i] += inputs.added[i];
  for (std::size_t i = 0; call.adds_dx && i < outcome.dx.size(); ++i)
    outcome.dx[i] += inputs.added[i];
  outcome.gradients = list(gradients.data(), inputs.gradients.size());
  return outcome;
}

#define ADACC_INSTANTIATE(F) \
  template Outcome cpu_run<F>(const F&, Shape, const Inputs&, const Call&)
ADACC_INSTANTIATE(Gelu);
ADACC_INSTANTIATE(Silu);
ADACC_INSTANTIATE(ErfGelu);
ADACC_INSTANTIATE(SwiGlu);
ADACC_INSTANTIATE(RotaryEmbedding);
ADACC_INSTANTIATE(Relu);
ADACC_INSTANTIATE(Dropout);
ADACC_INSTANTIATE(LayerNorm);
ADACC_INSTANTIATE(RmsNorm);
ADACC_INSTANTIATE(Linear);
ADACC_INSTANTIATE(LoraLinear);
ADACC_INSTANTIATE(Embedding);
ADACC_INSTANTIATE(CausalAttention);
ADACC_INSTANTIATE(BidirectionalAttention);
ADACC_INSTANTIATE(CrossEntropyHead);
ADACC_INSTANTIATE(SoftmaxCrossEntropy);
ADACC_INSTANTIATE(MeanSquaredError);

}  // namespace layers
