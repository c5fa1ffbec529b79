// SPDX-License-Identifier: MIT
/// A GPT that trains on a CUDA device.
#include <adacc/train.cuh>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 2810  // nvcc takes the assignment of a Result for one that is ignored
#include <adacc/train/make.hpp>
#include <adacc/train/save.hpp>
#include <adacc/train/tile_rows.hpp>
#pragma nv_diagnostic pop

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <support/cuda/cudnn_attention.hpp>

#include "device_training.hpp"
#include "products_file.hpp"

namespace {

using namespace adacc;

/// With activations in T.
template <class T>
class CudaTraining final : public DeviceTraining {
  using Trained = Training<T, Cuda, AnyOptimizer>;

 public:
  explicit CudaTraining(const Options& options)
      : options_(options), network_(gpt::make<gpt::PlannedSet>(options.network)) {}

  Error set_up(const DevicePlanning& planning) {
    if (const Error why = open_device()) return why;
    network_.loss.device_tile_rows = 0;  // shares of what retain needs do not depend on a choice
    const Result<Graph> whole = lower(planning);
    if (!whole) return whole.error;
    retain_peak_ = peak_bytes(*whole, retain_all(*whole));
    typename Trained::Options how = planning_options(planning);
    if (options_.plans())
      if (const Error why = set_budget(*whole, how)) return why;
    auto rows = options_.network.device_tile_rows != 0
                    ? Result<std::size_t>(options_.network.device_tile_rows)
                    : choose_tile_rows<T>(network_, input_shape(), how);
    if (!rows) return rows.error;
    network_.loss.device_tile_rows = *rows;
    Result<Graph> graph = lower(planning);
    if (!graph) return graph.error;
    if (!options_.plans()) retain_peak_ = peak_bytes(*graph, retain_all(*graph));
    if (const Error why = make_evaluation(*graph)) return why;
    Error why = options_.plans() ? plan(std::move(*graph), planning, std::move(how))
                                 : fix_plan(std::move(*graph), planning);
    if (why) return why;
    training_.context().capture_steps = !options_.no_capture;
    training_.clip = {options_.clip,
                      options_.clip_by == "step" ? ClipBy::this_step : ClipBy::previous};
    training_.model = options_.model_text();
    return mark_arena();
  }

  Error prepare(TokenView inputs, TokenView targets) override {
    if (const Error why = load_batch(inputs, targets)) return why;
    if (const Error why = training_.prepare(inputs_, targets_)) return why;
    return mark_arena();
  }
  Result<double> accumulate(TokenView inputs, TokenView targets) override {
    if (const Error why = load_batch(inputs, targets)) return why;
    return training_.accumulate(inputs_, targets_);
  }
  Result<TrainingOutcome> update(double rate) override { return updated(training_.update(rate)); }
  Result<TrainingOutcome> step(TokenView inputs, TokenView targets, double rate) override {
    if (const Error why = load_batch(inputs, targets)) return why;
    return updated(training_.step(inputs_, targets_, rate));
  }
  Error save(const std::string& path, const std::string& notes) const override {
    return training_.save(path, notes);
  }
  Error load(const std::string& path, Restore what) override {
    if (const auto loaded = training_.load(path, what); !loaded) return loaded.error;
    return mark_arena();
  }
  std::uint64_t updates() const override { return training_.updates(); }
  const PlanBoundary& boundary() const override { return training_.boundary(); }
  const Evolution* evolution() const override { return training_.evolution(); }
  TrainingMemoryUse memory_use() const override { return training_.memory_use(); }
  const Program& program() const override { return training_.compiled_step().program(); }
  std::uint64_t captured_steps() const override { return training_.captured_steps(); }
  Error capture_failure() const override { return training_.capture_failure(); }

  void set_seed(std::uint64_t seed) override { training_.context().key.seed = seed; }
  void set_data_position(std::uint64_t position) override { training_.data_position = position; }
  Error read_parameters(View<float> to) const override {
    return training_.read_parameters([&](View<const float> from) {
      std::copy(from.begin(), from.end(), to.begin());
      return Error();
    });
  }
  Error write_parameters(View<const float> from) override {
    return training_.write_parameters([&](View<float> to) {
      std::copy(from.begin(), from.end(), to.begin());
      return Error();
    });
  }

  Result<double> evaluate(TokenView inputs, TokenView targets) override {
    if (const Error why = load_batch(inputs, targets)) return why;
    return training_.evaluate(inputs_, targets_);
  }

  std::size_t retain_peak() const override { return retain_peak_; }
  std::size_t total_bytes() const override { return total_bytes_; }
  std::size_t head_rows() const override { return network_.loss.device_tile_rows; }
  std::size_t measured_peak() const override {
    // Only the end of the arena is looked at, as a rule.
    std::vector<std::byte> piece(64 * KiB);
    Cuda cuda(stream_.get());
    const Bytes arena = const_cast<Trained&>(training_).arena();  // which is read
    for (std::size_t end = program().peak_bytes(); end > 0;) {
      const std::size_t begin = end > piece.size() ? end - piece.size() : 0;
      const View<std::byte> from(arena.data() + begin, Shape(end - begin));
      if (copy_to_host(cuda, from, View<std::byte>(piece.data(), from.shape()))) return 0;
      for (std::size_t i = end - begin; i > 0; --i)
        if (piece[i - 1] != std::byte{pattern})
          return std::min(align_up(begin + i), program().peak_bytes());
      end = begin;
    }
    return 0;
  }
  std::string device() const override {
    return name_ + (dtype_of<T> == Dtype::bf16 ? ", activations in bf16" : "") + attention_text() +
           products_file_.text();
  }

 private:
  static constexpr int pattern = 0xA5;

  /// Behind an update.
  Result<TrainingOutcome> updated(Result<TrainingOutcome> outcome) {
    if (const Error why = products_file_.save(products_)) return why;
    const PlanBoundary& boundary = training_.boundary();
    if (boundary.looked || boundary.update.changed || boundary.measured)
      if (const Error why = mark_arena()) return why;
    return outcome;
  }

  /// The current device: what is missing, before anything is allocated.
  Error open_device() {
    if (const auto fine = Cuda::make(nullptr); !fine) return fine.error;
    cudaDeviceProp properties{};
    cudaError_t status = cudaGetDeviceProperties(&properties, 0);
    if (status == cudaSuccess)
      status = cudaStreamCreateWithFlags(stream_.place(), cudaStreamNonBlocking);
    if (status != cudaSuccess) return Error::say("CUDA says ", cudaGetErrorString(status));
    name_ = properties.name;
    auto products = CudaProducts::make();
    if (!products) return products.error;
    products_ = std::move(*products);
    if (const Error why = products_file_.read(products_)) return why;
    if (options_.attention == "cudnn") {
      auto attention = support::make_cudnn_attention();
      if (!attention) return Error::say("--attention cudnn: ", attention.error.text());
      attention_ = std::move(*attention);
    }
    auto cuda = Cuda::make(stream_.get(), &products_, attention_.get());
    if (!cuda) return cuda.error;
    cuda_ = *cuda;
    cuda_.key.seed = options_.seed;
    clock_ = StreamClock(stream_.get());
    return {};
  }

  /// Whose attention runs, if a library was asked for.
  std::string attention_text() const {
    if (attention_ == nullptr) return {};
    const Error refused = attention_->refusal();
    return refused ? std::string(", own kernels of attention (") + refused.text() + ')'
                   : std::string(", attention by ") + attention_->name();
  }

  /// What evaluation needs of the arena, and what batches lie in.
  Error make_evaluation(const Graph& graph) {
    auto program = make_program(graph, retain_all(graph), Mode::evaluate);
    if (!program) return program.error;
    evaluation_bytes_ = program->peak_bytes();
    const std::size_t tokens = options_.batch * options_.seq;
    auto inputs = DeviceBlock<std::int32_t>::make(tokens, "inputs"),
         targets = DeviceBlock<std::int32_t>::make(tokens, "targets");
    if (!inputs || !targets) return inputs ? targets.error : inputs.error;
    input_block_ = std::move(*inputs);
    target_block_ = std::move(*targets);
    const Shape shape(options_.batch, options_.seq);
    inputs_ = {input_block_.data(), shape};
    targets_ = {target_block_.data(), shape};
    return {};
  }

  Error fix_plan(Graph graph, const DevicePlanning& planning) {
    auto program = make_program(std::move(graph), planning.fixed);
    if (!program) return program.error;
    return take(Trained::make(dispatch(), std::move(*program), cuda_, evaluation_bytes_,
                              planning.optimizer));
  }

  Shape input_shape() const { return Shape(options_.batch, options_.seq); }

  GraphOptions graph_options(const DevicePlanning& planning) const {
    return {.scalar = dtype_of<T>,
            .trained = planning.trained,
            .parameters = form(),
            .attention = attention_.get()};
  }
  Result<Graph> lower(const DevicePlanning& planning) const {
    return make_graph<Cuda>(network_, input_shape(), graph_options(planning));
  }

  /// Without a budget.
  typename Trained::Options planning_options(const DevicePlanning& planning) const {
    typename Trained::Options how;
    how.tolerance = options_.tolerance;
    how.clock = clock_;
    how.context = cuda_;
    how.optimizer = planning.optimizer;
    how.graph = graph_options(planning);
    how.planning.watch_times = !options_.fixed_costs;
    how.planning.most_runs = options_.most_runs;
    how.planning.planner = planning.planner;
    return how;
  }

  /// The budget, of which shares are those of what `graph` needs.
  Error set_budget(Graph graph, typename Trained::Options& how) {
    if (!options_.total_text.empty()) {
      set_parameters(graph, held_form<T, Cuda>(ParameterForm::full));
      const auto fp32 = memory_beside_arena(graph, AdamW{});
      if (!fp32) return fp32.error;
      total_bytes_ = options_.total.of(fp32->total() + peak_bytes(graph, retain_all(graph)));
    }
    how.budget_bytes = total_bytes_ != 0 ? 0 : options_.budget.of(retain_peak_);
    how.total_bytes = total_bytes_;
    return {};
  }

  Error plan(Graph graph, const DevicePlanning& planning, typename Trained::Options how) {
    how.arena_bytes = evaluation_bytes_;
    if (!options_.pinned_text.empty()) {
      auto store = PinnedHost::make(options_.pinned.of(retain_peak_), stream_.get());
      if (!store) return store.error;
      store_ = std::move(*store);
      how.planning.store = store_;
    }
    // A step costs something else with a library's attention.
    const std::string machine =
        attention_ == nullptr || attention_->refusal() ? name_ : name_ + attention_text();
    if (planning.profile != nullptr)
      if (const Error why = planning.profile->read(graph, {machine, options_.model_text(), 1}, how))
        return why;
    return take(Trained::make(dispatch(), std::move(graph), std::move(how)));
  }

  Error take(Result<Trained> made) {
    if (made) training_ = std::move(*made);
    return made.error;
  }

  /// Of the block of parameters.
  ParameterForm form() const {
    return held_form<T, Cuda>(options_.parameters == "bf16" ? ParameterForm::bf16
                                                            : ParameterForm::full);
  }

  Dispatch<T, Cuda> dispatch() const {
    auto dispatch = make_dispatch<T, Cuda>(network_);
    dispatch.template add_codec<Int8Outlier>();
    dispatch.template add_codec<Int4Outlier>();
    return dispatch;
  }

  /// Fills the arena with the pattern.
  Error mark_arena() {
    const Bytes arena = training_.arena();
    const cudaError_t status = cudaMemsetAsync(arena.data(), pattern, arena.size(), stream_.get());
    if (status == cudaSuccess) return {};
    return Error::say("CUDA says ", cudaGetErrorString(status));
  }

  Error load_batch(TokenView inputs, TokenView targets) {
    if (const Error why = copy_to_device(cuda_, inputs, input_block_.view())) return why;
    return copy_to_device(cuda_, targets, target_block_.view());
  }

  const Options& options_;
  gpt::Gpt<gpt::PlannedSet> network_;
  std::string name_;
  detail::CudaHandle<cudaStream_t, &cudaStreamDestroy> stream_;
  CudaProducts products_;
  ProductsFile products_file_{options_.tuned};
  std::unique_ptr<CudaAttention> attention_;  ///< null: own kernels
  Cuda cuda_;
  StreamClock clock_{nullptr};
  PinnedHost store_;  ///< outlives the training that sends to it
  DeviceBlock<std::int32_t> input_block_, target_block_;
  View<const std::int32_t> inputs_, targets_;
  Trained training_;
  std::size_t evaluation_bytes_ = 0, retain_peak_ = 0, total_bytes_ = 0;
};

template <class T>
Result<std::unique_ptr<DeviceTraining>> make_training(const Options& options,
                                                      const DevicePlanning& planning) {
  auto training = std::make_unique<CudaTraining<T>>(options);
  if (const Error why = training->set_up(planning))
    return Error::say("--device cuda: ", why.text());
  return std::unique_ptr<DeviceTraining>(std::move(training));
}

}  // namespace

adacc::Result<std::unique_ptr<DeviceTraining>> make_device_training(
    const Options& options, const DevicePlanning& planning) {
  return options.precision == "bf16" ? make_training<bfloat16>(options, planning)
                                     : make_training<float>(options, planning);
}
