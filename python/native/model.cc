// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/model.h"

#include <pybind11/stl.h>

#include <chrono>
#include <utility>

#include "python/native/times.h"
#include "python/native/unlocked.h"
#include "python/native/values.h"

namespace isopool::python {

namespace py = pybind11;
using namespace py::literals;

namespace {

std::string describe(const ModelValue& value) {
  std::string text = value.name + (value.type.empty() ? "" : ": " + value.type);
  if (!value.shape) return text;
  text += "[";
  for (size_t i = 0; i < value.shape->size(); ++i) {
    const int64_t size = (*value.shape)[i];
    text += (i == 0 ? "" : ", ") + (size < 0 ? std::string("?") : std::to_string(size));
  }
  return text + "]";
}

std::string describe(const std::vector<ModelValue>& values) {
  std::string text;
  for (const ModelValue& each : values) text += (text.empty() ? "" : ", ") + describe(each);
  return "(" + text + ")";
}

}  // namespace

CallOptions withTimeout(const py::object& timeout) {
  CallOptions options;
  if (!timeout.is_none()) options.deadline = timeOf(timeout, "timeout");
  return options;
}

template <typename Use>
auto Model::onCallee(const Use& use) const {
  return unlocked([&] { return method_.empty() ? use(object_) : use(object_.method(method_)); });
}

// The making of the values takes a part of the deadline, too.
CallOptions Model::optionsSince(std::chrono::steady_clock::time_point begin) const {
  CallOptions options = options_;
  if (options.deadline) *options.deadline -= std::chrono::steady_clock::now() - begin;
  return options;
}

py::object Model::call(const py::args& args, const py::kwargs& kwargs) const {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<at::IValue> values = toValues(args);
  auto namedValues = toNamedValues(kwargs);
  SignalHandlers handlers;
  CallOptions options = optionsSince(begin);
  options.interrupted = handlers.interrupted();
  try {
    at::IValue result = onCallee([&](const auto& callee) {
      return callee.call(std::move(values), std::move(namedValues), options);
    });
    handlers.check();
    return toObject(std::move(result));
  } catch (const Cancelled&) {
    handlers.check();
    throw;
  }
}

PendingCall Model::callAsync(const py::tuple& args, const py::dict& kwargs,
                             const py::function& callback) const {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<at::IValue> values = toValues(args);
  auto namedValues = toNamedValues(kwargs);
  const CallOptions options = optionsSince(begin);
  std::function<void(const Outcome&)> ended = deliveries_->to(callback);
  return onCallee([&](const auto& callee) {
    return callee.callAsync(std::move(values), std::move(ended), std::move(namedValues), options);
  });
}

std::shared_ptr<Stream> Model::stream(const py::args& args, const py::kwargs& kwargs) const {
  std::vector<at::IValue> values = toValues(args);
  auto namedValues = toNamedValues(kwargs);
  return makeShared<Stream>(onCallee([&](const auto& callee) {
    return callee.stream(std::move(values), std::move(namedValues), options_);
  }));
}

std::shared_ptr<ModelSession> Model::session(bool ownReplica) const {
  SessionOptions session;
  session.ownReplica = ownReplica;
  return makeShared<ModelSession>(
      unlocked([&] { return object_.acquireSession(session, options_); }));
}

py::list Model::callOnAll(const py::args& args, const py::kwargs& kwargs) const {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<at::IValue> values = toValues(args);
  auto namedValues = toNamedValues(kwargs);
  const CallOptions options = optionsSince(begin);
  std::vector<at::IValue> results = onCallee([&](const auto& callee) {
    return callee.callOnAll(std::move(values), std::move(namedValues), options);
  });
  py::list all;
  for (at::IValue& each : results) all.append(toObject(std::move(each)));
  return all;
}

void Model::warmUp(const py::args& args, const py::kwargs& kwargs) const {
  std::vector<at::IValue> values = toValues(args);
  auto namedValues = toNamedValues(kwargs);
  onCallee([&](const auto& callee) {
    callee.warmUp(std::move(values), std::move(namedValues), options_);
  });
}

ModelInfo Model::info() const {
  return unlocked([&] { return object_.info(options_); });
}

void Model::unload() const {
  ReplicatedObj object = object_;
  unlocked([&] { object.unload(); });
}

std::shared_ptr<Model> Model::method(const std::string& name) const {
  (void)object_.method(name);  // refuses an empty name
  auto made = makeShared<Model>(*this);
  made->method_ = name;
  return made;
}

std::shared_ptr<Model> Model::withOptions(const py::object& timeout,
                                          const std::optional<bool>& idempotent,
                                          const std::optional<uint64_t>& tag,
                                          const py::object& runTime) const {
  auto made = makeShared<Model>(*this);
  if (!runTime.is_none()) made->options_.runTime = timeOf(runTime, "run_time");
  if (!timeout.is_none()) made->options_.deadline = timeOf(timeout, "timeout");
  if (idempotent) made->options_.idempotent = *idempotent;
  if (tag) made->options_.tag = *tag;
  return made;
}

void defineModel(py::module_& module) {
  py::class_<ModelValue>(module, "ModelValue", "One argument or one result of a model.")
      .def_readonly("name", &ModelValue::name)
      .def_readonly("type", &ModelValue::type,
                    "A tensor's dtype (float32), or what the model calls the type; may be empty.")
      .def_readonly("shape", &ModelValue::shape,
                    "A list with -1 for a size that may vary; None if nothing states it.")
      .def("__repr__", [](const ModelValue& self) { return describe(self); });

  py::class_<ModelInfo>(module, "ModelInfo",
                        "What a model is and what it takes, as far as its file states it.")
      .def_readonly("name", &ModelInfo::name)
      .def_readonly("format", &ModelInfo::format,
                    "torch.package, torchscript, aot_inductor, torch.export or onnx.")
      .def_readonly("file", &ModelInfo::file)
      .def_readonly("bytes", &ModelInfo::bytes)
      .def_readonly("version", &ModelInfo::version)
      .def_readonly("description", &ModelInfo::description)
      .def_readonly("python_version", &ModelInfo::pythonVersion)
      .def_readonly("extern_modules", &ModelInfo::externModules)
      .def_readonly("inputs", &ModelInfo::inputs)
      .def_readonly("outputs", &ModelInfo::outputs)
      .def("__repr__", [](const ModelInfo& self) {
        return "<" + self.name + ", " + self.format + ": " + describe(self.inputs) + " -> " +
               describe(self.outputs) + ">";
      });

  py::class_<Model, std::shared_ptr<Model>>(
      module, "Model",
      "A model that every worker of a pool has. Call it: model(x, mask=m) runs in a worker and\n"
      "returns its result. Any thread may call it; the GIL is released meanwhile.")
      .def("__call__", &Model::call)
      .def("call_async", &Model::callAsync, py::arg("args"), py::arg("kwargs"), py::arg("callback"),
           "Begins the call and returns a PendingCall. callback(value, error) is called when it\n"
           "has ended, on another thread, with None for the one that there is not. Do not change\n"
           "the tensors of the arguments before. As a rule use aio() or submit() of an Executor.")
      .def(
          "aio",
          [](const py::object& self, const py::args& args, const py::kwargs& kwargs) {
            return py::module_::import("isopool.aio").attr("call")(self, args, kwargs);
          },
          "await model.aio(x): the same call for asyncio. Its cancellation ends the call, also in\n"
          "the worker. At most eight calls of a model are begun for each worker; further ones "
          "wait\n"
          "with their arguments as they are.")
      .def(
          "map",
          [](const py::object& self, const py::object& items, const py::object& lookahead,
             bool ordered) {
            return py::module_::import("isopool.models")
                .attr("map_model")(self, items, lookahead, ordered);
          },
          py::arg("items"), py::kw_only(), py::arg("lookahead") = py::none(),
          py::arg("ordered") = true,
          "for y in model.map(items): model(item) for each, on all workers. At most lookahead\n"
          "items are taken before their results are (None: three for each worker). Not ordered:\n"
          "pairs of the item's number and its result, as they come.")
      .def("stream", &Model::stream,
           "for y in model.stream(x): the items of the generator that the call returns.")
      .def(
          "session", &Model::session, py::kw_only(), py::arg("own_replica") = false,
          "with model.session() as s: calls of s run in one worker and see the state that earlier\n"
          "ones left. own_replica: a state that no other call sees; only for models that were\n"
          "loaded from a model's file, not for functions, other objects and 'app.py:factory'.\n"
          "A tensor of pool.empty() that the model keeps after a call stays the caller's memory:\n"
          "both see what the other one writes to it, unless the model keeps a clone().")
      .def_property_readonly("workers", &Model::workers, "How many workers its pool has.")
      .def("call_on_all", &Model::callOnAll,
           "Makes the same call on every worker at the same time; a list of their results.")
      .def("warm_up", &Model::warmUp,
           "Makes this call on every worker now, and on each later one before it takes calls.")
      .def("info", &Model::info, "What the model is and what it takes. Asks a worker.")
      .def("unload", &Model::unload, "All workers release the model; the next use loads it again.")
      .def("method", &Model::method, py::arg("name"),
           "A method of the model: model.method('encode')(x).")
      .def(
          "with_options", &Model::withOptions, py::kw_only(), py::arg("timeout") = py::none(),
          py::arg("idempotent") = py::none(), py::arg("tag") = py::none(),
          py::arg("run_time") = py::none(),
          "The same model, called with options. timeout: seconds, after which the call raises\n"
          "DeadlineExceeded and its worker is killed. run_time: the same, counted from the moment\n"
          "when the call is sent to a worker. idempotent: if its worker dies, the call\n"
          "runs again on another one. tag: a number for the records of calls.")
      .def_property_readonly(
          "name", [](const Model& self) { return toText(self.name()); }, "For logs and statistics.")
      .def_property_readonly("_origin", &Model::origin)
      .def("__repr__",
           [](const Model& self) { return toText("<isopool.Model " + self.name() + ">"); });
}

}  // namespace isopool::python
