// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/pool.h"

#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/jit/python/pybind.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/native/model.h"
#include "python/native/this_python.h"
#include "python/native/unlocked.h"
#include "python/native/values.h"

namespace isopool::python {

namespace py = pybind11;
using namespace py::literals;

namespace {

// The bytes of the file's name, which need not be UTF-8.
std::string pathOf(const py::object& path) {
  return py::module_::import("os").attr("fsencode")(path).cast<std::string>();
}

size_t workersOf(InterpreterManager& manager) { return manager.allInstances().size(); }

std::shared_ptr<Pool> makePool(const std::optional<size_t>& workers, const py::object& address,
                               const py::kwargs& fields) {
  const py::object made = py::type::of<PoolOptions>()(**fields);
  PoolOptions options = made.cast<PoolOptions>();
  if (workers) {
    if (*workers == 0) throw py::value_error("a Pool needs at least one worker");
    options.workers = *workers;
  }
  if (!fields.contains("python_paths")) {
    const py::object paths = py::module_::import("isopool.program").attr("python_paths")();
    options.pythonPaths = paths.cast<std::vector<std::string>>();
  }
  if (!address.is_none()) options.sharedSupervisor = pathOf(address);
  options = withThisPython(std::move(options));
  return unlocked([&] { return makeShared<Pool>(options); });
}

// Gives the workers isopool/worker/ as the package isopool_by_value.
void registerModules(const Pool& pool) {
  const py::dict modules = py::module_::import("isopool.models").attr("worker_modules")();
  for (const auto& [name, source] : modules) {
    auto module = name.cast<std::string>();
    auto text = source.cast<std::string>();
    unlocked([&] { pool.manager()->registerModuleSource(std::move(module), std::move(text)); });
  }
}

// The result of calling an attribute of a module of isopool_by_value in one worker, moved to all.
std::shared_ptr<Model> create(const Pool& pool, const std::string& module, const std::string& name,
                              const py::tuple& args, const py::object& timeout) {
  registerModules(pool);
  const std::string whole = "isopool_by_value." + module;
  const std::vector<at::IValue> values = toValues(args);
  const CallOptions options = withTimeout(timeout);
  constexpr int kMostLost = 3;
  for (int lost = 0;;) {
    try {
      return unlocked([&] {
        const auto manager = pool.manager();
        InterpreterSession session = manager->acquireOne(options);
        Obj made = session.global(whole.c_str(), name.c_str(), options).call(values, {}, options);
        return makeShared<Model>(workersOf(*manager),
                                 manager->createMovable(std::move(made), &session, options));
      });
    } catch (const WorkerLost& error) {
      // A worker that was killed a moment ago may still be chosen. What other programs of a shared
      // supervisor do to a worker does not count.
      if (error.started() || (!error.ofOtherProgram() && ++lost == kMostLost)) throw;
    } catch (const SupervisorLost& error) {
      // The next session waits for the next supervisor, if there can be one.
      if (error.started() || ++lost == kMostLost) throw;
    }
  }
}

std::shared_ptr<Model> load(const Pool& pool, const py::object& path,
                            const std::optional<std::pair<std::string, std::string>>& pickle,
                            const std::string& name, const py::object& timeout) {
  if (pickle && !name.empty()) {
    throw py::type_error("pickle is for a torch.package, name for a model of a .pt2: pass one");
  }
  const py::object byValue = py::module_::import("isopool.models").attr("by_value")(path);
  if (!byValue.is_none()) {
    if (pickle || !name.empty()) throw py::type_error("pickle and name are for files of models");
    const auto parts = byValue.cast<std::pair<std::string, py::tuple>>();
    return create(pool, "models", parts.first, parts.second, timeout);
  }
  const std::string file = pathOf(path);
  const CallOptions options = withTimeout(timeout);
  return unlocked([&] {
    const auto manager = pool.manager();
    if (!pickle)
      return makeShared<Model>(workersOf(*manager), manager->loadModel(file, name, options));
    Package package = manager->loadPackage(file, options);
    return makeShared<Model>(workersOf(*manager),
                             package.loadPickle(pickle->first, pickle->second, options));
  });
}

at::Tensor emptyTensor(const std::vector<int64_t>& shape, const py::object& dtype) {
  if (THPDtype_Check(dtype.ptr()) == 0) throw py::type_error("dtype is a torch.dtype");
  return empty(shape, at::TensorOptions(reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type));
}

// A SharedMemoryGuard for a with statement.
struct Allocator {
  std::optional<SharedMemoryGuard> guard;
};

// A named tuple each: name, value, source.
py::list settingsOf(const Pool& pool) {
  const std::vector<PoolSetting> settings = unlocked([&] { return pool.manager()->options(); });
  const py::object kind = py::module_::import("isopool.settings").attr("Setting");
  py::list all;
  for (const PoolSetting& each : settings) all.append(kind(each.name, each.value, each.source));
  return all;
}

}  // namespace

std::shared_ptr<InterpreterManager> Pool::manager() const {
  base::MutexLock lock(mutex_);
  if (!manager_) throw Error("the pool is closed: make another one");
  return manager_;
}

void Pool::close() {
  std::shared_ptr<InterpreterManager> closed;  // destroyed after the lock: its end takes time
  base::MutexLock lock(mutex_);
  closed = std::move(manager_);
}

void definePool(py::module_& module) {
  py::class_<Allocator>(module, "Allocator",
                        "In its with statement, CPU tensors of the thread are made in the memory\n"
                        "that workers share, and so pass to them without a copy.")
      .def("__enter__", [](Allocator& self) { self.guard.emplace(); })
      .def("__exit__", [](Allocator& self, const py::args&) { self.guard.reset(); });

  py::class_<Pool, std::shared_ptr<Pool>>(
      module, "Pool",
      "A pool of worker processes that run models. If a worker dies, only the call that it ran\n"
      "raises WorkerLost, and another worker takes its place.\n\n"
      "Pool(workers=None, *, address=None, **options): workers is the number of processes, None\n"
      "one for each processor; address is the socket of a shared supervisor; options are the\n"
      "fields of PoolOptions, for example spares=2 or sandbox='strict'. Workers find the modules\n"
      "that this program finds, unless python_paths says otherwise.")
      .def(py::init(&makePool), py::arg("workers") = py::none(), py::kw_only(),
           py::arg("address") = py::none())
      .def("load", &load, py::arg("source"), py::kw_only(), py::arg("pickle") = py::none(),
           py::arg("name") = std::string(), py::arg("timeout") = py::none(),
           "Loads a model once for all workers. source: the path of a torch.package, then pickle\n"
           "is the module and the resource of the pickled object, ('model', 'model.pkl'); or of a\n"
           "TorchScript, torch.export, AOTInductor or ONNX file, of which name selects a model if\n"
           "a .pt2 has several; or 'app.py:factory', a function or class of a Python file whose\n"
           "result is the model; or a callable of this program, such as a torch.nn.Module, which\n"
           "goes by value: workers share its tensors. timeout: seconds.")
      .def("_create", &create, py::arg("module"), py::arg("name"), py::arg("args"),
           py::arg("timeout") = py::none(),
           "The result of calling an attribute of a module of isopool_by_value (isopool/worker/) "
           "in\n"
           "one worker, as a Model: the workers map its tensors from the same memory.")
      .def(
          "empty",
          [](const Pool&, const std::vector<int64_t>& shape, const py::object& dtype) {
            return emptyTensor(shape, dtype);
          },
          py::arg("shape"), py::arg("dtype"),
          "An uninitialised tensor in the memory that workers share: a call passes it without a\n"
          "copy. tensor.numpy() is the same memory. It may outlive the pool.")
      .def(
          "allocator", [](const Pool&) { return std::make_unique<Allocator>(); },
          "with pool.allocator(): tensors that the thread makes there are as those of empty().")
      .def(
          "statistics",
          [](const Pool& self) { return unlocked([&] { return self.manager()->statistics(); }); },
          "What the pool's workers and models did, and do now: PoolStatistics.")
      .def("_repr_html_",
           [](const py::object& self) {
             return py::module_::import("isopool.notebook").attr("table")(self);
           })
      .def("__aenter__",
           [](const py::object& self) {
             return py::module_::import("isopool.aio").attr("enter")(self);
           })
      .def("__aexit__",
           [](const py::object& self, const py::args&) {
             return py::module_::import("isopool.aio").attr("close")(self);
           })
      .def("options", &settingsOf, "What the pool uses: a list of (name, value, source).")
      .def(
          "close", [](Pool& self) { unlocked([&] { self.close(); }); },
          "Ends the workers. Results stay valid. Further calls raise Error.")
      .def("__len__", [](const Pool& self) { return self.manager()->allInstances().size(); })
      .def("__enter__", [](std::shared_ptr<Pool> self) { return self; })
      .def("__exit__", [](Pool& self, const py::args&) { unlocked([&] { self.close(); }); });
}

}  // namespace isopool::python
