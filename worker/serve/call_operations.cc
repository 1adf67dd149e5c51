// SPDX-License-Identifier: BSD-3-Clause
// What each operation of a call does in Python.
#include <unistd.h>

#include <string>

#include "ipc/crash_point.h"
#include "ipc/tensor/payload_format.h"
#include "worker/backends/model_functions.h"
#include "worker/process/crash_log.h"
#include "worker/process/user_forks.h"
#include "worker/python/interpreter.h"
#include "worker/python/output_streams.h"
#include "worker/serve/call_failures.h"
#include "worker/serve/call_runner.h"
#include "worker/serve/caller_modes.h"
#include "worker/serve/traced_range.h"
#include "worker/values/python_values.h"

namespace isopool::worker {

namespace {

// User code forked and came back: what follows belongs to the parent alone.
void endForkedChild() {
  if (!isForkedChild()) return;
  logError(
      "isopool worker: a process that user code forked returned from its call; it ends here\n");
  ::_exit(1);
}

// As the end of a `for` would, but at once; a generator's `finally` runs. What it raises is
// nobody's.
void closeIterator(PyObject* iterator) {
  const PyRef close = PyRef::steal(PyObject_GetAttrString(iterator, "close"));
  if (!close) return PyErr_Clear();
  if (!PyRef::steal(PyObject_CallNoArgs(close.get()))) PyErr_WriteUnraisable(iterator);
}

}  // namespace

/// The arguments of one call as Python wants them: positional ones, then those by name. Owns them.
class CallRunner::Arguments {
 public:
  Arguments(CallRunner& runner, const ClientLink& channel, const msgpack::object& positional,
            const msgpack::object& named)
      : stack_(runner.stack_) {
    stack_.clear();
    stack_.push_back(nullptr);  // for the callee's use: PY_VECTORCALL_ARGUMENTS_OFFSET
    try {
      const auto& array = arrayOf(positional).via.array;
      for (uint32_t i = 0; i < array.size; ++i) {
        stack_.push_back(runner.argument(channel, array.ptr[i]).release());
      }
      positionals_ = array.size;
      if (named.type != msgpack::type::MAP) badRequest("a call has no map of named arguments");
      const auto& map = named.via.map;
      if (map.size == 0) return;
      names_ = PyRef::steal(PyTuple_New(map.size));
      for (uint32_t i = 0; i < map.size; ++i) {
        const msgpack::object& key = map.ptr[i].key;
        if (key.type != msgpack::type::STR) badRequest("an argument's name is no string");
        PyObject* name = PyUnicode_DecodeUTF8(key.via.str.ptr, key.via.str.size, nullptr);
        if (name == nullptr) throw PythonRaised{};
        PyTuple_SET_ITEM(names_.get(), i, name);
        stack_.push_back(runner.argument(channel, map.ptr[i].val).release());
      }
    } catch (...) {
      drop();
      throw;
    }
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  ~Arguments() { drop(); }

  PyRef passTo(PyObject* callable) {
    return PyRef::steal(PyObject_Vectorcall(
        callable, stack_.data() + 1, positionals_ | PY_VECTORCALL_ARGUMENTS_OFFSET, names_.get()));
  }

 private:
  void drop() {
    for (size_t i = 1; i < stack_.size(); ++i) Py_XDECREF(stack_[i]);
    stack_.clear();
  }

  std::vector<PyObject*>& stack_;
  size_t positionals_ = 0;
  PyRef names_;
};

void CallRunner::perform(ClientLink& channel) {
  switch (static_cast<ipc::Operation>(received_.operation)) {
    case ipc::Operation::kPing:
      return answerNothing(channel);
    case ipc::Operation::kAssumeSlot:
      channel.slot = reader_->integer(0);
      assumeSlotOf(channel);
      return answerNothing(channel);
    case ipc::Operation::kFindModules:
      return findModules(channel);
    case ipc::Operation::kExtendPath:
      extendPath();
      return answerNothing(channel);
    case ipc::Operation::kRegisterModule:
      registerModule();
      return answerNothing(channel);
    case ipc::Operation::kDefineObject:
      return defineObject(channel);
    case ipc::Operation::kForgetObject:
      if (channel.objects.forget(base::ObjectId(reader_->integer(0)))) control_.requestCollection();
      return answerNothing(channel);
    case ipc::Operation::kCallObject:
      return callObject(channel);
    case ipc::Operation::kObjectHasAttribute:
    case ipc::Operation::kHasAttribute: {
      const bool ofObject =
          static_cast<ipc::Operation>(received_.operation) == ipc::Operation::kObjectHasAttribute;
      PyObject* owner = ofObject ? object(channel, 0) : handle(channel, 0);
      const PyRef name = text(1);
      const CallerModes modes(received_.flags);
      // Every exception of the attribute means "no", as it did in torch::deploy.
      const PyRef value = PyRef::steal(PyObject_GetAttr(owner, name.get()));
      PyErr_Clear();
      return answerTruth(channel, static_cast<bool>(value));
    }
    case ipc::Operation::kObjectHandle:
      channel.handles.set(newHandle(1), PyRef::share(object(channel, 0)));
      return answerNothing(channel);
    case ipc::Operation::kPackageHandle:
      return packageHandle(channel);
    case ipc::Operation::kGlobal:
      return global(channel);
    case ipc::Operation::kFromValue:
      channel.handles.set(newHandle(1), argument(channel, reader_->element(0)));
      return answerNothing(channel);
    case ipc::Operation::kAttribute:
      return attribute(channel);
    case ipc::Operation::kCallHandle:
      return callHandle(channel);
    case ipc::Operation::kNext:
      return next(channel);
    case ipc::Operation::kToValue:
      return answerResult(channel, PyRef::share(handle(channel, 0)));
    case ipc::Operation::kPickle:
      return pickle(channel);
    case ipc::Operation::kFillMovable:
      return fillMovable(channel);
    case ipc::Operation::kDefineMovable:
      return defineMovable(channel);
    case ipc::Operation::kReleaseHandles: {
      bool mayBeLast = false;
      for (size_t i = 0; i < reader_->elements(); ++i) {
        const base::HandleId id(reader_->integer(i));
        mayBeLast = mayBeLast || !(channel.newestOfDropped < id);
        channel.handles.forget(id);
      }
      if (mayBeLast) control_.requestCollection();
      return answerNothing(channel);
    }
  }
  badRequest("the call asks for an unknown operation");
}

// Each client sees its own number.
void CallRunner::assumeSlotOf(const ClientLink& channel) {
  if (!channel.slot || channel.slot == slot_) return;
  const PyRef version = orRaised(PyRef::steal(PyImport_ImportModule("torch.version")));
  const PyRef slot = PyRef::steal(PyLong_FromUnsignedLongLong(*channel.slot));
  if (PyObject_SetAttrString(version.get(), "interp", slot.get()) != 0) throw PythonRaised{};
  slot_ = channel.slot;
}

void CallRunner::findModules(ClientLink& channel) {
  PyRef names = PyRef::steal(PyList_New(0));
  for (size_t i = 0; i < reader_->elements(); ++i) PyList_Append(names.get(), text(i).get());
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
  answerValue(channel, answer);
}

void CallRunner::extendPath() {
  PyObject* path = PySys_GetObject("path");
  if (path == nullptr || !PyList_Check(path)) badRequest("sys.path is not a list");
  for (size_t i = 0; i < reader_->elements(); ++i) {
    const PyRef folder = text(i);
    sandbox_.noteModuleFolder(std::string(reader_->text(i)));
    const int known = PySequence_Contains(path, folder.get());
    if (known < 0 || (known == 0 && PyList_Append(path, folder.get()) != 0)) throw PythonRaised{};
  }
}

void CallRunner::registerModule() {
  const std::string_view name = reader_->text(0);
  const std::string_view source = reader_->text(1);
  const PyRef registrar = orRaised(workerFunction("modules", "register"));
  // Whatever its bytes are: the text is judged when it is imported, where the error is understood.
  const PyRef moduleName = orRaised(PyRef::steal(
      PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "replace")));
  const PyRef text = orRaised(PyRef::steal(
      PyBytes_FromStringAndSize(source.data(), static_cast<Py_ssize_t>(source.size()))));
  orRaised(PyRef::steal(
      PyObject_CallFunctionObjArgs(registrar.get(), moduleName.get(), text.get(), nullptr)));
}

void CallRunner::defineObject(ClientLink& channel) {
  const base::ObjectId id(reader_->integer(0));
  if (channel.objects.find(id) == nullptr) {
    Package& file = package(channel, 1);
    const PyRef format = boundedText(2, ipc::kMostFormatNameBytes);
    const PyRef options = boundedText(3, ipc::kMostModelOptionsBytes);
    PyRef loaded = loadModel(file, format.get(), options.get());
    if (!loaded) {
      // What was half made, if no importer has it.
      if (file.usedImporter() == nullptr) control_.requestCollection();
      throw PythonRaised{};
    }
    flushOutput();
    channel.objects.set(id, std::move(loaded));
  }
  answerNothing(channel);
}

void CallRunner::callObject(ClientLink& channel) {
  PyRef result = call(channel, object(channel, 0), 1);
  answerResult(channel, std::move(result));
}

void CallRunner::packageHandle(ClientLink& channel) {
  PyObject* importer = package(channel, 0).importer();
  if (importer == nullptr) throw PythonRaised{};
  channel.handles.set(newHandle(1), PyRef::share(importer));
  answerNothing(channel);
}

void CallRunner::global(ClientLink& channel) {
  const PyRef moduleName = text(0);
  const PyRef name = text(1);
  const PyRef module = orRaised(PyRef::steal(PyImport_Import(moduleName.get())));
  flushOutput();
  channel.handles.set(newHandle(2),
                      orRaised(PyRef::steal(PyObject_GetAttr(module.get(), name.get()))));
  answerNothing(channel);
}

void CallRunner::attribute(ClientLink& channel) {
  PyObject* owner = handle(channel, 0);
  const PyRef name = text(1);
  PyRef value;
  {
    const CallerModes modes(received_.flags);
    const ipc::ScopedBlockSource source(&channel.memory->output);
    value = PyRef::steal(PyObject_GetAttr(owner, name.get()));
  }
  channel.handles.set(newHandle(2), orRaised(std::move(value)));
  answerNothing(channel);
}

void CallRunner::callHandle(ClientLink& channel) {
  const base::HandleId made = newHandle(1);
  PyRef result = call(channel, handle(channel, 0), 2);
  dropInputs();
  channel.handles.set(made, std::move(result));
  answerNothing(channel);
}

void CallRunner::next(ClientLink& channel) {
  const base::HandleId id = newHandle(0);
  const PyRef source = PyRef::share(handle(channel, 0));
  if (static_cast<ipc::NextAction>(reader_->integer(1)) == ipc::NextAction::kClose) {
    channel.handles.forget(id);
    closeIterator(source.get());
    flushOutput();
    return answerNothing(channel);
  }
  PyRef item;
  {
    const CallerModes modes(received_.flags);
    const ipc::ScopedBlockSource blocks(&channel.memory->output);
    const TracedRange range(channel.memory->end.epoch(), received_.sequence);
    if (PyIter_Check(source.get()) == 0) {
      channel.handles.set(id, orRaised(PyRef::steal(PyObject_GetIter(source.get()))));
    }
    const PyRef iterator = PyRef::share(handle(channel, 0));
    item = PyRef::steal(PyIter_Next(iterator.get()));
  }
  endForkedChild();
  if (!item && PyErr_Occurred() != nullptr) throw PythonRaised{};
  flushOutput();
  if (!item) channel.handles.forget(id);
  writer_.clear();
  writer_.packer().pack_array(2);
  const bool has = static_cast<bool>(item);
  writer_.addValue(
      c10::ivalue::Tuple::create(at::IValue(has), has ? valueOf(item.get()) : at::IValue()));
  item.reset();
  finishValue(channel);
}

PyObject* CallRunner::object(const ClientLink& channel, size_t index) const {
  const base::ObjectId id(reader_->integer(index));
  PyObject* found = channel.objects.find(id);
  if (found == nullptr) {
    throw Refusal(ipc::RefusalKind::kObjectUnloaded,
                  "object " + std::to_string(id.value) + " is not on this worker");
  }
  return found;
}

PyObject* CallRunner::handle(const ClientLink& channel, size_t index) const {
  const base::HandleId id(reader_->integer(index));
  PyObject* found = channel.handles.find(id);
  if (found == nullptr) badRequest("handle " + std::to_string(id.value) + " is not on this worker");
  return found;
}

Package& CallRunner::package(ClientLink& channel, size_t index) {
  return packageOf(channel, base::PackageId(ipc::unsigned32Of(reader_->element(index))));
}

Package& CallRunner::packageOf(ClientLink& channel, base::PackageId id) {
  const auto settled = [&] {
    if (channel.packages.find(id) != nullptr) return true;
    // Nobody keeps a package loaded for a notification: this one has come too late.
    if ((received_.flags & ipc::kNoReply) == 0 || !channel.packages.wasRemoved(id)) return false;
    badRequest("package " + std::to_string(id.value) + " is not loaded any more");
  };
  if (!awaitSupervisor(settled)) {
    badRequest("package " + std::to_string(id.value) + " was not sent within 5 seconds");
  }
  return *channel.packages.find(id);
}

PyRef CallRunner::argument(const ClientLink& channel, const msgpack::object& object) const {
  if (object.type == msgpack::type::EXT) {
    if (const auto id = ipc::PayloadReader::handle(object)) {
      PyObject* found = channel.handles.find(base::HandleId(*id));
      if (found == nullptr) badRequest("handle " + std::to_string(*id) + " is not on this worker");
      return PyRef::share(found);
    }
  }
  return toPython(reader_->value(object));
}

PyRef CallRunner::text(size_t index) const {
  const std::string_view bytes = reader_->text(index);
  return orRaised(PyRef::steal(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), nullptr)));
}

PyRef CallRunner::boundedText(size_t index, size_t mostBytes) const {
  const size_t bytes = reader_->text(index).size();
  if (bytes > mostBytes) {
    badRequest("element " + std::to_string(index) + " of the request is a text of " +
               std::to_string(bytes) + " bytes, and at most " + std::to_string(mostBytes) +
               " are allowed");
  }
  return text(index);
}

PyRef CallRunner::call(ClientLink& channel, PyObject* callable, size_t argumentsIndex) {
  // The callee may make the client's tables forget it, and itself be running.
  const PyRef callee = PyRef::share(callable);
  PyRef result;
  {
    Arguments arguments(*this, channel, reader_->element(argumentsIndex),
                        reader_->element(argumentsIndex + 1));
    const CallerModes modes(received_.flags);
    const ipc::ScopedBlockSource source(&channel.memory->output);
    const TracedRange range(channel.memory->end.epoch(), received_.sequence);
    result = arguments.passTo(callee.get());
  }
  endForkedChild();
  ipc::reachCrashPoint(ipc::CrashPoint::kCallReturned);
  if (!result) throw PythonRaised{};
  flushOutput();
  return result;
}

}  // namespace isopool::worker
