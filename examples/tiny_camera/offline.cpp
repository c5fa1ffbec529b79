// SPDX-License-Identifier: MIT
/// The offline half of tiny_camera: trains the network in float, brings it to int8, measures what each tensor
/// is worth to a device that adapts, chooses which of them fit, and writes all of it as a C header.
///
///     tiny_camera_offline camera.h
#include <adacc/adacc.hpp>
#include <adacc/io/weights/weights_header.hpp>
#include <adacc/layer/plain/conv2d.hpp>
#include <adacc/layer/plain/linear.hpp>
#include <adacc/layer/plain/pool2d.hpp>
#include <adacc/layer/plain/relu.hpp>
#include <adacc/layer/plain/softmax_cross_entropy.hpp>
#include <adacc/train/freeze_to_fit.hpp>
#include <adacc/train/initialize.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "network.hpp"

namespace {

using namespace adacc;
using namespace tiny_camera;

[[noreturn]] void die(const Error& why) {
  std::fprintf(stderr, "tiny_camera_offline: %s\n", why.text());
  std::exit(1);
}
template <class T>
T value_of(Result<T> result) {
  if (!result) die(result.error);
  return static_cast<T&&>(*result);
}

/// A network in memory of its own.
class Learner {
 public:
  template <class Net>
  Learner(const Net& net, Graph graph) {
    Plan plan = plan_from_types(graph);
    Program judging = value_of(make_program(graph, plan, Mode::infer));
    judge_ = value_of(Step<>::make(net, std::move(judging)));
    Program program = value_of(make_program(std::move(graph), std::move(plan)));
    step_ = value_of(Step<>::make(net, std::move(program)));
    arena_ = value_of(
        Block<std::byte>::make(std::max(step_.arena_bytes(), judge_.arena_bytes()), "activations"));
    params_ = value_of(Block<float>::make(step_.graph().parameter_elems, "parameters"));
    gradients_ = value_of(Block<float>::make(step_.graph().gradient_elems, "gradients"));
    moments_ = value_of(Block<std::byte>::make(
        fixed_state_bytes(Optimizer{}, step_.graph().parameters, Dtype::f32), "moments"));
    std::memset(gradients_.data(), 0, gradients_.view().size() * sizeof(float));
    std::memset(moments_.data(), 0, moments_.view().size());
    if (const Error why = step_.bind(arena_.view(), params_.view(), gradients_.view())) die(why);
    if (const Error why = judge_.bind(arena_.view(), params_.view())) die(why);
  }

  void learn(const Conditions& conditions, std::uint64_t seed, const Lesson& lesson) {
    for (std::uint32_t i = 0; i < lesson.steps; ++i) {
      take_batch(conditions, seed, i * batch, x_.data(), y_.data());
      cpu_.key.step = i;
      value_of(step_.run(cpu_, input(), targets()));
      update_fixed(Optimizer{}, cpu_, table(), params_.view(), gradients_.view(), moments_.view(),
                   {.number = i + 1, .rate = lesson.rate_at(i), .key = {.step = i + 1}});
    }
  }
  double accuracy(const Conditions& conditions, std::uint64_t seed, std::uint32_t count) {
    std::uint32_t right = 0;
    for (std::uint32_t first = 0; first < count; first += batch) {
      take_batch(conditions, seed, first, x_.data(), y_.data());
      value_of(judge_.run(cpu_, input(), targets()));
      for (std::size_t b = 0; b < batch; ++b) right += best_of(judge_.output().row(b)) == y_[b];
    }
    return static_cast<double>(right) / count;
  }

  const Array<Parameter>& table() const { return step_.graph().parameters; }
  float* params() { return params_.data(); }
  View<float> block() { return params_.view(); }

 private:
  View<const float> input() const { return {x_.data(), pictures}; }
  View<const std::int32_t> targets() const { return {y_.data(), Shape(batch)}; }

  Cpu cpu_;
  Step<> step_, judge_;
  Block<std::byte> arena_, moments_;
  Block<float> params_, gradients_;
  Block<float> x_block_ = value_of(Block<float>::make(pictures.elems(), "pictures"));
  Block<std::int32_t> y_block_ = value_of(Block<std::int32_t>::make(batch, "targets"));
  View<float> x_ = x_block_.view();
  View<std::int32_t> y_ = y_block_.view();
};

constexpr plain::Conv2d real(std::size_t k) {
  return {.out = geometry[k].out, .stride = geometry[k].stride, .padding = 1};
}
using RealConvolution = Layer<plain::Conv2d, Retain>;
using RealRelu = Layer<plain::Relu, Retain>;
using RealNet =
    Network<Sequential<RealConvolution, RealRelu, RealConvolution, RealRelu, RealConvolution,
                       RealRelu, RealConvolution, RealRelu, RealConvolution, RealRelu,
                       Layer<plain::MeanOverPicture, Retain>, Layer<plain::Linear, Retain>>,
            plain::SoftmaxCrossEntropy>;
constexpr RealNet real_net{{{real(0)},
                            {},
                            {real(1)},
                            {},
                            {real(2)},
                            {},
                            {real(3)},
                            {},
                            {real(4)},
                            {},
                            {},
                            {plain::Linear{.out = parts}}},
                           {}};

/// The network in int8, in memory of its own.
struct Quantized {
  std::vector<std::int8_t> weight[convolutions];
  std::vector<float> weight_scale[convolutions], bias[convolutions], head, head_bias;
  Tables tables{};

  Quantized(Learner& real_one, const float (&largest)[convolutions]) {
    std::size_t k = 0;
    for (const Parameter& p : real_one.table()) {
      const float* const values = real_one.params() + p.offset;
      const std::vector<float> copy(values, values + p.shape.elems());
      const bool is_bias = p.shape.rank() == 1;
      if (k == convolutions) {
        (is_bias ? head_bias : head) = copy;
      } else if (is_bias) {
        bias[k++] = copy;
      } else {
        weight[k].resize(copy.size()), weight_scale[k].resize(geometry[k].out);
        plain::quantize_rows(copy.data(), geometry[k].out, copy.size() / geometry[k].out,
                             weight[k].data(), weight_scale[k].data());
      }
    }
    for (k = 0; k < convolutions; ++k) {
      tables.weight[k] = weight[k].data(), tables.weight_scale[k] = weight_scale[k].data();
      tables.scale[k] = largest[k] / 255;
    }
  }

  void load_into(Learner& learner) const {
    const float* biases[convolutions];
    for (std::size_t k = 0; k < convolutions; ++k) biases[k] = bias[k].data();
    load(learner.table(), tables, biases, head.data(), head_bias.data(), learner.params());
  }
};

/// The largest number that each convolution puts out in the workshop, behind its ReLU.
void calibrate(Learner& real_one, float (&largest)[convolutions]) {
  Cpu cpu;
  std::vector<float> x(pictures.elems()), y;
  std::vector<std::int32_t> classes(batch);
  for (std::uint32_t b = 0; b < 16; ++b) {
    x.resize(pictures.elems());
    take_batch(workshop(), 4, b * batch, x.data(), classes.data());
    Shape shape = pictures;
    for (std::size_t k = 0; k < convolutions; ++k) {
      const Shape to = real(k).output_shape(shape);
      y.resize(to.elems());
      real(k).forward(cpu, ForwardCall<float>{.x = View<const float>(x.data(), shape),
                                              .y = View<float>(y.data(), to),
                                              .params = Params<const float>(
                                                  real_one.params(), &real_one.table()[2 * k], 2)});
      for (float& e : y) e = std::max(e, 0.0F), largest[k] = std::max(largest[k], e);
      x.swap(y), shape = to;
    }
  }
}

/// A convolution of which only at run time is known whether its weight is a constant: for graphs, whose sizes are
/// the device's. A frozen number stands for a
/// constant, which is counted with the tables.
struct Candidate {
  plain::QuantizedTrainedConv2d trained;
  plain::QuantizedConv2d constant;
  bool learns = true;

  static constexpr const char* name = "convolution";
  static constexpr auto backward_reads = reads::input;
  static constexpr auto split = Split::batch;
  Reads reads_when(Wanted wanted) const {
    return learns ? trained.reads_when(wanted) : reads::none;
  }
  Shape output_shape(Shape in) const { return trained.output_shape(in); }
  LayerNeeds needs(Shape in, NeedsQuery query) const {
    return learns ? trained.needs(in, query) : constant.needs(in, query);
  }

  std::array<ParameterSpec, 2> parameters(Shape in) const {
    std::array<ParameterSpec, 2> list = trained.parameters(in);
    if (!learns) list[0].shape = Shape(1), list[0].frozen = true;
    return list;
  }
};

/// The graph of a device that trains what `chosen` says.
Result<Graph> graph_of(const Tables& tables, const std::vector<int>& chosen) {
  using Convolution = Layer<Candidate, Compress<Bf16>>;
  const auto candidate = [&]<std::size_t k>(std::integral_constant<std::size_t, k>) -> Convolution {
    return {{Camera<(1U << convolutions) - 1>::convolution<k>(tables).functor,
             Camera<0>::convolution<k>(tables).functor, chosen[2 * k] != 0}};
  };
  const auto net = [&]<std::size_t... k>(std::index_sequence<k...>) {
    return Network{Sequential{candidate(std::integral_constant<std::size_t, k>())...,
                              layer<Retain>(plain::MeanOverPicture{}),
                              layer<Retain>(plain::Linear{.out = parts})},
                   plain::SoftmaxCrossEntropy{}};
  }
  (std::make_index_sequence<convolutions>());
  const Result<Graph> whole = make_graph(net, pictures, {.parts = parts_of_step});
  if (!whole) return whole.error;
  const TrainedSet set = trained_set(*whole, chosen);
  return make_graph(net, pictures, {.parts = parts_of_step, .trained = &set});
}

/// Which tensors are worth their bytes: each is trained alone, beside the last layer, in two places that the
/// device will not see, and gains accuracy over the last layer alone.
std::vector<double> contributions(const Quantized& quantized) {
  const auto net = Camera<(1U << convolutions) - 1>::network(quantized.tables);
  std::vector<double> gains(tensors + 1);
  for (std::size_t t = 0; t <= tensors; ++t) {
    std::vector<int> chosen(tensors);
    if (t < tensors) chosen[t] = 1;
    for (const std::uint32_t where : {1000U, 1001U}) {
      const TrainedSet set = trained_set(value_of(make_graph(net, pictures)), chosen);
      Learner learner(net, value_of(make_graph(net, pictures, {.trained = &set})));
      quantized.load_into(learner);
      learner.learn(place(where), 5, {.steps = 24, .rate = 4e-3});
      gains[t] += learner.accuracy(place(where), 6, 192) / 2;
    }
  }
  const double alone = gains[tensors];
  std::printf(
      "adapted to other places for a while, with the last layer alone: %.3f; more, if there also "
      "learns\n",
      alone);
  gains.pop_back();
  for (double& gain : gains) gain = std::max(gain - alone, 0.0);
  return gains;
}

Error write(const std::string& path, const Quantized& q, const std::vector<int>& chosen) {
  std::vector<std::int8_t> trained(chosen.begin(), chosen.end());
  std::vector<NamedTensor> list;
  const auto add = [&](const std::string& name, const auto& values, Shape shape) {
    list.emplace_back(name, View(values.data(), shape));
  };
  const std::vector<float> grids(q.tables.scale, q.tables.scale + convolutions);
  for (std::size_t k = 0; k < convolutions; ++k) {
    const std::string name = "conv" + std::to_string(k);
    const Geometry g = geometry[k];
    add(name + ".weight", q.weight[k], Shape(g.out, 3, 3, g.in));
    add(name + ".weight_scale", q.weight_scale[k], Shape(g.out));
    add(name + ".bias", q.bias[k], Shape(g.out));
  }
  add("head.weight", q.head, Shape(parts, geometry[convolutions - 1].out));
  add("head.bias", q.head_bias, Shape(parts));
  add("grid_scale", grids, Shape(convolutions));
  add("trained", trained, Shape(tensors));
  return write_weights_header(path, list, "camera");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tiny_camera_offline HEADER\n");
    return 2;
  }
  Learner real_one(real_net, value_of(make_graph(real_net, pictures)));
  Cpu cpu;
  initialize_parameters(cpu, real_one.table(), real_one.block(), 1);
  // Behind ReLUs signals keep their size if weights are larger than a linear layer's.
  for (float& value : real_one.block()) value *= 2.2F;
  real_one.learn(workshop(), 1, {.steps = 900, .rate = 3.5e-3});
  const double exact = real_one.accuracy(workshop(), 2, 512);
  if (exact < 0.8) die(Error::say("the network did not learn: too few pictures are named right"));
  float largest[convolutions] = {};
  calibrate(real_one, largest);
  const Quantized quantized(real_one, largest);
  const auto net = Camera<(1U << convolutions) - 1>::network(quantized.tables);
  const Graph whole = value_of(make_graph(net, pictures));
  {
    Learner int8_one(net, whole);
    quantized.load_into(int8_one);
    std::printf("trained in the workshop, right on fresh pictures: %.3f in float, %.3f in int8\n",
                exact, int8_one.accuracy(workshop(), 2, 512));
  }
  const std::vector<double> gains = contributions(quantized);

  std::vector<LayerGroup> groups = tensor_groups(whole);
  groups.resize(tensors);
  const auto make = [&](const TrainedSet& set) {
    std::vector<int> chosen;
    for (const LayerGroup& group : groups) chosen.push_back(set[group.parameters[0]] ? 1 : 0);
    return graph_of(quantized.tables, chosen);
  };
  const FreezeBudget budget{.total_bytes = device_bytes - table_bytes - rest_bytes};
  const FreezeOutcome outcome =
      value_of(freeze_to_fit(whole, groups, make, gains, budget, Optimizer{}, {}));
  std::vector<int> chosen(tensors);
  for (std::size_t t = 0; t < tensors; ++t) {
    chosen[t] = outcome.frozen[t] ? 0 : 1;
    std::printf("  convolution %zu, %-6s  %5zu numbers  +%.3f  %s\n", t / 2,
                t % 2 == 0 ? "weight" : "bias",
                whole.parameters[groups[t].parameters[0]].shape.elems(), gains[t],
                chosen[t] != 0 ? "trained" : "");
  }
  std::printf(
      "all would take %zu bytes beside tables and programs, these take %zu of %zu; %d plans\n",
      outcome.least_before, outcome.least_after, budget.total_bytes, outcome.plans);
  if (const Error why = write(argv[1], quantized, chosen)) die(why);
}
