// SPDX-License-Identifier: MIT
/// Uses a ready-made layer, which needs Eigen's headers and threads.
#include <adacc/adapter/eigen_pool.hpp>
#include <adacc/layer/relu.hpp>

int main() {
  float x[] = {-1, 2}, y[2];
  adacc::EigenPool pool(2);
  adacc::Cpu cpu{adacc::ExecutorRef(pool)};
  adacc::Relu{}.forward(cpu, adacc::View<const float>(x, adacc::Shape(2)),
                        adacc::View<float>(y, adacc::Shape(2)));
  return EIGEN_WORLD_VERSION == 3 && y[0] == 0 && y[1] == 2 ? 0 : 1;
}
