// SPDX-License-Identifier: BSD-3-Clause
#include "python/native/streams.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/native/unlocked.h"
#include "python/native/values.h"

namespace isopool::python {

namespace py = pybind11;

py::object Stream::next() {
  std::optional<at::IValue> item = unlocked([&] {
    base::MutexLock lock(mutex_);
    return stream_.next();
  });
  if (!item) throw py::stop_iteration();
  return toObject(*std::move(item));
}

void Stream::close() {
  unlocked([&] {
    base::MutexLock lock(mutex_);
    stream_.close();
  });
}

std::shared_ptr<InterpreterSession> ModelSession::get() const {
  base::MutexLock lock(mutex_);
  if (!session_) throw Error("the session is closed: make another one");
  return session_;
}

py::object ModelSession::call(const std::string& method, const py::args& args,
                              const py::kwargs& kwargs) const {
  const auto session = get();
  std::vector<at::IValue> values = toValues(args);
  auto named = toNamedValues(kwargs);
  CallOptions options;
  options.pickledErrors = true;
  return toObject(unlocked([&] {
    const Obj callee = method.empty() ? session->self : session->self.attr(method.c_str(), options);
    return callee.call(std::move(values), std::move(named), options).toIValue(options);
  }));
}

void ModelSession::close() {
  std::shared_ptr<InterpreterSession> closed;
  base::MutexLock lock(mutex_);
  closed = std::move(session_);
}

void defineStreams(py::module_& module) {
  py::class_<Stream, std::shared_ptr<Stream>>(
      module, "ResultStream",
      "The items that a generator in a worker yields. The generator runs in next() only.")
      .def("__iter__", [](std::shared_ptr<Stream> self) { return self; })
      .def("__next__", &Stream::next)
      .def("close", &Stream::close, "Ends the stream: the worker closes the generator.")
      .def("__enter__", [](std::shared_ptr<Stream> self) { return self; })
      .def("__exit__", [](Stream& self, const py::args&) { self.close(); });

  py::class_<ModelSession, std::shared_ptr<ModelSession>>(
      module, "ModelSession",
      "A model in one worker: session(x) sees the state that earlier calls of it left. The state\n"
      "is lost with the worker: then calls raise WorkerLost.")
      .def("__call__", [](const ModelSession& self, const py::args& args,
                          const py::kwargs& kwargs) { return self.call({}, args, kwargs); })
      .def(
          "call_method",
          [](const ModelSession& self, const std::string& name, const py::args& args,
             const py::kwargs& kwargs) { return self.call(name, args, kwargs); },
          "session.call_method('decode', x): a method of the model.")
      .def("close", [](ModelSession& self) { unlocked([&] { self.close(); }); })
      .def("__enter__", [](std::shared_ptr<ModelSession> self) { return self; })
      .def("__exit__",
           [](ModelSession& self, const py::args&) { unlocked([&] { self.close(); }); });
}

}  // namespace isopool::python
