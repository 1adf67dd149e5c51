// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/pool.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/native/model.h"
#include "python/native/unlocked.h"
#include "python/native/values.h"

namespace isopool::python {

namespace py = pybind11;
using namespace py::literals;

namespace {

std::string pathOf(const py::object& path) {
  return py::module_::import("os").attr("fsdecode")(path).cast<std::string>();
}

std::shared_ptr<Pool> makePool(const std::optional<size_t>& workers, const py::object& address,
                               const py::kwargs& fields) {
  const py::object made = py::type::of<PoolOptions>()(**fields);
  PoolOptions options = made.cast<PoolOptions>();
  if (workers) {
    if (*workers == 0) throw py::value_error("a Pool needs at least one worker");
    options.workers = *workers;
  }
  if (!address.is_none()) options.sharedSupervisor = pathOf(address);
  return unlocked([&] { return makeShared<Pool>(options); });
}

std::shared_ptr<Model> load(const Pool& pool, const py::object& path,
                            const std::optional<std::pair<std::string, std::string>>& pickle,
                            const std::string& name, const py::object& timeout) {
  if (pickle && !name.empty()) {
    throw py::type_error("pickle is for a torch.package, name for a model of a .pt2: pass one");
  }
  const std::string file = pathOf(path);
  const CallOptions options = withTimeout(timeout);
  return unlocked([&] {
    const auto manager = pool.manager();
    if (!pickle) return makeShared<Model>(manager->loadModel(file, name, options));
    Package package = manager->loadPackage(file, options);
    return makeShared<Model>(package.loadPickle(pickle->first, pickle->second, options));
  });
}

// The result of a call in one worker, moved to all workers.
std::shared_ptr<Model> create(const Pool& pool, const std::string& module, const std::string& name,
                              const py::tuple& args, const py::object& timeout) {
  std::vector<at::IValue> values;
  for (const py::handle each : args) values.push_back(toValue(each));
  const CallOptions options = withTimeout(timeout);
  return unlocked([&] {
    const auto manager = pool.manager();
    InterpreterSession session = manager->acquireOne(options);
    Obj made = session.global(module.c_str(), name.c_str(), options)
                   .call(std::move(values), {}, options);
    return makeShared<Model>(manager->createMovable(std::move(made), &session, options));
  });
}

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
  py::class_<Pool, std::shared_ptr<Pool>>(
      module, "Pool",
      "A pool of worker processes that run models. If a worker dies, only the call that it ran\n"
      "raises WorkerLost, and another worker takes its place.\n\n"
      "Pool(workers=None, *, address=None, **options): workers is the number of processes, None\n"
      "one for each processor; address is the socket of a shared supervisor; options are the\n"
      "fields of PoolOptions, for example spares=2 or sandbox='strict'.")
      .def(py::init(&makePool), py::arg("workers") = py::none(), py::kw_only(),
           py::arg("address") = py::none())
      .def("load", &load, py::arg("path"), py::kw_only(), py::arg("pickle") = py::none(),
           py::arg("name") = std::string(), py::arg("timeout") = py::none(),
           "Loads a model once for all workers. path: a torch.package, then pickle is the module\n"
           "and the resource of the pickled object, ('model', 'model.pkl'); or a TorchScript,\n"
           "torch.export, AOTInductor or ONNX file, of which name selects a model if a .pt2 has\n"
           "several. timeout: seconds.")
      .def("_create", &create, py::arg("module"), py::arg("name"), py::arg("args"),
           py::arg("timeout") = py::none(),
           "The result of calling an attribute of a module in one worker, as a Model: the workers\n"
           "map its tensors from the same memory. It must be picklable.")
      .def(
          "_register_module",
          [](const Pool& self, std::string name, std::string source) {
            unlocked([&] {
              self.manager()->registerModuleSource(std::move(name), std::move(source));
            });
          },
          py::arg("name"), py::arg("source"), "A Python module as text, for all workers.")
      .def("options", &settingsOf, "What the pool uses: a list of (name, value, source).")
      .def(
          "close", [](Pool& self) { unlocked([&] { self.close(); }); },
          "Ends the workers. Results stay valid. Further calls raise Error.")
      .def("__len__", [](const Pool& self) { return self.manager()->allInstances().size(); })
      .def("__enter__", [](std::shared_ptr<Pool> self) { return self; })
      .def("__exit__", [](Pool& self, const py::args&) { unlocked([&] { self.close(); }); });
}

}  // namespace isopool::python
