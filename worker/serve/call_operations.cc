// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/call_operations.h"

#include <string>

#include "worker/backends/model_functions.h"
#include "worker/python/interpreter.h"
#include "worker/python/output_streams.h"
#include "worker/serve/call_failures.h"
#include "worker/serve/caller_modes.h"
#include "worker/serve/traced_range.h"
#include "worker/values/python_values.h"

namespace isopool::worker {

namespace {

// As the end of a `for` would, but at once; a generator's `finally` runs. What it raises is
// nobody's.
void closeIterator(PyObject* iterator) {
  const PyRef close = PyRef::steal(PyObject_GetAttrString(iterator, "close"));
  if (!close) return PyErr_Clear();
  if (!PyRef::steal(PyObject_CallNoArgs(close.get()))) PyErr_WriteUnraisable(iterator);
}

}  // namespace

void ping(RunningCall& call, ClientLink& channel) { call.answerNothing(channel); }

// Sets torch.version.interp to the client's slot, if Python code sees another one. Each client sees
// its own number.
void assumeSlot(RunningCall& call, ClientLink& channel) {
  channel.slot = call.reader().integer(0);
  if (channel.slot != call.shownSlot()) {
    const PyRef version = orRaised(PyRef::steal(PyImport_ImportModule("torch.version")));
    const PyRef slot = PyRef::steal(PyLong_FromUnsignedLongLong(*channel.slot));
    if (PyObject_SetAttrString(version.get(), "interp", slot.get()) != 0) throw PythonRaised{};
    call.shownSlot() = channel.slot;
  }
  call.answerNothing(channel);
}

void findModules(RunningCall& call, ClientLink& channel) {
  PyRef names = PyRef::steal(PyList_New(0));
  for (size_t i = 0; i < call.reader().elements(); ++i) {
    PyList_Append(names.get(), call.text(i).get());
  }
  const PyRef find = orRaised(workerFunction("modules", "find_missing"));
  const PyRef missing = orRaised(PyRef::steal(PyObject_CallOneArg(find.get(), names.get())));
  // Not inferred: an empty list is the good answer here.
  c10::List<std::string> answer;
  for (Py_ssize_t i = 0; i < PyList_Size(missing.get()); ++i) {
    const char* name = PyUnicode_AsUTF8(PyList_GetItem(missing.get(), i));
    if (name == nullptr) throw PythonRaised{};
    answer.push_back(name);
  }
  flushOutput();
  call.answerValue(channel, answer);
}

void extendPath(RunningCall& call, ClientLink& channel) {
  PyObject* path = PySys_GetObject("path");
  if (path == nullptr || !PyList_Check(path)) badRequest("sys.path is not a list");
  for (size_t i = 0; i < call.reader().elements(); ++i) {
    const PyRef folder = call.text(i);
    call.sandbox().noteModuleFolder(std::string(call.reader().text(i)));
    const int known = PySequence_Contains(path, folder.get());
    if (known < 0 || (known == 0 && PyList_Append(path, folder.get()) != 0)) throw PythonRaised{};
  }
  call.answerNothing(channel);
}

void registerModule(RunningCall& call, ClientLink& channel) {
  const std::string_view name = call.reader().text(0);
  const std::string_view source = call.reader().text(1);
  const PyRef registrar = orRaised(workerFunction("modules", "register"));
  // Whatever its bytes are: the text is judged when it is imported, where the error is understood.
  const PyRef moduleName = orRaised(PyRef::steal(
      PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "replace")));
  const PyRef text = orRaised(PyRef::steal(
      PyBytes_FromStringAndSize(source.data(), static_cast<Py_ssize_t>(source.size()))));
  orRaised(PyRef::steal(
      PyObject_CallFunctionObjArgs(registrar.get(), moduleName.get(), text.get(), nullptr)));
  call.answerNothing(channel);
}

void defineObject(RunningCall& call, ClientLink& channel) {
  const base::ObjectId id(call.reader().integer(0));
  if (channel.objects.find(id) == nullptr) {
    Package& file = call.package(channel, 1);
    const PyRef format = call.boundedText(2, ipc::kMostFormatNameBytes);
    const PyRef options = call.boundedText(3, ipc::kMostModelOptionsBytes);
    PyRef loaded = loadModel(file, format.get(), options.get());
    if (!loaded) {
      // What was half made, if no importer has it.
      if (file.usedImporter() == nullptr) call.control().requestCollection();
      throw PythonRaised{};
    }
    flushOutput();
    channel.objects.set(id, std::move(loaded));
  }
  call.answerNothing(channel);
}

void forgetObject(RunningCall& call, ClientLink& channel) {
  const base::ObjectId id(call.reader().integer(0));
  if (channel.objects.forget(id)) call.control().requestCollection();
  call.answerNothing(channel);
}

void callObject(RunningCall& call, ClientLink& channel) {
  PyRef result = call.callPython(channel, call.object(channel, 0), 1);
  call.answerResult(channel, std::move(result));
}

void hasAttribute(RunningCall& call, ClientLink& channel) {
  const bool ofObject =
      static_cast<ipc::Operation>(call.received().operation) == ipc::Operation::kObjectHasAttribute;
  PyObject* owner = ofObject ? call.object(channel, 0) : call.handle(channel, 0);
  const PyRef name = call.text(1);
  const CallerModes modes(call.received().flags);
  // Every exception of the attribute means "no", as it did in torch::deploy.
  const PyRef value = PyRef::steal(PyObject_GetAttr(owner, name.get()));
  PyErr_Clear();
  call.answerTruth(channel, static_cast<bool>(value));
}

void objectHandle(RunningCall& call, ClientLink& channel) {
  channel.handles.set(call.newHandle(1), PyRef::share(call.object(channel, 0)));
  call.answerNothing(channel);
}

void packageHandle(RunningCall& call, ClientLink& channel) {
  PyObject* importer = call.package(channel, 0).importer();
  if (importer == nullptr) throw PythonRaised{};
  channel.handles.set(call.newHandle(1), PyRef::share(importer));
  call.answerNothing(channel);
}

void global(RunningCall& call, ClientLink& channel) {
  const PyRef moduleName = call.text(0);
  const PyRef name = call.text(1);
  const PyRef module = orRaised(PyRef::steal(PyImport_Import(moduleName.get())));
  flushOutput();
  channel.handles.set(call.newHandle(2),
                      orRaised(PyRef::steal(PyObject_GetAttr(module.get(), name.get()))));
  call.answerNothing(channel);
}

void fromValue(RunningCall& call, ClientLink& channel) {
  channel.handles.set(call.newHandle(1), call.argument(channel, call.reader().element(0)));
  call.answerNothing(channel);
}

void attribute(RunningCall& call, ClientLink& channel) {
  PyObject* owner = call.handle(channel, 0);
  const PyRef name = call.text(1);
  PyRef value;
  {
    const CallerModes modes(call.received().flags);
    const ipc::ScopedBlockSource source(&channel.memory->output);
    value = PyRef::steal(PyObject_GetAttr(owner, name.get()));
  }
  channel.handles.set(call.newHandle(2), orRaised(std::move(value)));
  call.answerNothing(channel);
}

void callHandle(RunningCall& call, ClientLink& channel) {
  const base::HandleId made = call.newHandle(1);
  PyRef result = call.callPython(channel, call.handle(channel, 0), 2);
  call.dropInputs();
  channel.handles.set(made, std::move(result));
  call.answerNothing(channel);
}

void toValue(RunningCall& call, ClientLink& channel) {
  call.answerResult(channel, PyRef::share(call.handle(channel, 0)));
}

void releaseHandles(RunningCall& call, ClientLink& channel) {
  bool mayBeLast = false;
  for (size_t i = 0; i < call.reader().elements(); ++i) {
    const base::HandleId id(call.reader().integer(i));
    mayBeLast = mayBeLast || !(channel.newestOfDropped < id);
    channel.handles.forget(id);
  }
  if (mayBeLast) call.control().requestCollection();
  call.answerNothing(channel);
}

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
  call.writer().clear();
  call.writer().packer().pack_array(2);
  const bool has = static_cast<bool>(item);
  call.writer().addValue(
      c10::ivalue::Tuple::create(at::IValue(has), has ? call.valueOf(item.get()) : at::IValue()));
  item.reset();
  call.finishValue(channel);
}

void perform(RunningCall& call, ClientLink& channel) {
  switch (static_cast<ipc::Operation>(call.received().operation)) {
    case ipc::Operation::kPing:
      return ping(call, channel);
    case ipc::Operation::kAssumeSlot:
      return assumeSlot(call, channel);
    case ipc::Operation::kFindModules:
      return findModules(call, channel);
    case ipc::Operation::kExtendPath:
      return extendPath(call, channel);
    case ipc::Operation::kRegisterModule:
      return registerModule(call, channel);
    case ipc::Operation::kDefineObject:
      return defineObject(call, channel);
    case ipc::Operation::kForgetObject:
      return forgetObject(call, channel);
    case ipc::Operation::kCallObject:
      return callObject(call, channel);
    case ipc::Operation::kObjectHasAttribute:
    case ipc::Operation::kHasAttribute:
      return hasAttribute(call, channel);
    case ipc::Operation::kObjectHandle:
      return objectHandle(call, channel);
    case ipc::Operation::kPackageHandle:
      return packageHandle(call, channel);
    case ipc::Operation::kGlobal:
      return global(call, channel);
    case ipc::Operation::kFromValue:
      return fromValue(call, channel);
    case ipc::Operation::kAttribute:
      return attribute(call, channel);
    case ipc::Operation::kCallHandle:
      return callHandle(call, channel);
    case ipc::Operation::kNext:
      return next(call, channel);
    case ipc::Operation::kToValue:
      return toValue(call, channel);
    case ipc::Operation::kPickle:
      return pickle(call, channel);
    case ipc::Operation::kFillMovable:
      return fillMovable(call, channel);
    case ipc::Operation::kDefineMovable:
      return defineMovable(call, channel);
    case ipc::Operation::kReleaseHandles:
      return releaseHandles(call, channel);
  }
  badRequest("the call asks for an unknown operation");
}

}  // namespace isopool::worker
