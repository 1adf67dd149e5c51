// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/call_runner.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>

#include "base/system_call.h"
#include "ipc/channel/futex.h"
#include "ipc/channel/preparation.h"
#include "ipc/crash_point.h"
#include "worker/process/crash_log.h"
#include "worker/python/interpreter.h"
#include "worker/python/output_streams.h"
#include "worker/python/python_errors.h"
#include "worker/serve/call_failures.h"
#include "worker/values/permissive_values.h"
#include "worker/values/python_values.h"

namespace isopool::worker {

namespace {

constexpr int64_t kWaitForSupervisor = 5'000'000'000;  // ns
constexpr size_t kMaxBlobBytes = size_t{1} << 32;
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

// Operations that make an object which the client keeps in the worker.
bool makesHandle(ipc::Operation operation) {
  return operation == ipc::Operation::kFromValue || operation == ipc::Operation::kCallHandle ||
         operation == ipc::Operation::kAttribute;
}

// Operations that run a model; the others prepare the worker.
bool runsModels(ipc::Operation operation) {
  return operation == ipc::Operation::kCallObject || operation == ipc::Operation::kCallHandle ||
         operation == ipc::Operation::kNext;
}

}  // namespace

CallRunner::CallRunner(ControlPlane& control, CopyCounts& copies, Sandbox& sandbox)
    : control_(control), totalCopies_(copies), sandbox_(sandbox), export_(history_, control) {}

CallRunner::Served CallRunner::serveOne(ClientLink& channel) {
  ipc::WorkerEnd& end = channel.memory->end;
  switch (end.peek(received_)) {
    case ipc::Received::kNothing:
      return Served::kNothing;
    case ipc::Received::kPoisoned:
      logError("isopool worker: a client's channel has invalid data: channel closed\n");
      channel.detached = true;
      return Served::kNothing;
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
  sandbox_.report(control_);
  return (received_.flags & ipc::kNoReply) != 0 ? Served::kNotification : Served::kCall;
}

void CallRunner::run(ClientLink& channel) {
  const auto operation = static_cast<ipc::Operation>(received_.operation);
  auto refusalKind = ipc::RefusalKind::kBadRequest;
  std::string reason;
  try {
    const auto bytes = payload(channel);
    channel.memory->end.taken();
    reader_.emplace(bytes);
    {
      UnclaimedLeases loans(channel, reader_->storages());
      if (!awaitSupervisor([&] { return CallInputs::resolvable(channel, reader_->storages()); })) {
        badRequest(
            "the call names shared memory or a package that the supervisor has not sent within "
            "5 seconds");
      }
      requireLeases(channel);
      if (makesHandle(operation)) channel.handles.requireRoom();
      inputs_.resolve(channel, *reader_, loans);
    }
    if (channel.memory->end.start(received_.sequence) == ipc::Start::kRecalled) {
      dropInputs();
      publish(channel, ipc::CompletionStatus::kWithdrawn, kNoBody);
      return;
    }
    if (runsModels(operation)) sandbox_.beginCalls();
    perform(channel);
    return;
  } catch (const PythonRaised&) {
    answerPythonError(channel);
    return;
  } catch (const Refusal& refusal) {
    refusalKind = refusal.kind();
    reason = refusal.what();
  } catch (const ipc::ValueError& error) {
    refusalKind = ipc::RefusalKind::kUnsupportedValue;
    reason = error.what();
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  } catch (const base::SystemCallError& error) {
    if (error.errorNumber() == ENOMEM) return answerShortage(channel, error.what());
    reason = error.what();
  } catch (const std::bad_alloc&) {
    return answerShortage(channel, "no memory for the call's values");
  } catch (const std::exception& error) {
    reason = error.what();
  }
  PyErr_Clear();
  channel.memory->output.cancelLeases();
  dropInputs();
  settleKept(channel);
  sandbox_.explain(reason);
  refuse(channel, refusalKind, reason);
}

std::span<const std::byte> CallRunner::payload(ClientLink& channel) {
  const ipc::PayloadPlace& place = received_.payload;
  if (place.blobBytes == 0) return {received_.bytes, place.inlineBytes};
  const base::SegmentId segmentId(place.blobSegment);
  const auto find = [&] { return channel.memory->inputs.find(segmentId); };
  if (channel.memory->inputs.refusal(segmentId) != nullptr) {
    channel.memory->end.taken();
    throwIfRefused(channel, segmentId.value);
  }
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
  // Copied once: the client could change the shared memory between check and use.
  blob_.resize(place.blobBytes);
  std::memcpy(blob_.data(), mapping.data() + place.blobOffset, place.blobBytes);
  return blob_;
}

// Checked before the call has any effect.
void CallRunner::requireLeases(const ClientLink& channel) const {
  if (channel.leaseLimit == 0 || (received_.flags & ipc::kNoReply) != 0) return;
  if (ipc::isPreparation(static_cast<ipc::Operation>(received_.operation))) return;
  const uint32_t held = channel.memory->output.leasesOut();
  if (held < channel.leaseLimit) return;
  throw Refusal(ipc::RefusalKind::kLimitMet,
                "the program holds " + std::to_string(held) +
                    " results of this worker in shared memory, and the supervisor lets it hold " +
                    std::to_string(channel.leaseLimit) +
                    " (limits.leases, ISOPOOL_CLIENT_LEASES): release earlier results");
}

bool CallRunner::awaitSupervisor(const std::function<bool()>& ready) {
  if (ready()) return true;
  const int64_t deadline = ipc::monotonicNow() + kWaitForSupervisor;
  while (control_.waitForMessage(deadline)) {
    if (ready()) return true;
  }
  return ready();
}

// ---- answers ----------------------------------------------------------------------------------

void CallRunner::answerNothing(ClientLink& channel) {
  dropInputs();
  publish(channel, ipc::CompletionStatus::kValue, kNilBody);
}

void CallRunner::answerTruth(ClientLink& channel, bool truth) { answerValue(channel, truth); }

void CallRunner::answerValue(ClientLink& channel, const at::IValue& value) {
  writer_.clear();
  writer_.packer().pack_array(2);
  writer_.addValue(value);
  finishValue(channel);
}

// Uses the conversion that the call requests.
at::IValue CallRunner::valueOf(PyObject* object) const {
  return (received_.flags & ipc::kPermissive) != 0 ? fromPythonPermissive(object)
                                                   : fromPython(object);
}

void CallRunner::answerResult(ClientLink& channel, PyRef result) {
  writer_.clear();
  writer_.packer().pack_array(2);
  writer_.addValue(valueOf(result.get()));
  result.reset();
  finishValue(channel);
}

void CallRunner::finishValue(ClientLink& channel) {
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
  publish(channel, ipc::CompletionStatus::kValue, writer_.finish(export_.records()));
}

void CallRunner::answerPythonError(ClientLink& channel) {
  PythonError error = takePythonError();
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
  packer.pack_array(4);
  for (const std::string* field :
       {&error.type, &error.message, &error.traceback, &error.formatted}) {
    packer.pack(*field);
  }
  try {
    publish(channel, ipc::CompletionStatus::kPythonError, writer_.finish({}));
  } catch (const Refusal&) {
    // No shared memory for the texts: their beginnings fit into the slot.
    writer_.clear();
    packer.pack_array(4).pack(shortened(error.type, kShortWord));
    for (int i = 0; i < 3; ++i) packer.pack(shortened(error.message, kShortWord));
    publish(channel, ipc::CompletionStatus::kPythonError, writer_.finish({}));
  }
}

// Answers with a MemoryError, as if the model's own code had run out of memory.
void CallRunner::answerShortage(ClientLink& channel, const char* what) {
  channel.memory->output.cancelLeases();
  PyErr_SetString(PyExc_MemoryError, what);
  answerPythonError(channel);
}

void CallRunner::refuse(ClientLink& channel, ipc::RefusalKind kind, std::string_view reason) {
  writer_.clear();
  writer_.packer().pack_array(2).pack(static_cast<uint32_t>(kind));
  writer_.packer().pack(shortened(reason, kMaxInlineReason));
  publish(channel, ipc::CompletionStatus::kRefused, writer_.finish({}));
}

void CallRunner::publish(ClientLink& channel, ipc::CompletionStatus status,
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
               ipc::isPreparation(static_cast<ipc::Operation>(received_.operation))
                   ? ipc::Work::kPreparation
                   : ipc::Work::kCall);
}

void CallRunner::dropInputs() {
  inputs_.clear();
  reader_.reset();
}

// Tensors of a pool call that are still alive belong to the model: the runtime can't know when the
// model will release them, so they are privatised. Tensors of a handle's call belong to the caller
// as long as it has the handle.
void CallRunner::settleKept(ClientLink& channel) {
  ChannelMemory& memory = *channel.memory;
  if (static_cast<ipc::Operation>(received_.operation) == ipc::Operation::kCallObject) {
    memory.borrowed.privatiseKept(memory, copies_);
    memory.output.noteKept();
    if (!channel.alone) memory.output.privatiseKept(copies_);
  }
  memory.output.privatiseLent(copies_);
}

}  // namespace isopool::worker
