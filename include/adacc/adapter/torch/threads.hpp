// SPDX-License-Identifier: MIT
/// libtorch's intra-op threads as an executor: codecs run on the threads of operators, as many as set by
/// at::set_num_threads().
#pragma once

#include <cstddef>
#include <cstdint>

#include <ATen/Parallel.h>

#include "../../core/executor.hpp"

namespace adacc { inline namespace v0_1 { namespace torch {

struct Threads {
  int workers() const { return at::get_num_threads(); }

  void run(std::size_t tiles, TileFn tile) const {
    at::parallel_for(0, static_cast<std::int64_t>(tiles), 1,
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i)
                         tile(static_cast<std::size_t>(i), at::get_thread_num());
                     });
  }
};

}}}  // namespace adacc::v0_1::torch
