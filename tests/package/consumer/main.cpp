// SPDX-License-Identifier: MIT
/// Uses the host library alone: a layer, a network, its peak as a constant, and one step, on memory
/// of its own. Whatever way adacc was found, this is all a consumer needs.
#include <adacc/adacc.hpp>

static_assert(ADACC_VERSION_MAJOR == 0, "the version comes with the headers");

namespace {

struct Double {
  static constexpr auto backward_reads = adacc::reads::none;
  void forward(adacc::Cpu&, adacc::View<const float> x, adacc::View<float> y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = 2 * x[i];
  }
  void backward(adacc::Cpu&, adacc::View<const float> dy, adacc::View<float> dx) const {
    for (std::size_t i = 0; i < dy.size(); ++i) dx[i] = 2 * dy[i];
  }
};

struct Sum {
  double forward(adacc::Cpu&, const adacc::LossCall<float>& call) const {
    double sum = 0;
    for (const float value : call.x) sum += value;
    return sum;
  }
  double forward_backward(adacc::Cpu& cpu, const adacc::LossCall<float>& call) const {
    for (float& value : call.dx) value = 1;
    return forward(cpu, call);
  }
};

using Chain = adacc::Sequential<adacc::Layer<Double>, adacc::Layer<Double, adacc::Recompute>>;
using Net = adacc::Network<Chain, Sum>;
constexpr adacc::Shape shape(4, 16);
constexpr std::size_t peak = adacc::peak_bytes<Net>(shape);
static_assert(peak != 0 && peak <= adacc::KiB);

alignas(adacc::alignment) std::byte arena[peak];
alignas(adacc::alignment) float input[64], targets[64];

}  // namespace

int main() {
  const Net net{};
  auto program = adacc::make_program(net, shape);
  if (!program) return 1;
  auto step = adacc::Step<>::make(net, *program);
  if (!step || step->arena_bytes() != peak) return 2;
  if (step->bind(adacc::Bytes(arena, adacc::Shape(peak)), {})) return 3;
  for (float& value : input) value = 1;
  adacc::Cpu cpu;
  const auto loss = step->run(cpu, adacc::View<const float>(input, shape),
                              adacc::View<const float>(targets, shape));
  return loss && *loss == 256 ? 0 : 4;
}
