// SPDX-License-Identifier: MIT
/// adacc._native: the store of saved tensors behind Python's hooks, and budgets. torch.autograd.graph
/// calls pack and unpack; everything else is what the C++ adapter does.
///
/// pack and unpack let go of the interpreter before they take the store's mutex: a policy written in
/// Python takes the interpreter while it is held.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <torch/csrc/DynamicTypes.h>
#include <torch/extension.h>

#include <adacc/adapter/torch/blocks.hpp>
#include <adacc/adapter/torch/budget.hpp>
#include <adacc/adapter/torch/cuda_kernels.hpp>
#include <adacc/adapter/torch/cuda_memory.hpp>
#include <adacc/adapter/torch/memory_count.hpp>
#include <adacc/adapter/torch/module_name.hpp>
#include <adacc/adapter/torch/operators.hpp>
#include <adacc/adapter/torch/recipes.hpp>
#include <adacc/adapter/torch/repetition.hpp>
#include <adacc/adapter/torch/saved_store.hpp>

namespace py = pybind11;
namespace guest = adacc::torch;

namespace {

constexpr struct {
  const char* name;
  guest::Keep keep;
} forms[] = {{"as_is", guest::Keep::as_is()},
             {"lossless", guest::Keep()},
             {"bf16", guest::Keep::as<adacc::Bf16>()},
             {"int8", guest::Keep::as<adacc::Int8Outlier>()},
             {"int4", guest::Keep::as<adacc::Int4Outlier>()}};

guest::Keep keep_of(const std::string& name) {
  for (const auto& form : forms)
    if (name == form.name) return form.keep;
  throw py::value_error("adacc: a policy returned '" + name +
                        "'; forms are as_is, lossless, bf16, int8, int4");
}

/// A sign is lossless to ReLU's gradient.
const char* name_of(guest::Keep keep) {
  for (const auto& form : forms)
    if (keep.codec() == form.keep.codec() && keep.untouched() == form.keep.untouched())
      return form.name;
  return "lossless";
}

guest::ChoosingFunction policy_of(const std::string& name) {
  if (name == "lossless") return guest::lossless;
  if (name == "bf16") return guest::bf16;
  if (name == "int8") return guest::int8;
  if (name == "int4") return guest::int4;
  if (name == "tolerated") return guest::tolerated;
  if (name == "as_is") return [](const guest::SavedTensor&) { return guest::Keep::as_is(); };
  throw py::value_error("adacc: there is no policy '" + name +
                        "'; there are tolerated, int8, int4, bf16, lossless, as_is");
}

/// A callable of Python, copied and destroyed with the interpreter.
std::shared_ptr<py::object> shared(const py::object& callable) {
  return {new py::object(callable), [](py::object* mine) {
            const py::gil_scoped_acquire python;
            delete mine;
          }};
}

guest::ChoosingFunction policy_from(const py::object& policy) {
  if (py::isinstance<py::str>(policy)) return policy_of(policy.cast<std::string>());
  if (PyCallable_Check(policy.ptr()) == 0)
    throw py::type_error("adacc: a policy is a name or a callable");
  return [callable = shared(policy)](const guest::SavedTensor& tensor) {
    const py::gil_scoped_acquire python;
    const py::object form = (*callable)(tensor);
    if (!py::isinstance<py::str>(form))
      throw py::type_error("adacc: a policy returned " + py::repr(form).cast<std::string>() +
                           "; forms are as_is, lossless, bf16, int8, int4");
    return keep_of(form.cast<std::string>());
  };
}

#define ADACC_TEXT_OF(x) #x
#define ADACC_TEXT(x) ADACC_TEXT_OF(x)
constexpr const char* version = ADACC_TEXT(ADACC_VERSION_MAJOR) "." ADACC_TEXT(
    ADACC_VERSION_MINOR) "." ADACC_TEXT(ADACC_VERSION_PATCH);

/// The widest instructions that the compiler was allowed.
#if defined(__AVX512BF16__)
constexpr const char* instructions = "AVX-512 with bf16";
#elif defined(__AVX512BW__)
constexpr const char* instructions = "AVX-512";
#elif defined(__AVX2__)
constexpr const char* instructions = "AVX2";
#elif defined(__aarch64__)
constexpr const char* instructions = "aarch64";
#else
constexpr const char* instructions = "portable";
#endif

using Planner = guest::detail::BlockPlanner*;

/// Asks a function of Python's for the module that runs.
struct NamesOfPython final : guest::detail::ModuleNames {
  explicit NamesOfPython(py::function function) : ask(std::move(function)) {}
  std::string module_name() override {
    const py::gil_scoped_acquire python;
    return ask().cast<std::string>();
  }
  py::function ask;
};

/// A `with` of Python's: watches the thread's operators, says whose affair checkpoints are, and who knows
/// names of modules.
struct Scope {
  std::optional<guest::RunningOperators> watching;
  std::optional<guest::NotedRecipes> recipes;
  std::optional<guest::detail::ThreadValue<Planner>> planner;
  std::optional<NamesOfPython> names;
  std::optional<guest::detail::ThreadValue<guest::detail::ModuleNames*>> naming;

  void enter(const guest::MemoryBudget* budget, const guest::SavedStore& store,
             const py::object& module_name) {
    watching.emplace();
    if (store.runs_operators_again()) recipes.emplace();
    if (!module_name.is_none()) {
      names.emplace(py::reinterpret_borrow<py::function>(module_name));
      naming.emplace(guest::detail::ModuleNames::of_thread(), &*names);
    }
    planner.emplace(guest::detail::block_planner(),
                    budget != nullptr ? budget->state().get() : nullptr);
  }
  void exit() {
    planner.reset();
    naming.reset();
    names.reset();
    recipes.reset();
    watching.reset();
  }
};

/// A checkpoint that the thread's budget plans.
struct PlannedBlock {
  using Dropped = std::shared_ptr<guest::detail::DroppedBlock>;

  std::optional<guest::detail::PlannedBlock> block;
  std::optional<guest::detail::ThreadValue<Dropped>> dropped;

  const char* enter(const std::vector<at::Tensor>& inputs) {
    using guest::detail::BlockRun;
    block.emplace(*guest::detail::block_planner(), inputs);
    return block->run() == BlockRun::plain   ? "plain"
           : block->run() == BlockRun::again ? "again"
                                             : "recorded";
  }
  /// What the block saves is dropped, and made again by again(inputs, collect).
  void record(const std::vector<at::Tensor>& inputs, const py::object& again) {
    using guest::detail::Repetition;
    const auto run = [callable = shared(again)](const Repetition::Inputs& given,
                                                const Repetition::Collect& collect) {
      const py::gil_scoped_acquire python;
      (*callable)(given, py::cpp_function([collect](const at::Tensor& tensor) {
                    const py::gil_scoped_release free_python;
                    at::Tensor value = tensor.detach();
                    collect(value);
                    return value;
                  }));
    };
    dropped.emplace(guest::detail::dropped_block(),
                    std::make_shared<guest::detail::DroppedBlock>(block->planner(), inputs, run));
  }
  void exit() {
    dropped.reset();
    block.reset();
  }
};

/// While a checkpoint's function runs, in forward or again: nobody plans what is inside.
struct Unplanned {
  std::optional<guest::detail::ThreadValue<Planner>> planner;
  std::optional<guest::detail::ThreadValue<bool>> within;

  void enter(bool is_planned) {
    planner.emplace(guest::detail::block_planner(), nullptr);
    within.emplace(guest::detail::within_block(), is_planned);
  }
  void exit() {
    within.reset();
    planner.reset();
  }
};

/// Whether the code of Python that runs is torch.utils.checkpoint's, which saves a block's inputs outside
/// of all operators.
bool in_torch_checkpoint() {
  PyFrameObject* const frame = PyEval_GetFrame();
  if (frame == nullptr) return false;
  const auto code = py::reinterpret_steal<py::object>(
      static_cast<PyObject*>(static_cast<void*>(PyFrame_GetCode(frame))));
  std::string file = py::str(code.attr("co_filename")).cast<std::string>();
  std::replace(file.begin(), file.end(), '\\', '/');
  constexpr std::string_view end = "torch/utils/checkpoint.py";
  return std::string_view(file).ends_with(end);
}

constexpr const char* packed_name = "adacc.packed";

/// A capsule: pybind11 enters each object of a class into a table, which takes longer than all else here.
py::capsule pack(guest::SavedStore& store, const at::Tensor& tensor) {
  std::optional<guest::detail::ThreadValue<const char*>> input;
  if (*guest::RunningOperators::innermost() == '\0' && in_torch_checkpoint())
    input.emplace(guest::detail::saving_as(), guest::detail::block_role(tensor));
  std::unique_ptr<guest::SavedActivation> packed;
  {
    const py::gil_scoped_release free_python;
    packed = std::make_unique<guest::SavedActivation>(store.pack(tensor));
  }
  const auto destroy = [](PyObject* capsule) {
    delete static_cast<guest::SavedActivation*>(PyCapsule_GetPointer(capsule, packed_name));
  };
  PyObject* const capsule = PyCapsule_New(packed.get(), packed_name, destroy);
  if (capsule == nullptr) throw py::error_already_set();
  static_cast<void>(packed.release());
  return py::reinterpret_steal<py::capsule>(capsule);
}

at::Tensor unpack(guest::SavedStore& store, const py::capsule& packed) {
  const void* const mine = PyCapsule_GetPointer(packed.ptr(), packed_name);
  if (mine == nullptr) throw py::error_already_set();
  const py::gil_scoped_release free_python;
  return store.unpack(*static_cast<const guest::SavedActivation*>(mine));
}

/// A device, by name; without a number, the current one of its kind.
c10::Device device_named(const std::string& name) {
  const c10::Device device(name);
  if (device.is_cpu() || device.has_index()) return device;
  return c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

std::size_t pinned_bytes(const std::string& amount) {
  const adacc::Result<adacc::Budget> bytes = adacc::parse_budget(amount);
  if (!bytes || bytes->bytes < 1)
    throw py::value_error(
        "adacc: a pinned store is bytes, as in 'pinned:8GiB', not 'pinned:" + amount + "'");
  return bytes->of(0);
}

guest::MemoryBudget budget_of(const py::object& amount, const py::object& policy,
                              std::size_t least_bytes, int recorded_steps, const std::string& store,
                              const std::string& on_refusal,
                              const std::optional<std::string>& device, bool of_device,
                              bool again) {
  guest::BudgetOptions options;
  if (device) options.device = device_named(*device);
  options.of_device = of_device;
  options.again = again;
  options.policy = policy_from(policy);
  options.least_bytes = least_bytes;
  options.recorded_steps = recorded_steps;
  if (store.starts_with("pinned:")) options.pinned_bytes = pinned_bytes(store.substr(7));
  else options.store_folder = store;
  if (on_refusal == "least") options.on_refusal = guest::OnRefusal::least;
  else if (on_refusal != "raise")
    throw py::value_error("adacc: on_refusal is 'raise' or 'least', not '" + on_refusal + "'");
  if (recorded_steps < 1) throw py::value_error("adacc: a budget records 1 step or more");
  if (py::isinstance<py::str>(amount))
    return guest::MemoryBudget(amount.cast<std::string>(), std::move(options));
  if (!py::isinstance<py::int_>(amount) || py::isinstance<py::bool_>(amount))
    throw py::type_error("adacc: a budget is bytes, or text like \"40%\" or \"30MiB\", not " +
                         py::repr(amount).cast<std::string>());
  if (amount.cast<long long>() < 1) throw py::value_error("adacc: a budget is 1 byte or more");
  return guest::MemoryBudget(amount.cast<std::size_t>(), std::move(options));
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using guest::SavedStatistics;
  using guest::SavedTensor;
  const auto free_python = py::call_guard<py::gil_scoped_release>();

  module.attr("built_for") = TORCH_VERSION;
  module.attr("version") = version;
  module.attr("instructions") = instructions;

  py::class_<SavedTensor>(module, "SavedTensor")
      .def_readonly("sizes", &SavedTensor::sizes)
      .def_property_readonly("dtype",
                             [](const SavedTensor& t) {
                               return py::reinterpret_borrow<py::object>(
                                   reinterpret_cast<PyObject*>(torch::getTHPDtype(t.type)));
                             })
      .def_readonly("bytes", &SavedTensor::bytes)
      .def_readonly("savers", &SavedTensor::savers)
      .def_readonly("roles", &SavedTensor::roles)
      .def_readonly("module", &SavedTensor::module)
      .def_readonly("producer", &SavedTensor::producer)
      .def_readonly("made_by", &SavedTensor::made_by);
  py::class_<guest::ModuleBytes>(module, "ModuleBytes")
      .def_readonly("module", &guest::ModuleBytes::module)
      .def_readonly("storages", &guest::ModuleBytes::storages)
      .def_readonly("raw_bytes", &guest::ModuleBytes::raw_bytes)
      .def_readonly("waiting_bytes", &guest::ModuleBytes::waiting_bytes);
  module.def(
      "ready_form",
      [](const std::string& policy, const SavedTensor& tensor) {
        return name_of(policy_of(policy)(tensor));
      },
      py::arg("policy"), py::arg("tensor"));
  py::class_<SavedStatistics>(module, "Statistics")
      .def_readonly("packed", &SavedStatistics::packed)
      .def_readonly("unpacked", &SavedStatistics::unpacked)
      .def_readonly("parameters", &SavedStatistics::parameters)
      .def_readonly("small", &SavedStatistics::small)
      .def_readonly("others", &SavedStatistics::others)
      .def_readonly("shared", &SavedStatistics::shared)
      .def_readonly("storages", &SavedStatistics::storages)
      .def_readonly("encoded", &SavedStatistics::encoded)
      .def_readonly("decoded", &SavedStatistics::decoded)
      .def_readonly("declined", &SavedStatistics::declined)
      .def_readonly("unlike_rows", &SavedStatistics::unlike_rows)
      .def_readonly("exact_rows", &SavedStatistics::exact_rows)
      .def_readonly("uncertified", &SavedStatistics::uncertified)
      .def_readonly("again", &SavedStatistics::again)
      .def_readonly("raw_bytes", &SavedStatistics::raw_bytes)
      .def_readonly("encoded_bytes", &SavedStatistics::encoded_bytes)
      .def_readonly("opaque_bytes", &SavedStatistics::opaque_bytes);
  py::class_<guest::SavedStore, std::shared_ptr<guest::SavedStore>>(module, "SavedStore")
      .def(py::init([](const py::object& policy, std::size_t least_bytes, bool again) {
             return std::make_shared<guest::SavedStore>(policy_from(policy),
                                                        guest::SavedOptions{least_bytes, again});
           }),
           py::arg("policy"), py::arg("least_bytes"), py::arg("again") = false)
      .def("pack", &pack)
      .def("unpack", &unpack)
      .def("settle", &guest::SavedStore::settle, free_python)
      .def("modules", &guest::SavedStore::modules, free_python)
      .def("statistics", &guest::SavedStore::statistics, free_python);
  py::class_<Scope>(module, "Scope")
      .def(py::init<>())
      .def("enter", &Scope::enter, py::arg("budget").none(true), py::arg("store"),
           py::arg("module_name"))
      .def("exit", &Scope::exit);

  using guest::BudgetReport;
  py::class_<BudgetReport::Share>(module, "BudgetShare")
      .def_readonly("policy", &BudgetReport::Share::policy)
      .def_readonly("storages", &BudgetReport::Share::storages)
      .def_readonly("bytes", &BudgetReport::Share::bytes);
  py::class_<BudgetReport>(module, "BudgetReport")
      .def_readonly("plain_bytes", &BudgetReport::plain_bytes)
      .def_readonly("budget_bytes", &BudgetReport::budget_bytes)
      .def_readonly("recorded_bytes", &BudgetReport::recorded_bytes)
      .def_readonly("planned_bytes", &BudgetReport::planned_bytes)
      .def_readonly("measured_bytes", &BudgetReport::measured_bytes)
      .def_readonly("most_bytes", &BudgetReport::most_bytes)
      .def_readonly("least_bytes", &BudgetReport::least_bytes)
      .def_readonly("plain_seconds", &BudgetReport::plain_seconds)
      .def_readonly("planned_ratio", &BudgetReport::planned_ratio)
      .def_readonly("measured_seconds", &BudgetReport::measured_seconds)
      .def_readonly("planning_seconds", &BudgetReport::planning_seconds)
      .def_readonly("planned_stall_seconds", &BudgetReport::planned_stall_seconds)
      .def_readonly("written_bytes", &BudgetReport::written_bytes)
      .def_readonly("read_bytes", &BudgetReport::read_bytes)
      .def_readonly("stall_seconds", &BudgetReport::stall_seconds)
      .def_readonly("steps", &BudgetReport::steps)
      .def_readonly("recorded", &BudgetReport::recorded)
      .def_readonly("recorded_over", &BudgetReport::recorded_over)
      .def_readonly("planned", &BudgetReport::planned)
      .def_readonly("diverged", &BudgetReport::diverged)
      .def_readonly("refused", &BudgetReport::refused)
      .def_readonly("corrections", &BudgetReport::corrections)
      .def_readonly("exact_rows", &BudgetReport::exact_rows)
      .def_readonly("uncertified", &BudgetReport::uncertified)
      .def_readonly("failed_form", &BudgetReport::failed_form)
      .def_readonly("shares", &BudgetReport::shares)
      .def_readonly("modules", &BudgetReport::modules)
      .def_readwrite("note", &BudgetReport::note)
      .def_readonly("device", &BudgetReport::device)
      .def_readonly("elsewhere", &BudgetReport::elsewhere)
      .def("__str__", &BudgetReport::text)
      .def("__repr__", &BudgetReport::text);
  py::class_<guest::MemoryBudget>(module, "MemoryBudget")
      .def(py::init(&budget_of), py::arg("amount"), py::arg("policy"), py::arg("least_bytes"),
           py::arg("recorded_steps"), py::arg("store"), py::arg("on_refusal"), py::arg("device"),
           py::arg("of_device"), py::arg("again"))
      .def_property_readonly("store", &guest::MemoryBudget::store)
      .def(
          "enter", [](const guest::MemoryBudget& mine) { mine.state()->enter(); }, free_python)
      .def(
          "leave", [](const guest::MemoryBudget& mine) { mine.state()->leave(); }, free_python)
      .def("report", &guest::MemoryBudget::report, free_python);

  // What checkpoint() of this module asks.
  module.def("has_planner", [] { return guest::detail::block_planner() != nullptr; });
  module.def("within_block", [] { return guest::detail::within_block(); });
  py::class_<PlannedBlock>(module, "PlannedBlock")
      .def(py::init<>())
      .def("enter", &PlannedBlock::enter, free_python)
      .def("record", &PlannedBlock::record, py::arg("inputs"), py::arg("again"))
      .def("exit", &PlannedBlock::exit, free_python);
  py::class_<Unplanned>(module, "Unplanned")
      .def(py::init<>())
      .def("enter", &Unplanned::enter)
      .def("exit", &Unplanned::exit);

  module.def(
      "use_cuda_kernels",
      [](const py::bytes& image) {
        guest::CudaMemory::install();
        return guest::CudaKernels::install(image);
      },
      py::arg("image"));
  // From the first call on, for the rest of the process.
  const auto count_of = [](const std::string& device) -> adacc::torch::ByteCount& {
    return guest::DeviceSide(device_named(device)).count();
  };
  module.def(
      "count_memory", [count_of](const std::string& device) { count_of(device); },
      py::arg("device"));
  module.def(
      "live_bytes", [count_of](const std::string& device) { return count_of(device).live_bytes(); },
      py::arg("device"));
  module.def(
      "peak_bytes", [count_of](const std::string& device) { return count_of(device).peak_bytes(); },
      py::arg("device"));
  module.def(
      "reset_peak", [count_of](const std::string& device) { count_of(device).reset_peak(); },
      py::arg("device"));
}
