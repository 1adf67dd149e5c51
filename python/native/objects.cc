// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/objects.h"

#include <optional>
#include <utility>
#include <vector>

#include "python/native/this_python.h"
#include "python/native/unlocked.h"
#include "python/native/values.h"

namespace isopool::python {

namespace py = pybind11;

namespace {

bool isRemote(py::handle object) { return py::isinstance<RemoteObject>(object); }

std::shared_ptr<InterpreterManager> makeManager(py::ssize_t count, const py::object& address) {
  if (count < 1) throw py::value_error("an InterpreterManager needs at least one interpreter");
  const auto workers = static_cast<size_t>(count);
  if (address.is_none()) {
    PoolOptions options;
    options.workers = workers;
    options = withThisPython(std::move(options));
    return unlocked([&] { return makeShared<InterpreterManager>(options); });
  }
  const SharedSupervisor supervisor{py::str(address).cast<std::string>()};  // or a path object
  return unlocked([&] { return makeShared<InterpreterManager>(supervisor, workers); });
}

std::shared_ptr<Session> acquireOne(InterpreterManager& manager) {
  return unlocked([&] { return makeShared<Session>(manager.acquireOne()); });
}

std::shared_ptr<Session> sessionOf(InterpreterManager& manager, py::ssize_t index) {
  const auto instances = manager.allInstances();
  const auto count = static_cast<py::ssize_t>(instances.size());
  if (index < -count || index >= count) {
    throw py::index_error("there are " + std::to_string(count) + " interpreters");
  }
  const auto& chosen = instances[static_cast<size_t>(index < 0 ? index + count : index)];
  return unlocked([&] { return makeShared<Session>(chosen.acquireSession()); });
}

std::shared_ptr<RemoteObject> global(const Session& session, const std::string& module,
                                     const std::string& name) {
  return unlocked([&] {
    auto opened = session.get();
    auto object = opened->global(module.c_str(), name.c_str());
    return makeShared<RemoteObject>(std::move(opened), std::move(object));
  });
}

template <typename Made>
std::shared_ptr<RemoteObject> shared(Made object) {
  return makeShared<RemoteObject>(std::move(object));
}

}  // namespace

std::shared_ptr<InterpreterSession> Session::get() const {
  base::MutexLock lock(mutex_);
  if (!session_) throw Error("the session is closed: acquire another one");
  return session_;
}

void Session::close() {
  base::MutexLock lock(mutex_);
  session_.reset();
}

RemoteObject RemoteObject::call(const py::args& args, const py::kwargs& kwargs) const {
  std::vector<std::optional<Obj>> objects;
  std::vector<at::IValue> values;
  bool anyObject = false;
  for (const py::handle each : args) {
    const bool remote = isRemote(each);
    anyObject = anyObject || remote;
    objects.push_back(remote ? std::optional(each.cast<const RemoteObject&>().object_)
                             : std::nullopt);
    values.push_back(remote ? at::IValue() : toValue(each, values.size()));
  }
  std::unordered_map<std::string, c10::IValue> named;
  for (const auto& [name, each] : kwargs) {
    if (isRemote(each)) {
      throw py::type_error("an object of a worker can be a positional argument only, not " +
                           py::repr(name).cast<std::string>());
    }
    named.insert(toNamedValue(name, each));
  }
  if (anyObject && !named.empty()) {
    throw py::type_error("objects of a worker can't be passed beside named arguments");
  }
  const GilReleased released;
  if (!anyObject) return {session_, object_.callKwargs(std::move(values), std::move(named))};
  std::vector<Obj> all;
  for (size_t i = 0; i < objects.size(); ++i) {
    all.push_back(objects[i] ? *objects[i] : session_->fromIValue(values[i]));
  }
  return {session_, object_(all)};
}

RemoteObject RemoteObject::attribute(const std::string& name) const {
  try {
    return unlocked([&] { return RemoteObject(session_, object_.attr(name.c_str())); });
  } catch (const RemoteError& error) {
    // hasattr() and getattr() with a default need this class.
    if (error.pythonType() == "AttributeError") throw py::attribute_error(error.message());
    throw;
  }
}

py::object RemoteObject::value() const {
  return toObject(unlocked([&] { return object_.toIValue(); }));
}

void defineObjects(py::module_& module) {
  py::class_<RemoteObject, std::shared_ptr<RemoteObject>>(
      module, "Obj", "A handle to an object in a worker: call it, read its attributes, deref() it.")
      .def("__call__", [](const RemoteObject& self, const py::args& args,
                          const py::kwargs& kwargs) { return shared(self.call(args, kwargs)); })
      .def("__getattr__", [](const RemoteObject& self,
                             const std::string& name) { return shared(self.attribute(name)); })
      .def("deref", &RemoteObject::value, "The object as a value in this process.");

  py::class_<Session, std::shared_ptr<Session>>(
      module, "InterpreterSession", "The right to use one worker's interpreter step by step.")
      .def("global_", &global, py::arg("module"), py::arg("name"),
           "An attribute of a module. The worker imports the module if it has not.")
      .def("close", [](Session& self) { unlocked([&] { self.close(); }); })
      .def("__enter__", [](std::shared_ptr<Session> self) { return self; })
      .def("__exit__", [](Session& self, const py::args&) { unlocked([&] { self.close(); }); });

  py::class_<InterpreterManager, std::shared_ptr<InterpreterManager>>(
      module, "InterpreterManager",
      "A pool of worker processes, each with its own Python interpreter.")
      .def(py::init(&makeManager), py::arg("n") = 2, py::arg("address") = py::none())
      .def("acquire_one", &acquireOne, "A session on an idle worker, or on the least used one.")
      .def("__len__", [](InterpreterManager& self) { return self.allInstances().size(); })
      .def("__getitem__", &sessionOf, py::arg("index"), "A session on the worker of this index.");
}

}  // namespace isopool::python
