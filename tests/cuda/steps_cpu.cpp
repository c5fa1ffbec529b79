// SPDX-License-Identifier: MIT
#include "steps_cases.hpp"

#include <adacc/adacc.hpp>
#include <adacc/core/block.hpp>
#include <adacc/cost/probe.hpp>
#include <adacc/io/weights/llama.hpp>
#include <adacc/optimizer/gradient_norm.hpp>
#include <adacc/train/initialize.hpp>

#include <cstring>

namespace steps {

namespace {

template <class Case>
Trained train(Dispatch<float, Cpu> dispatch, const Program& program, int count) {
  auto step = Step<>::make(static_cast<Dispatch<float, Cpu>&&>(dispatch), program);
  const std::size_t elems = step->graph().parameter_elems;
  auto arena = Block<std::byte>::make(step->arena_bytes(), "arena");
  Block<float> blocks[4];
  for (Block<float>& block : blocks)
    block = static_cast<Block<float>&&>(*Block<float>::make(elems, "p"));
  const std::vector<float> first = initial_params<Case>();
  std::memcpy(blocks[0].data(), first.data(), elems * sizeof(float));
  const View<float> params = blocks[0].view(), gradients = blocks[1].view();
  Trained trained;
  if (step->bind(arena->view(), params, gradients)) return trained;
  Cpu cpu;
  cpu.key.seed = seed;
  const std::vector<std::int32_t> lengths = lengths_of<Case>();
  cpu.lengths = {lengths.data(), Shape(lengths.size())};
  for (int s = 0; s < count; ++s) {
    cpu.key.step = static_cast<std::uint32_t>(s);
    const auto x = Case::inputs(cpu.key.step), y = Case::targets(cpu.key.step);
    using Number = typename Case::Number;
    auto input = Block<Number>::make(x.size(), "x"), targets = Block<Number>::make(y.size(), "y");
    std::memcpy(input->data(), x.data(), x.size() * sizeof(Number));
    std::memcpy(targets->data(), y.data(), y.size() * sizeof(Number));
    const auto loss = step->run(cpu, View<const Number>(input->data(), Case::shape()),
                                View<const Number>(targets->data(), step->graph().loss.targets));
    if (!loss) return trained;
    trained.losses.push_back(*loss);
    const double norm = gradient_norm(cpu, gradients);
    adamw.step(cpu, params, gradients, blocks[2].view(), blocks[3].view(), step->graph().parameters,
               static_cast<std::uint64_t>(s + 1), rate, clip_scale(norm, clip));
  }
  trained.params.assign(params.begin(), params.end());
  return trained;
}

}  // namespace

template <class Case>
std::vector<float> initial_params() {
  const auto net = Case::network();
  const auto graph = make_graph(net, Case::shape());
  auto params = Block<float>::make(graph->parameter_elems, "parameters");
  Cpu cpu;
  initialize_parameters(cpu, graph->parameters, params->view(), 5);
  return {params->data(), params->data() + params->size()};
}

template <class Case>
Trained cpu_train(int count) {
  const auto net = Case::network();
  return train<Case>(make_dispatch<float, Cpu>(net), *make_program(net, Case::shape()), count);
}

namespace {

template <class Case>
Trained train_plan(const Graph& graph, const Plan& plan, int count) {
  const auto net = Case::network();
  auto dispatch = make_dispatch<float, Cpu>(net);
  dispatch.template add_codec<Int8Outlier>();
  dispatch.template add_codec<Int4Outlier>();
  return train<Case>(static_cast<Dispatch<float, Cpu>&&>(dispatch), *make_program(graph, plan),
                     count);
}

}  // namespace

Trained cpu_train_gpt(const std::string& plan, int count) {
  const Plan named = gpt::named_plan(plan, Language::config(), Language::batch, Language::time);
  return train_plan<Language>(*make_graph(Language::network(), Language::shape()), named, count);
}
template <class Case>
Trained cpu_train_open(const std::string& plan, int count) {
  const auto graph = make_graph(Case::network(), Case::shape());
  return train_plan<Case>(*graph, named_plan(*graph, plan), count);
}
template Trained cpu_train_open<Decoder>(const std::string&, int);
template Trained cpu_train_open<Encoder>(const std::string&, int);

Error write_decoder(const std::string& path, const std::vector<float>& params) {
  const auto graph = make_graph(Decoder::network(), Decoder::shape());
  return write_pretrained<float>(path, *graph,
                                 View<const float>(params.data(), Shape(params.size())),
                                 llama::Naming(Decoder::config()));
}
Error read_adapted(const std::string& path, View<float> params) {
  const auto graph = make_graph(Adapted::network(), Adapted::shape());
  return llama::read_parameters(path, Decoder::config(), *graph, params);
}

std::vector<double> cpu_errors(const std::vector<float>& params) {
  const auto net = Deep::network();
  const auto graph = make_graph(net, Deep::shape());
  const auto dispatch = make_dispatch<float, Cpu>(net);
  auto arena = Block<std::byte>::make(measuring_bytes(*graph), "arena");
  auto parameters = Block<float>::make(params.size(), "p"),
       gradients = Block<float>::make(params.size(), "g"),
       x = Block<float>::make(Deep::shape().elems(), "x"),
       y = Block<float>::make(Deep::shape().elems(), "y");
  std::memcpy(parameters->data(), params.data(), params.size() * sizeof(float));
  const auto input = Deep::inputs(0), target = Deep::targets(0);
  std::memcpy(x->data(), input.data(), input.size() * sizeof(float));
  std::memcpy(y->data(), target.data(), target.size() * sizeof(float));
  Cpu cpu;
  cpu.key.seed = seed;
  GradientProbe probe(cpu, dispatch, *graph, arena->view(), parameters->view(), gradients->view(),
                      View<const float>(x->data(), Deep::shape()),
                      View<const float>(y->data(), Deep::shape()));
  std::vector<double> list;
  for (const ErrorClass& what : error_classes(*graph)) {
    GradientErrors errors;
    if (probe.probe(what, errors)) return {};
    list.push_back(errors.entry(what).error());
  }
  return list;
}

GradientSketch cpu_sketch(const std::vector<float>& gradient, const RandomKey& key) {
  Cpu cpu;
  return sketch_of(cpu, View<const float>(gradient.data(), Shape(gradient.size())), key);
}

template <class T>
CodecStatistics cpu_seen(const std::string& codec, const std::vector<T>& x,
                         const std::vector<std::byte>& blob, Shape shape) {
  const ConstBytes bytes(blob.data(), Shape(blob.size()));
  const auto seen = [&]<class Codec>(Codec) {
    CodecStatistics all = Codec::statistics(bytes, shape.rows(), shape.cols(), dtype_of<T>);
    Cpu cpu;
    all.rows_over = Codec::row_errors(cpu, View<const T>(x.data(), shape), bytes).over;
    return all;
  };
  return codec == Int8Outlier::name   ? seen(Int8Outlier{})
         : codec == Int4Outlier::name ? seen(Int4Outlier{})
                                      : CodecStatistics{};
}
template CodecStatistics cpu_seen(const std::string&, const std::vector<float>&,
                                  const std::vector<std::byte>&, Shape);
template CodecStatistics cpu_seen(const std::string&, const std::vector<bfloat16>&,
                                  const std::vector<std::byte>&, Shape);

template <class T>
std::vector<std::byte> cpu_encode(const std::string& codec, const RandomKey& key,
                                  const std::vector<T>& x, Shape shape, std::size_t bytes) {
  auto blob = Block<std::byte>::make(bytes, "blob");
  Cpu cpu;
  cpu.key = key;
  const View<const T> view(x.data(), shape);
  Error why = Error::say("no such codec");
  if (codec == Int8Outlier::name) why = Int8Outlier::encode<T>(cpu, view, blob->view());
  if (codec == Int4Outlier::name) why = Int4Outlier::encode<T>(cpu, view, blob->view());
  if (codec == Bf16::name) why = Bf16::encode<T>(cpu, view, blob->view());
  if (why) return {};
  return {blob->data(), blob->data() + bytes};
}

template std::vector<float> initial_params<Language>();
template std::vector<float> initial_params<Decoder>();
template std::vector<float> initial_params<Untied>();
template std::vector<float> initial_params<Encoder>();
template std::vector<float> initial_params<Perceptron<Retain>>();
template std::vector<std::byte> cpu_encode<float>(const std::string&, const RandomKey&,
                                                  const std::vector<float>&, Shape, std::size_t);
template std::vector<std::byte> cpu_encode<bfloat16>(const std::string&, const RandomKey&,
                                                     const std::vector<bfloat16>&, Shape,
                                                     std::size_t);
template Trained cpu_train<Language>(int);
template Trained cpu_train<Perceptron<Retain>>(int);

}  // namespace steps
