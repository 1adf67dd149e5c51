// SPDX-License-Identifier: BSD-3-Clause
#include "worker/call_runner.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "ipc/channel/futex.h"
#include "ipc/crash_point.h"
#include "worker/forked_child.h"
#include "worker/interpreter.h"
#include "worker/last_words.h"
#include "worker/python_errors.h"
#include "worker/python_values.h"
#include "worker/refusal.h"

namespace isopool::worker {

namespace {

constexpr int64_t kWaitForSupervisor = 5'000'000'000;  // ns
constexpr size_t kMaxBlobBytes = size_t{1} << 32;
constexpr size_t kMaxInlineReason = 1024;

// [] and no storages; [nil, []] and no storages
constexpr std::array<std::byte, 2> kNoBody = {std::byte{0x90}, std::byte{0x90}};
constexpr std::array<std::byte, 4> kNilBody = {std::byte{0x92}, std::byte{0xc0}, std::byte{0x90},
                                               std::byte{0x90}};

// A Python error is set and is the call's answer.
struct PythonRaised {};

template <typename Reference>
Reference orRaised(Reference reference) {
  if (!reference) throw PythonRaised{};
  return reference;
}

[[noreturn]] void badRequest(const std::string& text) {
  throw Refusal(ipc::RefusalKind::kBadRequest, text);
}

/// The caller's modes, in force while user code runs for it.
class CallerModes {
 public:
  explicit CallerModes(uint32_t flags) : grad_((flags & ipc::kGradEnabled) != 0) {
    if ((flags & ipc::kInferenceMode) != 0) inference_.emplace(true);
  }

 private:
  at::AutoGradMode grad_;
  std::optional<c10::InferenceMode> inference_;
};

// print() without a newline would stay in Python's buffer until the next call. Not while a Python
// error is set, which would be lost.
void flushOutput() {
  static PyObject* const flush = PyUnicode_InternFromString("flush");
  for (const char* name : {"stdout", "stderr"}) {
    PyObject* stream = PySys_GetObject(name);
    if (stream == nullptr || stream == Py_None) continue;
    if (!PyRef::steal(PyObject_CallMethodNoArgs(stream, flush))) PyErr_Clear();
  }
}

// What a client asks of every worker before it uses it: a worker that dies of its first call has
// done this much.
bool isPreparation(ipc::Operation operation) {
  switch (operation) {
    case ipc::Operation::kPing:
    case ipc::Operation::kAssumeSlot:
    case ipc::Operation::kExtendPath:
    case ipc::Operation::kFindModules:
    case ipc::Operation::kDefineObject:
      return true;
    default:
      return false;
  }
}

const msgpack::object& arrayOf(const msgpack::object& object) {
  if (object.type != msgpack::type::ARRAY) badRequest("a call has no array of arguments");
  return object;
}

}  // namespace

/// The arguments of one call as Python wants them: positional ones, then those by name. Owns them.
class CallRunner::Arguments {
 public:
  Arguments(CallRunner& runner, const Channel& channel, const msgpack::object& positional,
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

CallRunner::CallRunner(ControlPlane& control, CopyCounts& copies)
    : control_(control), totalCopies_(copies), export_(history_, control) {}

bool CallRunner::serveOne(Channel& channel) {
  ipc::WorkerEnd& end = channel.memory->end;
  switch (end.peek(received_)) {
    case ipc::Received::kNothing:
      return false;
    case ipc::Received::kPoisoned:
      complain("isopool worker: a client's channel holds nonsense, it is given up\n");
      channel.detached = true;
      return false;
    case ipc::Received::kOne:
      break;
  }
  channel.memory->output.collectReturned();
  while (!channel.blobs.empty() &&
         static_cast<int32_t>(end.completionsConsumed() - channel.blobs.front().completion) >= 0) {
    channel.memory->output.dropReference(channel.blobs.front().block);
    channel.blobs.pop_front();
  }
  answered_ = false;
  copies_.clear();
  channel.memory->borrowed.beginCall();
  run(channel);
  channel.memory->output.endCall();
  totalCopies_.add(copies_);
  return true;
}

void CallRunner::run(Channel& channel) {
  const auto operation = static_cast<ipc::Operation>(received_.operation);
  const auto keep = operation == ipc::Operation::kCallObject ? OutputBlocks::Keep::kNothing
                                                             : OutputBlocks::Keep::kUnlent;
  auto refusalKind = ipc::RefusalKind::kBadRequest;
  std::string reason;
  try {
    const auto bytes = payload(channel);
    channel.memory->end.taken();
    reader_.emplace(bytes);
    if (!awaitSupervisor([&] { return CallInputs::resolvable(channel, reader_->storages()); })) {
      badRequest(
          "the call names shared memory or a package that the supervisor has not sent within "
          "5 seconds");
    }
    inputs_.resolve(channel, *reader_);
    if (channel.memory->end.start(received_.sequence) == ipc::Start::kRecalled) {
      dropInputs();
      publish(channel, ipc::CompletionStatus::kWithdrawn, kNoBody);
      return;
    }
    perform(channel);
    return;
  } catch (const PythonRaised&) {
    answerPythonError(channel, keep);
    return;
  } catch (const Refusal& refusal) {
    refusalKind = refusal.kind();
    reason = refusal.what();
  } catch (const ipc::ValueError& error) {
    refusalKind = ipc::RefusalKind::kUnsupportedValue;
    reason = error.what();
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  PyErr_Clear();
  channel.memory->output.cancelLeases();
  dropInputs();
  settleKept(channel, keep);
  refuse(channel, refusalKind, reason);
}

std::span<const std::byte> CallRunner::payload(Channel& channel) {
  const ipc::PayloadPlace& place = received_.payload;
  if (place.blobBytes == 0) return {received_.bytes, place.inlineBytes};
  const ipc::SegmentId segmentId(place.blobSegment);
  const auto find = [&] { return channel.memory->inputs.find(segmentId); };
  if (!awaitSupervisor([&] { return find() != nullptr; })) {
    channel.memory->end.taken();
    badRequest("the call lies in shared memory that the supervisor has not sent within 5 seconds");
  }
  const ipc::Mapping& mapping = find()->mapping;
  if (place.blobBytes > kMaxBlobBytes || place.blobOffset > mapping.bytes() ||
      place.blobBytes > mapping.bytes() - place.blobOffset) {
    channel.memory->end.taken();
    badRequest("the call reaches beyond its segment");
  }
  // Copied once, so that what was checked is what is used.
  blob_.resize(place.blobBytes);
  std::memcpy(blob_.data(), mapping.data() + place.blobOffset, place.blobBytes);
  return blob_;
}

template <typename Ready>
bool CallRunner::awaitSupervisor(Ready ready) {
  if (ready()) return true;
  const int64_t deadline = ipc::monotonicNow() + kWaitForSupervisor;
  while (control_.waitForMessage(deadline)) {
    if (ready()) return true;
  }
  return ready();
}

void CallRunner::perform(Channel& channel) {
  switch (static_cast<ipc::Operation>(received_.operation)) {
    case ipc::Operation::kPing:
      return answerNothing(channel);
    case ipc::Operation::kAssumeSlot:
      assumeSlot();
      return answerNothing(channel);
    case ipc::Operation::kFindModules:
      return findModules(channel);
    case ipc::Operation::kExtendPath:
      extendPath();
      return answerNothing(channel);
    case ipc::Operation::kDefineObject:
      return defineObject(channel);
    case ipc::Operation::kForgetObject:
      channel.objects.forget(ipc::ObjectId(reader_->integer(0)));
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
    case ipc::Operation::kToValue:
      return answerResult(channel, PyRef::share(handle(channel, 0)), OutputBlocks::Keep::kUnlent);
    case ipc::Operation::kReleaseHandles:
      for (size_t i = 0; i < reader_->elements(); ++i) {
        channel.handles.forget(ipc::HandleId(reader_->integer(i)));
      }
      return answerNothing(channel);
  }
  badRequest("the call asks for an unknown operation");
}

// ---- operations -------------------------------------------------------------------------------

void CallRunner::assumeSlot() {
  const PyRef version = orRaised(PyRef::steal(PyImport_ImportModule("torch.version")));
  const PyRef slot = PyRef::steal(PyLong_FromUnsignedLongLong(reader_->integer(0)));
  if (PyObject_SetAttrString(version.get(), "interp", slot.get()) != 0) throw PythonRaised{};
}

void CallRunner::findModules(Channel& channel) {
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
    const int known = PySequence_Contains(path, folder.get());
    if (known < 0 || (known == 0 && PyList_Append(path, folder.get()) != 0)) throw PythonRaised{};
  }
}

void CallRunner::defineObject(Channel& channel) {
  const ipc::ObjectId id(reader_->integer(0));
  if (channel.objects.find(id) == nullptr) {
    PyObject* importer = package(channel, 1).importer();
    if (importer == nullptr) throw PythonRaised{};
    const PyRef module = text(2);
    const PyRef file = text(3);
    const PyRef load = orRaised(PyRef::steal(PyObject_GetAttrString(importer, "load_pickle")));
    PyRef loaded = orRaised(
        PyRef::steal(PyObject_CallFunctionObjArgs(load.get(), module.get(), file.get(), nullptr)));
    flushOutput();
    channel.objects.set(id, std::move(loaded));
  }
  answerNothing(channel);
}

void CallRunner::callObject(Channel& channel) {
  PyRef result = call(channel, object(channel, 0), 1);
  answerResult(channel, std::move(result), OutputBlocks::Keep::kNothing);
}

void CallRunner::packageHandle(Channel& channel) {
  PyObject* importer = package(channel, 0).importer();
  if (importer == nullptr) throw PythonRaised{};
  channel.handles.set(newHandle(1), PyRef::share(importer));
  answerNothing(channel);
}

void CallRunner::global(Channel& channel) {
  const PyRef moduleName = text(0);
  const PyRef name = text(1);
  const PyRef module = orRaised(PyRef::steal(PyImport_Import(moduleName.get())));
  flushOutput();
  channel.handles.set(newHandle(2),
                      orRaised(PyRef::steal(PyObject_GetAttr(module.get(), name.get()))));
  answerNothing(channel);
}

void CallRunner::attribute(Channel& channel) {
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

void CallRunner::callHandle(Channel& channel) {
  const ipc::HandleId made = newHandle(1);
  PyRef result = call(channel, handle(channel, 0), 2);
  dropInputs();
  channel.handles.set(made, std::move(result));
  answerNothing(channel);
}

PyObject* CallRunner::object(const Channel& channel, size_t index) const {
  const ipc::ObjectId id(reader_->integer(index));
  PyObject* found = channel.objects.find(id);
  if (found == nullptr) {
    throw Refusal(ipc::RefusalKind::kObjectUnloaded,
                  "object " + std::to_string(id.value) + " is not on this worker");
  }
  return found;
}

PyObject* CallRunner::handle(const Channel& channel, size_t index) const {
  const ipc::HandleId id(reader_->integer(index));
  PyObject* found = channel.handles.find(id);
  if (found == nullptr) badRequest("handle " + std::to_string(id.value) + " is not on this worker");
  return found;
}

Package& CallRunner::package(Channel& channel, size_t index) {
  const ipc::PackageId id(static_cast<uint32_t>(reader_->integer(index)));
  if (!awaitSupervisor([&] { return channel.packages.find(id) != nullptr; })) {
    badRequest("package " + std::to_string(id.value) + " was not sent within 5 seconds");
  }
  return *channel.packages.find(id);
}

PyRef CallRunner::argument(const Channel& channel, const msgpack::object& object) const {
  if (object.type == msgpack::type::EXT) {
    if (const auto id = ipc::PayloadReader::handle(object)) {
      PyObject* found = channel.handles.find(ipc::HandleId(*id));
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

PyRef CallRunner::call(Channel& channel, PyObject* callable, size_t argumentsIndex) {
  // The callee may make the client's tables forget it, and itself be running.
  const PyRef callee = PyRef::share(callable);
  PyRef result;
  {
    Arguments arguments(*this, channel, reader_->element(argumentsIndex),
                        reader_->element(argumentsIndex + 1));
    const CallerModes modes(received_.flags);
    const ipc::ScopedBlockSource source(&channel.memory->output);
    result = arguments.passTo(callee.get());
  }
  if (isForkedChild()) {
    // User code forked and came back: what follows belongs to the parent alone.
    complain(
        "isopool worker: a process that user code forked returned from its call; it ends here\n");
    ::_exit(1);
  }
  ipc::reachCrashPoint(ipc::CrashPoint::kCallReturned);
  if (!result) throw PythonRaised{};
  flushOutput();
  return result;
}

// ---- answers ----------------------------------------------------------------------------------

void CallRunner::answerNothing(Channel& channel) {
  dropInputs();
  publish(channel, ipc::CompletionStatus::kValue, kNilBody);
}

void CallRunner::answerTruth(Channel& channel, bool truth) { answerValue(channel, truth); }

void CallRunner::answerValue(Channel& channel, const at::IValue& value) {
  writer_.clear();
  writer_.packer().pack_array(2);
  writer_.addValue(value);
  finishValue(channel, OutputBlocks::Keep::kUnlent);
}

void CallRunner::answerResult(Channel& channel, PyRef result, OutputBlocks::Keep keep) {
  writer_.clear();
  writer_.packer().pack_array(2);
  writer_.addValue(fromPython(result.get()));
  result.reset();
  finishValue(channel, keep);
}

void CallRunner::finishValue(Channel& channel, OutputBlocks::Keep keep) {
  export_.describe(writer_, channel, inputs_, copies_);
  // From here only the model itself refers to what it keeps.
  dropInputs();
  writer_.releaseStorages();
  settleKept(channel, keep);
  ipc::reachCrashPoint(ipc::CrashPoint::kResultExported);
  uint32_t reasons = 0;
  if (copies_.any()) {
    for (size_t i = 0; i < CopyCounts::kReasons; ++i) reasons += copies_.of(i) > 0 ? 1 : 0;
  }
  writer_.packer().pack_array(reasons);
  for (size_t i = 0; reasons > 0 && i < CopyCounts::kReasons; ++i) {
    if (copies_.of(i) == 0) continue;
    writer_.packer().pack_array(2).pack(static_cast<uint32_t>(i)).pack(copies_.of(i));
  }
  publish(channel, ipc::CompletionStatus::kValue, writer_.finish(export_.records()));
}

void CallRunner::answerPythonError(Channel& channel, OutputBlocks::Keep keep) {
  const PythonError error = takePythonError();
  flushOutput();
  dropInputs();
  settleKept(channel, keep);
  if (error.exitAsked) {
    refuse(channel, ipc::RefusalKind::kPythonExit,
           "Python code called sys.exit() (" + error.message + "); the worker lives on");
    return;
  }
  writer_.clear();
  auto& packer = writer_.packer();
  packer.pack_array(4);
  for (const std::string* field :
       {&error.type, &error.message, &error.traceback, &error.formatted}) {
    packer.pack(*field);
  }
  try {
    publish(channel, ipc::CompletionStatus::kPythonError, writer_.finish({}));
  } catch (const Refusal&) {
    // No room for the words: the short form goes into the slot.
    writer_.clear();
    packer.pack_array(4).pack(error.type);
    for (int i = 0; i < 3; ++i) packer.pack(error.message.substr(0, 400));
    publish(channel, ipc::CompletionStatus::kPythonError, writer_.finish({}));
  }
}

void CallRunner::refuse(Channel& channel, ipc::RefusalKind kind, std::string_view reason) {
  writer_.clear();
  writer_.packer().pack_array(2).pack(static_cast<uint32_t>(kind));
  writer_.packer().pack(std::string(reason.substr(0, kMaxInlineReason)));
  publish(channel, ipc::CompletionStatus::kRefused, writer_.finish({}));
}

void CallRunner::publish(Channel& channel, ipc::CompletionStatus status,
                         std::span<const std::byte> bytes) {
  if (answered_) return;
  ipc::WorkerEnd& end = channel.memory->end;
  if ((received_.flags & ipc::kNoReply) != 0) {
    channel.memory->output.cancelLeases();
    answered_ = true;
    return;
  }
  ipc::OutgoingPayload payload;
  if (bytes.size() <= ipc::kInlineBytes) {
    payload.inlineBytes = bytes;
  } else {
    void* block = allocateOutput(channel, bytes.size(), control_);
    std::memcpy(block, bytes.data(), bytes.size());
    const ipc::BlockLocation location = *channel.memory->output.arena().locate(block);
    payload.blobSegment = location.segment;
    payload.blobOffset = location.offset;
    payload.blobBytes = bytes.size();
    channel.blobs.push_back({end.completionsPublished() + 1, block});
  }
  answered_ = true;
  end.complete(received_.sequence, status, payload,
               isPreparation(static_cast<ipc::Operation>(received_.operation))
                   ? ipc::Work::kPreparation
                   : ipc::Work::kCall);
}

void CallRunner::dropInputs() {
  inputs_.clear();
  reader_.reset();
}

void CallRunner::settleKept(Channel& channel, OutputBlocks::Keep keep) {
  if (keep == OutputBlocks::Keep::kNothing) {
    channel.memory->borrowed.privatiseKept(*channel.memory, copies_);
  }
  channel.memory->output.privatiseKept(keep, copies_);
}

}  // namespace isopool::worker
