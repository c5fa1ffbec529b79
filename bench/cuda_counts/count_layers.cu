// SPDX-License-Identifier: MIT
/// Runs steps of three small networks, instruction by instruction, an update and its norm on the executor, and takes the
/// counts of each; then attention alone, over sequences of many tiles.
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
  const std::size_t added = inst.adds ? size : 0;
  switch (inst.op) {
    case Op::forward: return in * in_size + out * size + out * added;
    case Op::backward:
      return (reads_input(node.reads) ? in * in_size : 0) +
             (reads_output(node.reads) ? out * size : 0) + out * size +
             (node.takes_tokens ? 0 : in * size) + in * added;
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
  // First without sums of columns that a layer forms for the layer in front, and then the rows of those that do.
  auto apart = make_dispatch<T, Cuda>(net);
  for (auto& layer : apart.layers) layer.beside.sums_dx = false;
  auto step = Step<T, Cuda>::make(static_cast<Dispatch<T, Cuda>&&>(apart), *program),
       hands_on = Step<T, Cuda>::make(make_dispatch<T, Cuda>(net), *program);
  ok(step.error);
  ok(hands_on.error);
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
  for (auto* const one : {&*step, &*hands_on}) {
    ok(one->bind(arena->view(), held.view(), gradients.view()));
    ok(one->bind_loss(Cuda::Loss(places->data() + gradient_norm_places, nullptr)));
  }
  const auto x = numbers<Number>(graph->input.elems(), most);
  const auto y = numbers<Target>(graph->loss.targets.elems(), most);
  ok(step->begin(View<const Number>(x.data(), graph->input),
                 View<const Target>(y.data(), graph->loss.targets)));
  const char* const type = name_of(dtype_of<T>);
  std::uint64_t launches = 0;
  const auto take = [&](const char* name, const char* direction, std::size_t elements,
                        std::size_t bytes) {
    ok(cudaDeviceSynchronize());
    Counted counted{name,     type,  direction,        "clean",
                    elements, bytes, ptxrun::counts(), ptxrun::products()};
    for (const Counted& other : all)
      if (other.name == name && other.type == type && other.direction == direction) return;
    if (!counted.kernels.empty()) all.push_back(counted);
  };
  for (Position at; at.instruction < step->instruction_count();) {
    const Instruction& inst = step->program().schedule.instructions[at.instruction];
    ptxrun::clear_counts();
    at = step->execute(cuda, at);
    ok(cudaDeviceSynchronize());
    for (const ptxrun::Counts& kernel : ptxrun::counts()) launches += kernel.launches;
    const bool of_loss = inst.op == Op::loss || inst.op == Op::loss_gradient;
    const Node& node = graph->node(inst.node);
    // Backward of a layer that adds a gradient along a residual sum has a row of its own.
    const bool sums = inst.op == Op::backward && inst.adds;
    if (!of_loss || losses)
      take(of_loss ? graph->loss.name : node.name, sums ? "backward_sum" : name_of(inst.op),
           node.output.elems(), bytes_of(*graph, inst));
  }
  ok(step->error());
  std::uint64_t fewer = 0;
  ok(hands_on->begin(View<const Number>(x.data(), graph->input),
                     View<const Target>(y.data(), graph->loss.targets)));
  for (Position at; at.instruction < hands_on->instruction_count();) {
    const Schedule& schedule = hands_on->program().schedule;
    const std::size_t i = at.instruction;
    const Instruction& inst = schedule.instructions[i];
    const Instruction* const taker = detail::taker_of_dx(*graph, schedule, i);
    const auto layer = [&](const Instruction& of) -> const auto& {
      return hands_on->dispatch().layers[static_cast<std::size_t>(graph->node(of.node).layer)];
    };
    ptxrun::clear_counts();
    at = hands_on->execute(cuda, at);
    ok(cudaDeviceSynchronize());
    for (const ptxrun::Counts& kernel : ptxrun::counts()) fewer += kernel.launches;
    if (taker != nullptr && layer(inst).beside.sums_dx && layer(*taker).beside.dy_sums >= 0)
      take(graph->node(inst.node).name, "backward_cols", graph->node(inst.node).output.elems(),
           bytes_of(*graph, inst));
  }
  ok(hands_on->error());
  std::printf(
      "%s: %zu instructions of a step launch %llu kernels beside products; %llu where layers "
      "form no sums for those in front\n",
      type, step->instruction_count(), static_cast<unsigned long long>(fewer),
      static_cast<unsigned long long>(launches));
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

/// The head of GPT-2's vocabulary, which is odd. Elements are logits.
template <class T>
void count_head(CudaProducts& products, std::vector<Counted>& all) {
  using Twin = kernel<CrossEntropyHead, Cuda>;
  constexpr CrossEntropyHead head{.vocab = 50257};
  constexpr Shape in(16, 16);
  constexpr std::size_t weights = head.vocab * in.cols(), logits = head.vocab * in.rows();
  constexpr LayerNeeds needs = Twin::needs(head, in, {dtype_of<T>, 1, Pass::backward});
  auto x = numbers<T>(in.elems(), 0), dx = numbers<T>(in.elems(), 0);
  auto weight = numbers<float>(weights, 0), gradient = numbers<float>(weights, 0);
  auto targets = numbers<std::int32_t>(in.rows(), head.vocab);
  auto workspace = DeviceBlock<std::byte>::make(needs.workspace, "workspace");
  auto loss = DeviceBlock<double>::make(1, "the loss");
  ok(workspace.error);
  ok(loss.error);
  Parameter parameter;
  parameter.shape = Shape(head.vocab, in.cols());
  Cuda cuda(nullptr, &products);
  Cuda::Loss place(loss->data(), nullptr);
  place.clear();
  ptxrun::clear_counts();
  Twin::forward_backward(head, cuda,
                         LossCall<T, std::int32_t>{.x = {x.data(), in},
                                                   .targets = targets.view(),
                                                   .dx = {dx.data(), in},
                                                   .params = {weight.data(), &parameter, 1},
                                                   .dparams = {gradient.data(), &parameter, 1},
                                                   .workspace = workspace->view()},
                         place);
  ok(cuda.take_error());
  ok(cudaDeviceSynchronize());
  const std::size_t copied = dtype_of<T> == Dtype::bf16 ? weights * (sizeof(float) + sizeof(T)) : 0;
  all.push_back({CrossEntropyHead::name, name_of(dtype_of<T>), "loss_gradient", "clean", logits,
                 2 * logits * sizeof(T) + copied, ptxrun::counts(), ptxrun::products()});
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

/// In bfloat16, over 512 positions with heads of 64 channels: forward, backward with forward's output at hand, and
/// without it ("again").
template <Mask mask>
void count_attention(const char* name, const Attention<mask>& f, std::vector<Counted>& all) {
  using T = bfloat16;
  using Kernel = kernel<Attention<mask>, Cuda>;
  const Shape in(1, 512, 64 * f.all_heads()), out = f.output_shape(in);
  const DeviceBlock<T> x = numbers<T>(in.elems(), 0), dy = numbers<T>(out.elems(), 0);
  DeviceBlock<T> y = numbers<T>(out.elems(), 0), dx = numbers<T>(in.elems(), 0);
  const NeedsQuery query{Dtype::bf16, 1, Pass::backward};
  auto aux = DeviceBlock<std::byte>::make(Kernel::needs(f, in, query).aux, "aux");
  auto room = DeviceBlock<std::byte>::make(Kernel::workspace_bytes(f, in, query), "workspace");
  ok(aux.error);
  ok(room.error);
  Cuda cuda;
  const auto take = [&](const char* direction, std::size_t elems) {
    ok(cudaDeviceSynchronize());
    ok(cuda.take_error());
    all.push_back(
        {name, "bf16", direction, "clean", out.elems(), elems * sizeof(T), ptxrun::counts()});
  };
  ptxrun::clear_counts();
  Kernel::forward(f, cuda,
                  ForwardCall<T>{.x = {x.data(), in}, .y = {y.data(), out}, .aux = aux->view()});
  take("forward", in.elems() + out.elems());
  for (const bool exact : {true, false}) {
    ptxrun::clear_counts();
    Kernel::backward(f, cuda,
                     BackwardCall<T>{.x = {x.data(), in},
                                     .y = {y.data(), out},
                                     .dy = {dy.data(), out},
                                     .dx = {dx.data(), in},
                                     .aux = aux->view(),
                                     .workspace = room->view(),
                                     .exact_input = exact,
                                     .exact_output = exact});
    take(exact ? "backward" : "again", 2 * in.elems() + (exact ? 2 : 1) * out.elems());
  }
}

}  // namespace

void count_layers(std::vector<Counted>& all) {
  auto products = CudaProducts::make();
  ok(products.error);
  count_both<float>(*products, all);
  count_both<bfloat16>(*products, all);
  count_attention("causal_attention_512", CausalAttention{.heads = 4}, all);
  count_attention("grouped_attention_512", CausalAttention{.heads = 4, .kv_heads = 2}, all);
  count_attention("attention_512", BidirectionalAttention{.heads = 4}, all);
  count_head<float>(*products, all);
  count_head<bfloat16>(*products, all);
}

}  // namespace cuda_counts
