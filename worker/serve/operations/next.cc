// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/tensor/routing_allocator.h"
#include "worker/python/output_streams.h"
#include "worker/serve/call_failures.h"
#include "worker/serve/caller_modes.h"
#include "worker/serve/operations/handlers.h"
#include "worker/serve/running_call.h"
#include "worker/serve/traced_range.h"

namespace isopool::worker::operations {

namespace {

// As the end of a `for` would, but at once; a generator's `finally` runs. No caller
// gets what it raises.
void closeIterator(PyObject* iterator) {
  const PyRef close = PyRef::steal(PyObject_GetAttrString(iterator, "close"));
  if (!close) return PyErr_Clear();
  if (!PyRef::steal(PyObject_CallNoArgs(close.get()))) PyErr_WriteUnraisable(iterator);
}

}  // namespace

void next(RunningCall& call, ClientLink& channel) {
  const base::HandleId id = call.newHandle(0);
  const PyRef source = PyRef::share(call.handle(channel, 0));
  if (static_cast<ipc::NextAction>(call.reader().integer(1)) == ipc::NextAction::kClose) {
    channel.handles.forget(id);
    closeIterator(source.get());
    flushOutput();
    return call.answerNothing(channel);
  }
  PyRef item;
  {
    const CallerModes modes(call.received().flags);
    const ipc::ScopedBlockSource blocks(&channel.memory->output);
    const TracedRange range(channel.memory->end.epoch(), call.received().sequence);
    if (PyIter_Check(source.get()) == 0) {
      channel.handles.set(id, orRaised(PyRef::steal(PyObject_GetIter(source.get()))));
    }
    const PyRef iterator = PyRef::share(call.handle(channel, 0));
    item = PyRef::steal(PyIter_Next(iterator.get()));
  }
  RunningCall::endForkedChild();
  if (!item && PyErr_Occurred() != nullptr) throw PythonRaised{};
  flushOutput();
  if (!item) channel.handles.forget(id);
  const bool has = static_cast<bool>(item);
  call.beginValue(
      c10::ivalue::Tuple::create(at::IValue(has), has ? call.valueOf(item.get()) : at::IValue()));
  item.reset();
  call.finishValue(channel);
}

}  // namespace isopool::worker::operations
