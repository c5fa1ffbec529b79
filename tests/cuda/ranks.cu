// SPDX-License-Identifier: MIT
/// Training on several devices: a DataParallel in Cuda over NcclGroup, and an NCCL that is made up. The losses and the
/// parameters have the same bits on 1, 2 and 4 ranks; gradients are sent while backward goes on. Ranks are processes,
/// each with an executor of its own.
#include <adacc/ranks/data_parallel/data_parallel.cuh>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 2810  // nvcc takes the assignment of a Result for one that is ignored
#include <adacc/adapter/nccl.cuh>
#include <adacc/layer/gelu.cuh>
#include <adacc/layer/linear.cuh>
#include <adacc/layer/mean_squared_error.cuh>
#include <adacc/model/network.hpp>
#include <adacc/model/sequential.hpp>
#include <adacc/policy/planned.hpp>
#pragma nv_diagnostic pop

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "device_memory.hpp"
#include "made_up_nccl.hpp"

namespace {

using namespace adacc;

constexpr std::size_t rows = 8, width = 24;
constexpr int shards = 4;
const auto net = [] {
  const auto linear = layer<Planned>(Linear{.out = width});
  const auto gelu = layer<Planned>(Gelu{});
  return Network{Sequential{linear, gelu, linear, gelu, layer<Planned>(Linear{.out = width})},
                 MeanSquaredError{}};
}();

int failed(int rank, const char* what, const char* why = "") {
  std::printf("FAILED: rank %d: %s %s\n", rank, what, why);
  return 1;
}

/// What a run ends with, for one rank.
struct Numbers {
  double losses = 0, norms = 0;
  float params[3 * (width * width + width) + 64] = {};
};

/// One rank, and what it trains.
struct Rank {
  made_up_nccl::Group& host;
  cudaStream_t stream;
  CudaProducts products;
  Cuda cuda;
  NcclGroup devices;
  DataParallel<float, Cuda> parallel;
  DeviceBlock<float> memory;  ///< inputs and targets

  int open() {
    auto products_made = CudaProducts::make();
    auto group = NcclGroup::make(host, {.limit_seconds = 20, .channels = 2, .stream = stream});
    auto block = DeviceBlock<float>::make(2 * rows * width, "a batch");
    if (!group) return failed(host.rank(), "NCCL:", group.error.text());
    if (!products_made || !block) return failed(host.rank(), "no memory");
    products = std::move(*products_made);
    devices = std::move(*group);
    memory = std::move(*block);
    cuda = Cuda(stream, &products);
    auto made = DataParallel<float, Cuda>::make(
        host, net, Shape(rows, width), {.context = cuda, .seed = 3},
        {.shards = shards, .sums = {.chunk_bytes = 1024, .chunks = 2}, .device_group = devices});
    if (!made) return failed(host.rank(), "make:", made.error.text());
    parallel = std::move(*made);
    return 0;
  }

  /// The update with this number: its batches follow from that.
  int update(int number, Numbers& to) {
    const Shape shape(rows, width);
    std::vector<float> x(shape.elems()), y(shape.elems());
    const View<float> input(memory.data(), shape), targets(memory.data() + x.size(), shape);
    for (int s = 0; s < parallel.shard_count(); ++s) {
      const auto batch = static_cast<std::size_t>(number * shards + parallel.first_shard() + s);
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<float>((i * 7 + batch * 3) % 13) / 13;
        y[i] = static_cast<float>((i * 5 + batch) % 11) / 11;
      }
      if (copy_to_device(cuda, View<const float>(x.data(), shape), input) ||
          copy_to_device(cuda, View<const float>(y.data(), shape), targets))
        return failed(host.rank(), "no copy");
      const auto loss = parallel.accumulate(View<const float>(input), View<const float>(targets));
      if (!loss) return failed(host.rank(), "accumulate:", loss.error.text());
    }
    const auto outcome = parallel.update(1e-2);
    if (!outcome) return failed(host.rank(), "update:", outcome.error.text());
    to.losses += outcome->loss, to.norms += outcome->grad_norm;
    return 0;
  }
  int read(Numbers& to) {
    const Error why = parallel.training().read_parameters([&](View<const float> params) {
      if (params.size() > std::size(to.params)) return Error::say("too many parameters");
      for (std::size_t i = 0; i < params.size(); ++i) to.params[i] = params[i];
      return Error();
    });
    return why ? failed(host.rank(), "parameters:", why.text()) : 0;
  }
};

/// Three updates on one rank, whose numbers `to` gets; and a fourth, from the parameters as they are and from a checkpoint.
int train(made_up_nccl::Group& host, Numbers& to) {
  cudaStream_t stream = nullptr;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
    return failed(host.rank(), "no stream");
  int failures = 0;
  {
    Rank rank{host, stream, {}, {}, {}, {}, {}};
    if (rank.open() != 0) return 1;
    for (int number = 0; number < 3; ++number) failures += rank.update(number, to);
    if (const Error why = rank.parallel.check_parameters())
      failures += failed(host.rank(), "check:", why.text());
    failures += rank.read(to);
    const std::string path = "ranks_" + std::to_string(host.size()) + ".ckpt";
    Numbers fourth, again;
    const Error saved = rank.parallel.save(path);
    failures += rank.update(3, fourth) + rank.read(fourth);
    const Error loaded = rank.parallel.load(path);
    failures += rank.update(3, again) + rank.read(again);
    if (saved || loaded)
      failures += failed(host.rank(), "checkpoint:", (saved ? saved : loaded).text());
    if (std::memcmp(&fourth, &again, sizeof again) != 0)
      failures += failed(host.rank(), "a checkpoint gives other numbers");
  }
  cudaStreamDestroy(stream);
  return failures;
}

/// A block is summed although its stream does not get on with what was queued behind it.
int sums_beside() {
  return made_up_nccl::on_ranks(2, [](made_up_nccl::Group& host) {
    cudaStream_t stream = nullptr, other = nullptr;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess ||
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) != cudaSuccess)
      return failed(host.rank(), "no stream");
    auto devices = NcclGroup::make(host, {.limit_seconds = 20, .channels = 2, .stream = stream});
    auto block = DeviceBlock<float>::make(1000, "a block");
    if (!devices || !block) return failed(host.rank(), "no group");
    Cuda cuda(stream);
    using Sums = RankSums<float, Cuda>;
    auto sums = Sums::make(*devices, 1, {.chunk_bytes = 1024, .chunks = 2}, Sums::Memory(cuda));
    if (!sums) return failed(host.rank(), "sums:", sums.error.text());
    cuda.fill(block->view(), static_cast<float>(host.rank() + 1));
    sums->sum(block->view());
    sums->close();
    bool goes_on = false;
    ptxrun::enqueue(stream, [&] { return goes_on ? cudaSuccess : cudaErrorNotReady; });
    const Error why = sums->finish();
    std::vector<float> numbers(block->size());
    Cuda beside(other);
    const Error copied =
        copy_to_host(beside, block->view(), View<float>(numbers.data(), Shape(numbers.size())));
    goes_on = true;
    if (why || copied) return failed(host.rank(), "beside:", (why ? why : copied).text());
    for (const float number : numbers)
      if (number != 3) return failed(host.rank(), "a sum is wrong");
    return cudaStreamSynchronize(stream) == cudaSuccess ? 0 : failed(host.rank(), "stream");
  });
}

/// What is refused, in words.
int refused() {
  return made_up_nccl::on_ranks(2, [](made_up_nccl::Group& host) {
    auto cuda = Cuda::make(nullptr);
    if (!cuda) return failed(host.rank(), "no context");
    const auto said = [&](const DataParallelOptions& parallel, const char* words) {
      const std::string why = DataParallel<float, Cuda>::make(host, net, Shape(rows, width),
                                                              {.context = *cuda}, parallel)
                                  .error.text();
      if (why.find(words) != std::string::npos) return 0;
      return failed(host.rank(), words, why.c_str());
    };
    made_up_nccl::Group alone(0, 1);
    return said({}, "lend a group of the same ranks that reaches it") +
           said({.device_group = alone}, "the device_group has rank 0 of 1") +
           said({.sharded_state = true, .device_group = host}, "on a device, each rank keeps");
  });
}

}  // namespace

int main() {
  // Written by the processes of ranks.
  auto* const all = static_cast<Numbers*>(mmap(nullptr, 3 * sizeof(Numbers), PROT_READ | PROT_WRITE,
                                               MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (all == MAP_FAILED) return failed(0, "no memory");
  int failures = sums_beside() + refused(), runs = 0;
  for (const int ranks : {1, 2, 4}) {
    Numbers& numbers = all[runs++];
    failures += made_up_nccl::on_ranks(ranks, [&](made_up_nccl::Group& host) {
      Numbers mine;
      const int status = train(host, mine);
      if (host.rank() == 0) std::memcpy(&numbers, &mine, sizeof mine);
      return status;
    });
    std::printf("%d ranks: losses %.9g, norms %.9g\n", ranks, numbers.losses, numbers.norms);
    if (!(numbers.losses > 0) || !(numbers.norms > 0)) failures += failed(0, "it does not train");
    if (std::memcmp(&numbers, &all[0], sizeof numbers) != 0)
      failures += failed(0, "the bits are not those of one rank");
  }
  return failures == 0 ? 0 : 1;
}
