// SPDX-License-Identifier: BSD-3-Clause
// The operations that move an object to other workers; see worker/python/moving.py.
#include "worker/python/interpreter.h"
#include "worker/python/output_streams.h"
#include "worker/serve/call_failures.h"
#include "worker/serve/call_operations.h"
#include "worker/values/python_values.h"

namespace isopool::worker {

namespace {

// dict[number] = value; throws PythonRaised.
void setNumbered(const PyRef& dict, base::PackageId number, const PyRef& value) {
  const PyRef key = orRaised(PyRef::steal(PyLong_FromUnsignedLong(number.value)));
  if (PyDict_SetItem(dict.get(), key.get(), value.get()) != 0) throw PythonRaised{};
}

}  // namespace

void pickle(RunningCall& call, ClientLink& channel) {
  PyObject* moved = call.handle(channel, 0);
  const PyRef importers = orRaised(PyRef::steal(PyDict_New()));
  const PyRef ranges = orRaised(PyRef::steal(PyList_New(0)));
  for (const auto& package : channel.packages.all()) {
    const ipc::Mapping& mapping = *package->mapping();
    if (package->shared()) {
      const auto begin = reinterpret_cast<uintptr_t>(mapping.data());
      const PyRef range = orRaised(PyRef::steal(
          Py_BuildValue("(IKK)", package->id().value, static_cast<unsigned long long>(begin),
                        static_cast<unsigned long long>(begin + mapping.bytes()))));
      if (PyList_Append(ranges.get(), range.get()) != 0) throw PythonRaised{};
    } else if (PyObject* importer = package->usedImporter()) {
      setNumbered(importers, package->id(), PyRef::share(importer));
    }
  }
  const PyRef makeMove = orRaised(workerFunction("moving", "Move"));
  PyRef move = orRaised(PyRef::steal(
      PyObject_CallFunctionObjArgs(makeMove.get(), moved, importers.get(), ranges.get(), nullptr)));
  const PyRef summary = orRaised(PyRef::steal(PyObject_CallMethod(move.get(), "summary", nullptr)));
  flushOutput();
  channel.handles.set(call.newHandle(1), std::move(move));
  call.answerValue(channel, fromPython(summary.get()));
}

void fillMovable(RunningCall& call, ClientLink& channel) {
  PyObject* move = call.handle(channel, 0);
  const PyRef memory = orRaised(call.package(channel, 1).capsule());
  orRaised(PyRef::steal(PyObject_CallMethod(move, "fill", "O", memory.get())));
  call.answerNothing(channel);
}

void defineMovable(RunningCall& call, ClientLink& channel) {
  const base::ObjectId id(call.reader().integer(0));
  if (channel.objects.find(id) == nullptr) {
    const Package& own = call.package(channel, 1);
    const uint64_t offset = call.reader().integer(2);
    const uint64_t bytes = call.reader().integer(3);
    if (offset > own.mapping()->bytes() || bytes > own.mapping()->bytes() - offset) {
      badRequest("a moved object's pickle reaches beyond its memory");
    }
    const PyRef memories = orRaised(PyRef::steal(PyDict_New()));
    const PyRef importers = orRaised(PyRef::steal(PyDict_New()));
    const msgpack::object& referred = call.reader().element(4);
    for (uint32_t i = 0; i < arrayOf(referred).via.array.size; ++i) {
      const base::PackageId number(referred.via.array.ptr[i].as<uint32_t>());
      Package& package = call.packageOf(channel, number);
      if (package.shared()) {
        setNumbered(memories, number, orRaised(package.capsule()));
      } else {
        setNumbered(importers, number, orRaised(PyRef::share(package.importer())));
      }
    }
    const PyRef data = orRaised(PyRef::steal(
        PyBytes_FromStringAndSize(reinterpret_cast<const char*>(own.mapping()->data() + offset),
                                  static_cast<Py_ssize_t>(bytes))));
    const PyRef memory = orRaised(own.capsule());
    const PyRef receive = orRaised(workerFunction("moving", "receive"));
    PyRef received = orRaised(PyRef::steal(PyObject_CallFunctionObjArgs(
        receive.get(), data.get(), memory.get(), memories.get(), importers.get(), nullptr)));
    flushOutput();
    channel.objects.set(id, std::move(received));
  }
  call.answerNothing(channel);
}

}  // namespace isopool::worker
