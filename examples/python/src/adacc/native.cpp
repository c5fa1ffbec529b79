// SPDX-License-Identifier: MIT
/// adacc._native: the store of saved tensors behind Python's hooks. torch.autograd.graph calls pack
/// and unpack; everything else is what the C++ adapter does.
///
/// pack and unpack let go of the interpreter before they take the store's mutex: a policy written in
/// Python takes the interpreter while it is held.
#include <optional>

#include <torch/csrc/DynamicTypes.h>
#include <torch/extension.h>

#include <adacc/adapter/torch/memory_count.hpp>
#include <adacc/adapter/torch/operators.hpp>
#include <adacc/adapter/torch/saved_store.hpp>

namespace py = pybind11;
namespace guest = adacc::torch;

namespace {

guest::Keep keep_of(const std::string& form) {
  if (form == "as_is") return guest::Keep::as_is();
  if (form == "lossless") return {};
  if (form == "bf16") return guest::Keep::as<adacc::Bf16>();
  if (form == "int8") return guest::Keep::as<adacc::Int8Outlier>();
  if (form == "int4") return guest::Keep::as<adacc::Int4Outlier>();
  throw py::value_error("adacc: a policy returned '" + form +
                        "'; forms are as_is, lossless, bf16, int8, int4");
}

guest::Policy policy_of(const std::string& name) {
  if (name == "lossless") return guest::lossless;
  if (name == "bf16") return guest::bf16;
  if (name == "int8") return guest::int8;
  if (name == "int4") return guest::int4;
  if (name == "tolerated") return guest::tolerated;
  if (name == "as_is") return [](const guest::SavedTensor&) { return guest::Keep::as_is(); };
  throw py::value_error("adacc: there is no policy '" + name +
                        "'; there are tolerated, int8, int4, bf16, lossless, as_is");
}

guest::Policy policy_from(const py::object& policy) {
  if (py::isinstance<py::str>(policy)) return policy_of(policy.cast<std::string>());
  if (PyCallable_Check(policy.ptr()) == 0)
    throw py::type_error("adacc: a policy is a name or a callable");
  // Copied and destroyed by whoever: with the interpreter.
  std::shared_ptr<py::object> callable(new py::object(policy), [](py::object* mine) {
    const py::gil_scoped_acquire python;
    delete mine;
  });
  return [callable](const guest::SavedTensor& tensor) {
    const py::gil_scoped_acquire python;
    return keep_of((*callable)(tensor).cast<std::string>());
  };
}

/// Watches the operators of a thread from enter to exit.
struct Operators {
  std::optional<guest::RunningOperators> watching;
};

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using guest::SavedStatistics;
  using guest::SavedTensor;
  const auto free_python = py::call_guard<py::gil_scoped_release>();

  module.attr("built_for") = TORCH_VERSION;

  py::class_<guest::Packed>(module, "Packed");
  py::class_<SavedTensor>(module, "SavedTensor")
      .def_readonly("sizes", &SavedTensor::sizes)
      .def_property_readonly("dtype",
                             [](const SavedTensor& t) {
                               return py::reinterpret_borrow<py::object>(
                                   reinterpret_cast<PyObject*>(torch::getTHPDtype(t.type)));
                             })
      .def_readonly("bytes", &SavedTensor::bytes)
      .def_readonly("savers", &SavedTensor::savers)
      .def_readonly("producer", &SavedTensor::producer);
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
      .def_readonly("raw_bytes", &SavedStatistics::raw_bytes)
      .def_readonly("encoded_bytes", &SavedStatistics::encoded_bytes);
  py::class_<guest::SavedStore, std::shared_ptr<guest::SavedStore>>(module, "SavedStore")
      .def(py::init([](const py::object& policy, std::size_t least_bytes) {
             return std::make_shared<guest::SavedStore>(policy_from(policy),
                                                        guest::SavedOptions{least_bytes});
           }),
           py::arg("policy"), py::arg("least_bytes"))
      .def("pack", &guest::SavedStore::pack, free_python)
      .def("unpack", &guest::SavedStore::unpack, free_python)
      .def("settle", &guest::SavedStore::settle, free_python)
      .def("statistics", &guest::SavedStore::statistics, free_python);
  py::class_<Operators>(module, "Operators")
      .def(py::init<>())
      .def("enter", [](Operators& mine) { mine.watching.emplace(); })
      .def("exit", [](Operators& mine) { mine.watching.reset(); });

  module.def("install_memory_count", &guest::MemoryCount::install);
  module.def("live_bytes", &guest::MemoryCount::live_bytes);
  module.def("peak_bytes", &guest::MemoryCount::peak_bytes);
  module.def("reset_peak", &guest::MemoryCount::reset_peak);
}
