// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <utility>

#include "worker/python/interpreter.h"
#include "worker/python/output_streams.h"
#include "worker/serve/call_failures.h"
#include "worker/serve/operations/handlers.h"
#include "worker/serve/operations/numbered_packages.h"
#include "worker/serve/running_call.h"

namespace isopool::worker::operations {

void defineMovable(RunningCall& call, ClientLink& channel) {
  const base::ObjectId id(call.reader().integer(0));
  if (channel.objects.find(id) == nullptr) {
    ShownModels::Name name = call.modelName(5);
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
    channel.objects.set(id, std::move(received), std::move(name));
  }
  call.answerNothing(channel);
}

}  // namespace isopool::worker::operations
