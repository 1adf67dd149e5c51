// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/running_call.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "base/running_time.h"
#include "ipc/channel/futex.h"
#include "ipc/channel/preparation.h"
#include "ipc/crash_point.h"
#include "ipc/tensor/payload_format.h"
#include "worker/process/crash_log.h"
#include "worker/process/user_forks.h"
#include "worker/python/output_streams.h"
#include "worker/python/python_errors.h"
#include "worker/serve/call_failures.h"
#include "worker/serve/caller_modes.h"
#include "worker/serve/operations/operation_table.h"
#include "worker/serve/traced_range.h"
#include "worker/values/permissive_values.h"
#include "worker/values/python_values.h"

namespace isopool::worker {

namespace {

constexpr std::chrono::seconds kWaitForSupervisor(5);
constexpr int64_t kBetweenLooks =
    std::chrono::nanoseconds(base::RunningTime::kBetweenLooks).count();
constexpr size_t kMaxInlineReason = 1024;
// Four texts of this length, with their packing, fit into a slot.
constexpr size_t kShortWord = 450;
static_assert(4 * (kShortWord + 3) + 8 < ipc::kInlineBytes);

// The beginning of a text, at most `bytes` long, without an incomplete UTF-8 character at its end.
std::string shortened(std::string_view text, size_t bytes) {
  if (text.size() > bytes) {
    while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  }
  return std::string(text.substr(0, bytes));
}

// Payloads without storages: [] and [nil, []]
constexpr std::array<std::byte, 3> kNoBody = {std::byte{0x92}, std::byte{0x90}, std::byte{0x90}};
constexpr std::array<std::byte, 5> kNilBody = {std::byte{0x92}, std::byte{0x92}, std::byte{0xc0},
                                               std::byte{0x90}, std::byte{0x90}};

}  // namespace

/// The arguments of one call as Python wants them: positional ones, then those by name. Owns them.
class RunningCall::Arguments {
 public:
  Arguments(RunningCall& call, const ClientLink& channel, const msgpack::object& positional,
            const msgpack::object& named)
      : stack_(call.stack_) {
    stack_.clear();
    stack_.push_back(nullptr);  // for the callee's use: PY_VECTORCALL_ARGUMENTS_OFFSET
    try {
      const auto& array = arrayOf(positional).via.array;
      for (uint32_t i = 0; i < array.size; ++i) {
        stack_.push_back(call.argument(channel, array.ptr[i]).release());
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
        stack_.push_back(call.argument(channel, map.ptr[i].val).release());
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

RunningCall::RunningCall(ControlPlane& control, Sandbox& sandbox, ShownModels& models)
    : control_(control), sandbox_(sandbox), models_(models), export_(history_, control) {}

bool RunningCall::awaitSupervisor(const std::function<bool()>& ready) {
  if (ready()) return true;
  base::RunningTime waited;
  while (waited.look(std::chrono::steady_clock::now()) < kWaitForSupervisor) {
    control_.waitForMessage(ipc::monotonicNow() + kBetweenLooks);
    if (ready()) return true;
  }
  return ready();
}

void RunningCall::endForkedChild() {
  if (!isForkedChild()) return;
  if (PyErr_Occurred() != nullptr) {
    const int code = takeExitCode();
    flushOutput();
    std::fflush(nullptr);
    ::_exit(code);
  }
  logError(
      "isopool worker: a process that user code forked returned from its call; it ends here\n");
  ::_exit(1);
}

// ---- elements ---------------------------------------------------------------------------------

PyObject* RunningCall::object(const ClientLink& channel, size_t index) const {
  const base::ObjectId id(reader_->integer(index));
  const NumberedObject* found = channel.objects.entry(id);
  if (found == nullptr) {
    throw Refusal(ipc::RefusalKind::kObjectUnloaded,
                  "object " + std::to_string(id.value) + " is not on this worker");
  }
  models_.run(found->model);
  return found->object.get();
}

PyObject* RunningCall::handle(const ClientLink& channel, size_t index) const {
  const base::HandleId id(reader_->integer(index));
  PyObject* found = handleOf(channel, id);
  if (const auto owner = channel.handles.ownerOf(id)) {
    if (const NumberedObject* model = channel.objects.entry(*owner)) models_.run(model->model);
  }
  return found;
}

PyObject* RunningCall::handleOf(const ClientLink& channel, base::HandleId id) {
  PyObject* found = channel.handles.find(id);
  if (found == nullptr) badRequest("handle " + std::to_string(id.value) + " is not on this worker");
  return found;
}

Package& RunningCall::package(ClientLink& channel, size_t index) {
  return packageOf(channel, base::PackageId(ipc::unsigned32Of(reader_->element(index))));
}

Package& RunningCall::packageOf(ClientLink& channel, base::PackageId id) {
  const auto settled = [&] {
    if (channel.packages.find(id) != nullptr) return true;
    // No client keeps a package loaded for a notification: this one has come too late.
    if ((received_.flags & ipc::kNoReply) == 0 || !channel.packages.wasRemoved(id)) return false;
    badRequest("package " + std::to_string(id.value) + " is not loaded any more");
  };
  if (!awaitSupervisor(settled)) {
    badRequest("package " + std::to_string(id.value) + " was not sent within 5 seconds");
  }
  return *channel.packages.find(id);
}

PyRef RunningCall::argument(const ClientLink& channel, const msgpack::object& object) const {
  if (object.type == msgpack::type::EXT) {
    if (const auto id = ipc::PayloadReader::handle(object)) {
      return PyRef::share(handleOf(channel, base::HandleId(*id)));
    }
  }
  return toPython(reader_->value(object));
}

PyRef RunningCall::text(size_t index) const {
  const std::string_view bytes = reader_->text(index);
  return orRaised(PyRef::steal(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), nullptr)));
}

PyRef RunningCall::boundedText(size_t index, size_t mostBytes) const {
  const size_t bytes = reader_->text(index).size();
  if (bytes > mostBytes) {
    badRequest("element " + std::to_string(index) + " of the request is a text of " +
               std::to_string(bytes) + " bytes, and at most " + std::to_string(mostBytes) +
               " are allowed");
  }
  return text(index);
}

ShownModels::Name RunningCall::modelName(size_t index) const {
  if (reader_->elements() <= index) return {};
  ShownModels::Name name = models_.add(reader_->text(index));
  models_.run(name);
  return name;
}

std::string_view RunningCall::modelOf(const ClientLink& channel, size_t index) const {
  const auto owner = channel.handles.ownerOf(base::HandleId(reader_->integer(index)));
  const NumberedObject* model = owner ? channel.objects.entry(*owner) : nullptr;
  return model == nullptr ? std::string_view() : models_.text(model->model);
}

PyRef RunningCall::attributeOf(ClientLink& channel, PyObject* owner, PyObject* name) const {
  PyRef value;
  {
    const CallerModes modes(received_.flags);
    const ipc::ScopedBlockSource source(&channel.memory->output);
    value = PyRef::steal(PyObject_GetAttr(owner, name));
  }
  endForkedChild();
  return orRaised(std::move(value));
}

PyRef RunningCall::callPython(ClientLink& channel, PyObject* callable, size_t argumentsIndex) {
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

// ---- answers ----------------------------------------------------------------------------------

void RunningCall::answerNothing(ClientLink& channel) {
  dropInputs();
  collectVersions(channel);
  if (report_.empty()) return publish(channel, ipc::CompletionStatus::kValue, kNilBody);
  writer_.clear();
  writer_.packer().pack_array(2).pack_nil().pack_array(0);
  publish(channel, ipc::CompletionStatus::kValue, writer_.finish({}, report_));
}

void RunningCall::withdraw(ClientLink& channel) {
  dropInputs();
  publish(channel, ipc::CompletionStatus::kWithdrawn, kNoBody);
}

void RunningCall::answerTruth(ClientLink& channel, bool truth) { answerValue(channel, truth); }

void RunningCall::beginValue(const at::IValue& value) {
  writer_.clear();
  writer_.answerTo(versions_);
  writer_.packer().pack_array(2);
  writer_.addValue(value);
}

void RunningCall::answerValue(ClientLink& channel, const at::IValue& value) {
  beginValue(value);
  finishValue(channel);
}

at::IValue RunningCall::valueOf(PyObject* object) const {
  return (received_.flags & ipc::kPermissive) != 0 ? fromPythonPermissive(object)
                                                   : fromPython(object);
}

void RunningCall::answerResult(ClientLink& channel, PyRef result) {
  beginValue(valueOf(result.get()));
  result.reset();
  finishValue(channel);
}

void RunningCall::finishValue(ClientLink& channel) {
  export_.describe(writer_, channel, inputs_, copies_);
  // From here on only the model and handles refer to storages that are still alive.
  dropInputs();
  writer_.releaseStorages();
  settleKept(channel);
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
  publish(channel, ipc::CompletionStatus::kValue, finish(channel, export_.records()));
}

std::span<const std::byte> RunningCall::finish(ClientLink& channel,
                                               std::span<const ipc::StorageRecord> records) {
  collectVersions(channel);
  return writer_.finish(records, report_);
}

std::span<const std::byte> RunningCall::finishInline(ClientLink& channel) {
  collectVersions(channel);
  constexpr size_t kStorageTable = 1;
  const bool fits = writer_.bytes() + kStorageTable + report_.mostBytes() <= ipc::kInlineBytes;
  return writer_.finish({}, fits ? report_ : ipc::InputReport());
}

// What was collected for an answer that could not be published stays in the report of the next.
void RunningCall::collectVersions(ClientLink& channel) {
  if ((received_.flags & ipc::kNoReply) != 0) return;
  channel.versions.collect(received_.sequence, versions_, sharesKept_, report_);
}

void RunningCall::answerPythonError(ClientLink& channel) {
  endForkedChild();  // while its exception is there
  PythonError error = takePythonError((received_.flags & ipc::kPickledError) != 0);
  error.explainMissingModule();
  sandbox_.explain(error);
  flushOutput();
  dropInputs();
  settleKept(channel);
  if (error.exitAsked) {
    refuse(channel, ipc::RefusalKind::kPythonExit,
           "Python code called sys.exit() (" + error.message + "); the worker continues");
    return;
  }
  writer_.clear();
  auto& packer = writer_.packer();
  packer.pack_array(error.pickled.empty() ? 4 : 5);
  for (const std::string* field :
       {&error.type, &error.message, &error.traceback, &error.formatted}) {
    packer.pack(*field);
  }
  if (!error.pickled.empty()) packer.pack(error.pickled);
  try {
    publish(channel, ipc::CompletionStatus::kPythonError, finish(channel, {}));
  } catch (const Refusal&) {
    // No shared memory for the texts: their beginnings fit into the slot.
    writer_.clear();
    packer.pack_array(4).pack(shortened(error.type, kShortWord));
    for (int i = 0; i < 3; ++i) packer.pack(shortened(error.message, kShortWord));
    publish(channel, ipc::CompletionStatus::kPythonError, finishInline(channel));
  }
}

void RunningCall::answerShortage(ClientLink& channel, const char* what) {
  channel.memory->output.cancelLeases();
  PyErr_SetString(PyExc_MemoryError, what);
  answerPythonError(channel);
}

void RunningCall::refuse(ClientLink& channel, ipc::RefusalKind kind, std::string_view reason) {
  writer_.clear();
  writer_.packer().pack_array(2).pack(static_cast<uint32_t>(kind));
  writer_.packer().pack(shortened(reason, kMaxInlineReason));
  publish(channel, ipc::CompletionStatus::kRefused, finishInline(channel));
}

void RunningCall::publish(ClientLink& channel, ipc::CompletionStatus status,
                          std::span<const std::byte> bytes) {
  if (answered_) return;
  // Attributes, iterators, unpickling and conversions run user code, too.
  endForkedChild();
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
  end.complete(received_.sequence, report_.empty() ? status : ipc::withInputReport(status), payload,
               work(), ipc::monotonicNow() - began_);
}

ipc::Work RunningCall::work() const {
  const auto operation = static_cast<ipc::Operation>(received_.operation);
  if (!runs_ || ipc::isPreparation(operation)) return ipc::Work::kUncounted;
  const bool counts = operation_->traits.runsModel && operation != ipc::Operation::kCallHandle;
  return counts ? ipc::Work::kCall : ipc::Work::kStep;
}

void RunningCall::countEarlier(ClientLink& channel) const {
  const auto operation = static_cast<ipc::Operation>(received_.operation);
  // Between the call and the pickling: the function that was called is released, and other threads
  // of the client may have objects defined.
  if (operation == ipc::Operation::kReleaseHandles || ipc::isPreparation(operation)) return;
  const base::HandleId earlier = std::exchange(channel.uncounted, base::HandleId(0));
  if (earlier.value != 0 &&
      !(operation == ipc::Operation::kPickle && newHandle(0).value == earlier.value)) {
    channel.memory->end.countServed();
  }
  if (operation == ipc::Operation::kCallHandle) channel.uncounted = newHandle(1);
}

void RunningCall::dropInputs() {
  inputs_.clear();
  reader_.reset();
}

// Tensors of a pool call that are still alive belong to the model: the runtime can't know when the
// model will release them, so they are privatised. Tensors of a handle's call belong to the caller
// as long as it has the handle.
void RunningCall::settleKept(ClientLink& channel) {
  ChannelMemory& memory = *channel.memory;
  if (operation_->traits.modelKeepsTensors) {
    sharesKept_ = !memory.borrowed.privatiseKept(memory, copies_);
    memory.output.noteKept();
    if (!channel.alone) memory.output.privatiseKept(copies_);
  }
  memory.output.privatiseLent(copies_);
}

}  // namespace isopool::worker
