// SPDX-License-Identifier: MIT
/// Runs steps of three small networks, instruction by instruction, an update and its norm on the executor, and takes the
/// counts of each.
#include <adacc/train.cuh>

#include <adacc/models/gpt.hpp>
#include <adacc/train/initialize.hpp>

#include <type_traits>

#include <support/cuda/attention.cuh>

#include "counted.hpp"
#include "ok.cuh"

namespace cuda_counts {
namespace {

using namespace adacc;

/// `count` numbers below `most`, tokens say, or, of floating point, around 0.
template <class T>
DeviceBlock<T> numbers(std::size_t count, std::uint32_t most) {
  std::vector<T> list(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t word = random_word({.seed = 2}, i);
    if constexpr (std::is_same_v<T, std::int32_t>) list[i] = static_cast<T>(word % most);
    else list[i] = detail::from_number<T>(unit_float(word) - 0.5F);
  }
  auto made = DeviceBlock<T>::make(count, "numbers");
  ok(made.error);
  ok(cudaMemcpy(made->data(), list.data(), count * sizeof(T), cudaMemcpyHostToDevice));
  return static_cast<DeviceBlock<T>&&>(*made);
}

/// Of activations and gradients that an instruction reads and writes.
std::size_t bytes_of(const Graph& graph, const Instruction& inst) {
  const Node& node = graph.node(inst.node);
  const std::size_t out = node.output.elems(), in = node.input.elems(),
                    size = bytes_of(graph.scalar), in_size = node.takes_tokens ? 4 : size;
  switch (inst.op) {
    case Op::forward: return in * in_size + out * size;
    case Op::backward:
      return (reads_input(node.reads) ? in * in_size : 0) +
             (reads_output(node.reads) ? out * size : 0) + out * size +
             (node.takes_tokens ? 0 : in * size);
    case Op::loss_gradient: return 2 * out * size;
    default: return 3 * out * size;
  }
}

/// A row for each kind of layer and instruction. Of losses only with `losses`.
template <class T, class Number, class Target, class Net>
void count_step(const Net& net, Shape shape, std::uint32_t most, bool losses,
                CudaProducts& products, std::vector<Counted>& all) {
  auto graph = make_graph<Cuda>(net, shape, {.scalar = dtype_of<T>});
  ok(graph.error);
  auto program = make_program(*graph, retain_all(*graph));
  ok(program.error);
  auto step = Step<T, Cuda>::make(make_dispatch<T, Cuda>(net), *program);
  ok(step.error);
  Cuda cuda(nullptr, &products);
  const std::size_t elems = graph->parameter_elems;
  auto params = Block<float>::make(elems, "parameters");
  Cpu cpu;
  initialize_parameters(cpu, graph->parameters, params->view(), 5);
  DeviceBlock<float> held = numbers<float>(elems, 0), gradients = numbers<float>(elems, 0),
                     first = numbers<float>(elems, 0), second = numbers<float>(elems, 0);
  ok(cudaMemcpy(held.data(), params->data(), elems * sizeof(float), cudaMemcpyHostToDevice));
  ok(cudaMemset(second.data(), 0, elems * sizeof(float)));
  auto arena = DeviceBlock<std::byte>::make(step->arena_bytes(), "arena");
  auto places = DeviceBlock<double>::make(gradient_norm_places + 1, "places");
  ok(arena.error);
  ok(step->bind(arena->view(), held.view(), gradients.view()));
  ok(step->bind_loss(Cuda::Loss(places->data() + gradient_norm_places, nullptr)));
  const auto x = numbers<Number>(graph->input.elems(), most);
  const auto y = numbers<Target>(graph->loss.targets.elems(), most);
  ok(step->begin(View<const Number>(x.data(), graph->input),
                 View<const Target>(y.data(), graph->loss.targets)));
  const char* const type = name_of(dtype_of<T>);
  const auto take = [&](const char* name, const char* direction, std::size_t elements,
                        std::size_t bytes) {
    ok(cudaDeviceSynchronize());
    Counted counted{name, type, direction, "clean", elements, bytes, ptxrun::counts()};
    for (const Counted& other : all)
      if (other.name == name && other.type == type && other.direction == direction) return;
    if (!counted.kernels.empty()) all.push_back(counted);
  };
  for (Position at; at.instruction < step->instruction_count();) {
    const Instruction& inst = step->program().schedule.instructions[at.instruction];
    ptxrun::clear_counts();
    at = step->execute(cuda, at);
    const bool of_loss = inst.op == Op::loss || inst.op == Op::loss_gradient;
    const Node& node = graph->node(inst.node);
    if (!of_loss || losses)
      take(of_loss ? graph->loss.name : node.name, name_of(inst.op), node.output.elems(),
           bytes_of(*graph, inst));
  }
  ok(step->error());
  if (dtype_of<T> != Dtype::f32) return;
  ptxrun::clear_counts();
  gradient_norm(cuda, gradients.view(), places->view());
  take("gradient_norm", "norm", elems, elems * sizeof(float));
  CudaUpdateTerms terms;
  terms.number = 1, terms.rate = 1e-3, terms.norm = places->data(), terms.clip = 1;
  const View<float> state[] = {first.view(), second.view()};
  ptxrun::clear_counts();
  optimizer_kernel<AdamW, Cuda>::update(AdamW{}, cuda, graph->parameters,
                                        UpdateBlocks<float>{held.view(), gradients.view(), state},
                                        terms);
  take(AdamW::name, "update", elems, 8 * elems * sizeof(float));
  ok(cuda.take_error());
}

template <class T>
void count_both(CudaProducts& products, std::vector<Counted>& all) {
  constexpr std::uint32_t vocab = 512, time = 64;
  count_step<T, std::int32_t, std::int32_t>(gpt::make({1, 4, 256, time, vocab}), Shape(2, time),
                                            vocab, false, products, all);
  const Network others{Sequential{layer<Retain>(RmsNorm{}), layer<Retain>(Silu{}),
                                  layer<Retain>(Relu{}), layer<Retain>(Dropout{.rate = 0.1F})},
                       SoftmaxCrossEntropy{}};
  count_step<T, T, std::int32_t>(others, Shape(128, 1024), 1024, true, products, all);
  const Network llama_like{
      Sequential{layer<Retain>(LoraLinear{.out = 1536}),
                 layer<Retain>(RotaryEmbedding{.heads = 8, .kv_heads = 2}), layer<Retain>(SwiGlu{}),
                 layer<Retain>(LoraLinear{.out = 256}), layer<Retain>(ErfGelu{})},
      SoftmaxCrossEntropy{}};
  count_step<T, T, std::int32_t>(llama_like, Shape(2, 64, 64), 256, false, products, all);
}

}  // namespace

void count_layers(std::vector<Counted>& all) {
  auto products = CudaProducts::make();
  ok(products.error);
  count_both<float>(*products, all);
  count_both<bfloat16>(*products, all);
}

}  // namespace cuda_counts
