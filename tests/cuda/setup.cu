// SPDX-License-Identifier: MIT
/// What can be wrong when a device, a stream or memory is lent: each an error value in words. argv[1]
/// says what; the test compares the words. The executor pretends to be the machines that it takes.
#define ADACC_ASSERT(holds, text) static_cast<void>(0)

#include <adacc/io/product_choices.hpp>
#include <adacc/train.cuh>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace adacc;

using Traits = context_traits<Cuda>;
static_assert(Traits::own_memory && Traits::returns_errors && Traits::loss_may_fail);
static_assert(Traits::looks_at_memory && Traits::has_stream && Traits::gathers);

int say(const Error& error) {
  std::printf("%s\n", error ? error.text() : "no error");
  return error ? 0 : 1;
}

/// What is wrong with one of its blocks, of a step that has all the others.
struct Lent {
  using Net = Network<Sequential<Layer<Linear>, Layer<Relu>>, MeanSquaredError>;

  explicit Lent(bool with_products = true) {
    products = CudaProducts::make();
    cuda = *Cuda::make(nullptr, with_products ? &*products : nullptr);
    auto program = make_program<Cuda>(net, Shape(8, 16));
    step = static_cast<Step<float, Cuda>&&>(*Step<float, Cuda>::make(net, *program));
    arena = DeviceBlock<std::byte>::make(step.arena_bytes(), "arena");
    params = DeviceBlock<float>::make(step.graph().parameter_elems, "parameters");
    gradients = DeviceBlock<float>::make(step.graph().parameter_elems, "gradients");
    input = DeviceBlock<float>::make(8 * 16, "input");
    targets = DeviceBlock<float>::make(8 * 4, "targets");
    place = DeviceBlock<double>::make(1, "loss");
  }
  Error bind() { return step.bind(arena->view(), params->view(), gradients->view()); }
  Error ready() {
    if (const Error why = bind()) return why;
    return step.bind_loss(Cuda::Loss(place->data(), nullptr));
  }
  View<const float> x() { return {input->data(), Shape(8, 16)}; }
  View<const float> y() { return {targets->data(), Shape(8, 4)}; }

  Net net{{{Linear{.out = 4}}, {}}, {}};
  Result<CudaProducts> products;
  Cuda cuda;
  Step<float, Cuda> step;
  Result<DeviceBlock<std::byte>> arena;
  Result<DeviceBlock<float>> params, gradients, input, targets;
  Result<DeviceBlock<double>> place;
};

alignas(64) float host[1024];

/// A library of attention that takes all sizes.
struct Library final : CudaAttention {
  const char* name() const override { return "a library"; }
  void take_up(std::size_t, Answer& answer) override { answer.forward_bytes = 4096; }
  Error run_forward(std::size_t, const Forward&) override { return {}; }
  Error run_backward(std::size_t, const Backward&) override { return {}; }
};

/// Products whose algorithms are chosen by time: the fastest is taken, and what was chosen once is taken again. The
/// executor's algorithms cut sums into 1, 2 or 3 pieces, so their bits show which one ran.
struct ProductsByTime {
  static constexpr std::size_t m = 3, n = 5, k = 37;
  using Sums = std::vector<float>;

  cudaStream_t stream = nullptr;
  DeviceBlock<float> a, b, c;
  int failures = 0;

  void expect(bool holds, const char* what, const Error& why = {}) {
    if (holds) return;
    ++failures;
    std::printf("FAILED: %s %s\n", what, why.text());
  }
  Error make() {
    for (const auto& [block, elems] : {std::pair{&a, m * k}, {&b, k * n}, {&c, m * n}}) {
      auto made = DeviceBlock<float>::make(elems, "an operand");
      if (!made) return made.error;
      *block = static_cast<DeviceBlock<float>&&>(*made);
    }
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
      return Error::say("no stream");
    Cuda cuda(stream);
    for (DeviceBlock<float>* block : {&a, &b}) {
      Sums numbers(block->size());
      for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = 0.1F + static_cast<float>(i * i % 23);
      if (const Error why = copy_to_device(
              cuda, View<const float>(numbers.data(), Shape(numbers.size())), block->view()))
        return why;
    }
    return {};
  }
  /// C += A B, from C = 1.
  Sums multiply(CudaProducts& products) {
    Cuda cuda(stream);
    cuda.fill(c.view(), 1.0F);
    const Error why = queue(products);
    expect(!why, "a product is not queued:", why);
    Sums sums(m * n);
    expect(!copy_to_host(cuda, c.view(), View<float>(sums.data(), Shape(m * n))), "no copy");
    return sums;
  }
  Error queue(CudaProducts& products) {
    return products.multiply("a product", stream,
                             CudaProduct<float>{.m = m,
                                                .n = n,
                                                .k = k,
                                                .a = a.data(),
                                                .a_transposed = false,
                                                .b = b.data(),
                                                .b_transposed = false,
                                                .c = c.data(),
                                                .accumulates = true});
  }
  Sums fastest_is(const char* pieces, CudaProducts& products, const ProductChoices& known) {
    setenv("PTXRUN_FAST_PRODUCT", pieces, 1);
    expect(!products.choose_by_time(known), "products cannot be timed");
    return multiply(products);
  }

  int all() {
    if (const Error why = make()) return say(why);
    CudaProducts products = static_cast<CudaProducts&&>(*CudaProducts::make());
    const auto says = [&](const char* words) {
      return std::strstr(products.remark().text(), words) != nullptr;
    };
    const Sums first = multiply(products), one = fastest_is("1", products, {}),
               two = fastest_is("2", products, {});
    expect(one == first && two != one, "the fastest algorithm is not taken");
    expect(products.timed() == 1 && !products.remark(), "one product was not timed once");
    expect(multiply(products) == two && products.timed() == 1, "a product was timed twice");

    const ProductChoices made = products.choices();
    auto known = parse_product_choices(product_choices_text(made));
    expect(known && product_choices_text(*known) == product_choices_text(made) &&
               made.list.size() == 1 && made.list[0].microseconds > 0,
           "choices that are written are not read back:", known.error);
    expect(fastest_is("3", products, *known) == two && products.timed() == 0 && !products.remark(),
           "a known choice is not taken:", products.remark());
    setenv("PTXRUN_CUBLASLT_VERSION", "130200", 1);
    const Sums three = fastest_is("3", products, *known);
    expect(three != two && three != one && products.timed() == 1 &&
               says("are those of cuBLASLt 130100 on ") && says("and this is cuBLASLt 130200") &&
               says("they are chosen anew"),
           "choices of another library are taken:", products.remark());
    unsetenv("PTXRUN_CUBLASLT_VERSION");
    ProductChoices wrong = *known;
    for (std::uint64_t& word : wrong.list[0].algorithm.word) word = ~word;
    expect(fastest_is("3", products, wrong) == three && says("does not run a known algorithm"),
           "an algorithm that nobody runs is taken:", products.remark());

    expect(!products.choose_by_time(), "products cannot be timed");
    cudaGraph_t graph = nullptr;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    expect(!queue(products), "a captured product is not queued");
    expect(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "timing breaks a capture");
    expect(says("takes the first algorithm: it is seen first while its stream is captured"),
           "a captured product is timed:", products.remark());
    expect(multiply(products) == one && products.timed() == 0, "a graph's algorithm is not kept");
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    if (failures == 0) std::printf("products were chosen by time\n");
    return failures;
  }
};

int run(const char* what) {
  const auto is = [&](const char* name) { return std::strcmp(what, name) == 0; };
  if (is("device")) return say(Cuda::make(nullptr).error);
  if (is("stream")) {
    cudaStream_t stream = nullptr;
    cudaSetDevice(1);
    cudaStreamCreate(&stream);
    cudaSetDevice(0);
    return say(Cuda::make(stream).error);
  }
  if (is("memory")) return say(DeviceBlock<float>::make(1 << 20, "activations").error);
  if (is("head_size")) {
    const Network net{Sequential{layer<Retain>(CausalAttention{.heads = 1})}, MeanSquaredError{}};
    if (make_graph(net, Shape(1, 4, 3 * 200)).error) return 1;
    return say(make_graph<Cuda>(net, Shape(1, 4, 3 * 200)).error);
  }
  if (is("attention") || is("attention_room")) {
    Library library;
    Cuda cuda(nullptr, nullptr, &library);
    ForwardCall<bfloat16> call;
    call.x = {nullptr, Shape(2, 8, 3 * 16)};
    if (is("attention_room")) {  // a graph of the same sizes was made with it, and this step's without
      library.prepare(detail::lent_sizes(CausalAttention{.heads = 2}, call.x.shape()));
    }
    if (!detail::lent_forward(CausalAttention{.heads = 2}, cuda, call)) return 1;
    return say(cuda.take_error());
  }
  if (is("long_sequence")) {
    const Network net{Sequential{layer<Retain>(CausalAttention{.heads = 1})}, MeanSquaredError{}};
    return say(make_graph<Cuda>(net, Shape(1, 65535 * 32 + 1, 3)).error);
  }
  if (is("host_lengths")) {
    const std::int32_t length = 2;
    Cuda cuda;
    cuda.lengths = {&length, Shape(1)};
    kernel<BidirectionalAttention, Cuda>::forward({.heads = 1}, cuda, ForwardCall<float>{});
    return say(cuda.take_error());
  }
  if (is("store_of_another_device")) {
    cudaStream_t stream = nullptr;
    cudaSetDevice(1);
    cudaStreamCreate(&stream);
    cudaSetDevice(0);
    return say(PinnedHost::make(4096, stream).error);
  }
  Lent lent(!is("products"));
  const auto elems = lent.params->size();
  if (is("fine")) {
    if (lent.ready()) return 1;
    const Result<double> loss = lent.step.run(lent.cuda, lent.x(), lent.y());
    std::printf("loss %g\n", loss ? *loss : -1.0);
    return loss ? 0 : 1;
  }
  if (is("host_arena"))
    return say(lent.step.bind({reinterpret_cast<std::byte*>(host), Shape(sizeof host)},
                              lent.params->view(), lent.gradients->view()));
  if (is("host_parameters"))
    return say(lent.step.bind(lent.arena->view(), View<const float>(host, Shape(elems)),
                              lent.gradients->view()));
  if (is("short_gradients"))
    return say(
        lent.step.bind(lent.arena->view(), lent.params->view(),
                       View<float>(reinterpret_cast<float*>(lent.place->data()), Shape(elems))));
  if (is("other_device")) {
    cudaSetDevice(1);
    auto elsewhere = DeviceBlock<std::byte>::make(lent.step.arena_bytes(), "arena");
    cudaSetDevice(0);
    return say(lent.step.bind(elsewhere->view(), lent.params->view(), lent.gradients->view()));
  }
  if (is("no_loss")) {
    if (lent.bind()) return 1;
    return say(lent.step.submit(lent.cuda, lent.x(), lent.y()));
  }
  if (is("host_loss")) {
    if (lent.bind() || lent.step.bind_loss(Cuda::Loss(reinterpret_cast<double*>(host), nullptr)))
      return 1;
    return say(lent.step.submit(lent.cuda, lent.x(), lent.y()));
  }
  // What is called alone looks at the memory itself, and queues nothing.
  const Shape matrix(8, 16);
  const std::size_t coded = Int8Outlier::encoded_bytes(8, 16, Dtype::f32);
  using Kernel = codec_kernel<Int8Outlier, Cuda>;
  if (is("host_activation"))
    return say(Kernel::encode<float>(lent.cuda, View<const float>(host, matrix),
                                     Bytes(lent.arena->data(), Shape(coded))));
  if (is("host_blob"))
    return say(Kernel::decode<float>(lent.cuda,
                                     ConstBytes(reinterpret_cast<std::byte*>(host), Shape(coded)),
                                     View<float>(lent.input->data(), matrix)));
  if (is("host_mask"))
    return say(codec_kernel<BitMask, Cuda>::encode<float>(
        lent.cuda, View<const float>(host, matrix),
        Bytes(lent.arena->data(), Shape(BitMask::encoded_bytes(8, 16, Dtype::f32)))));
  if (is("host_bf16"))
    return say(codec_kernel<Bf16, Cuda>::decode<float>(
        lent.cuda,
        ConstBytes(reinterpret_cast<std::byte*>(host),
                   Shape(Bf16::encoded_bytes(8, 16, Dtype::f32))),
        View<float>(lent.input->data(), matrix)));
  if (is("host_norm") || is("few_places")) {
    alignas(64) static double places[gradient_norm_places];
    const View<double> few = lent.place->view(), on_host(places, Shape(gradient_norm_places));
    gradient_norm(lent.cuda, lent.gradients->view(), is("few_places") ? few : on_host);
    return say(lent.cuda.take_error());
  }
  if (is("host_moments")) {
    const View<float> state[] = {lent.gradients->view(), View<float>(host, Shape(elems))};
    CudaUpdateTerms terms;
    terms.number = 1, terms.rate = 1e-3;
    optimizer_kernel<AdamW, Cuda>::update(
        AdamW{}, lent.cuda, lent.step.graph().parameters,
        UpdateBlocks<float>{lent.params->view(), lent.gradients->view(), state}, terms);
    return say(lent.cuda.take_error());
  }
  if (lent.ready()) return 1;
  if (is("launch_on_another_device")) {
    cudaStream_t stream = nullptr;
    cudaSetDevice(1);
    cudaStreamCreate(&stream);
    cudaSetDevice(0);
    Cuda cuda(stream);
    cuda.fill(lent.gradients->view(), 1.0F);
    return say(cuda.take_error());
  }
  if (is("error_of_others")) {
    // Somebody else's call fails, and nobody has asked yet.
    cudaSetDevice(99);
    const Result<double> loss = lent.step.run(lent.cuda, lent.x(), lent.y());
    gradient_norm(lent.cuda, lent.gradients->view(),
                  DeviceBlock<double>::make(gradient_norm_places, "norm")->view());
    if (!loss) return say(loss.error);
    if (const Error why = lent.cuda.take_error()) return say(why);
    return std::printf("left: %s\n", cudaGetErrorString(cudaGetLastError())), 0;
  }
  if (is("by_time")) return ProductsByTime{}.all();
  if (is("two_threads")) {
    // Two threads share what multiplies, and each brings shapes that nobody has seen.
    constexpr std::size_t most = 16;
    Error faults[2];
    const auto multiply = [&](std::size_t t) {
      for (std::size_t n = 1; n <= most; ++n)
        if (const Error why = lent.products->multiply(
                "a product", nullptr,
                CudaProduct<float>{n, 4, 4 + t, lent.input->data(), false, lent.params->data(),
                                   false, lent.gradients->data(), false}))
          faults[t] = why;
    };
    std::thread other(multiply, 1);
    multiply(0);
    other.join();
    if (faults[0] || faults[1]) return say(faults[0] ? faults[0] : faults[1]);
    std::printf("two threads multiplied\n");
    return 0;
  }
  if (is("products_of_another_device")) {
    cudaSetDevice(1);
    auto elsewhere = CudaProducts::make();
    cudaSetDevice(0);
    Cuda cuda(lent.cuda.stream(), &*elsewhere);
    return say(lent.step.run(cuda, lent.x(), lent.y()).error);
  }
  if (is("host_input"))
    return say(lent.step.submit(lent.cuda, View<const float>(host, Shape(8, 16)), lent.y()));
  if (is("products")) return say(lent.step.run(lent.cuda, lent.x(), lent.y()).error);
  if (is("copy_to_host"))
    return say(copy_to_host(lent.cuda, lent.params->view(), lent.params->view()));
  if (is("copy_to_device"))
    return say(copy_to_device(lent.cuda, View<const float>(host, Shape(16)),
                              View<float>(host + 16, Shape(16))));
  const bool other = is("store_of_another_stream");
  if (is("stores") || other) {
    using Hidden = Sequential<Layer<Linear, Offload<>>, Layer<Gelu, Offload<>>>;
    const Network net{Sequential<Repeat<Hidden>, Layer<Linear>>{
                          {8, Hidden{{Linear{.out = 64}}, {}}}, {Linear{.out = 1}}},
                      MeanSquaredError{}};
    auto program = make_program<Cuda>(net, Shape(64, 64));
    if (program->schedule.store_bytes == 0) return std::printf("nothing is sent\n"), 1;
    auto step = Step<float, Cuda>::make(net, *program);
    const std::size_t all = step->graph().parameter_elems;
    auto arena = DeviceBlock<std::byte>::make(step->arena_bytes(), "arena", transfer_alignment);
    auto params = DeviceBlock<float>::make(all, "p"),
         gradients = DeviceBlock<float>::make(all, "g");
    auto memory = Block<std::byte>::make(step->store_bytes(), "a store");
    MemoryStore store(memory->view());
    if (!other) return say(step->bind(arena->view(), params->view(), gradients->view(), store));
    // Copies that are ordered with the default stream, and a step on another one.
    auto products = CudaProducts::make();
    cudaStream_t stream = nullptr;
    cudaStreamCreate(&stream);
    auto cuda = Cuda::make(stream, &*products);
    auto host = PinnedHost::make(step->store_bytes());
    auto x = DeviceBlock<float>::make(64 * 64, "x"), y = DeviceBlock<float>::make(64, "y");
    auto place = DeviceBlock<double>::make(1, "loss");
    if (const Error why = step->bind(arena->view(), params->view(), gradients->view(), *host))
      return say(why);
    if (const Error why = step->bind_loss(Cuda::Loss(place->data(), nullptr))) return say(why);
    return say(step->run(*cuda, View<const float>(x->data(), Shape(64, 64)),
                         View<const float>(y->data(), Shape(64, 1)))
                   .error);
  }
  std::printf("there is no case %s\n", what);
  return 1;
}

}  // namespace

int main(int count, char** arguments) { return run(count > 1 ? arguments[1] : "fine"); }
