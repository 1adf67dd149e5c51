// SPDX-License-Identifier: BSD-3-Clause
#include "worker/serve/call_runner.h"

#include <cerrno>
#include <cstring>
#include <new>

#include "base/system_call.h"
#include "ipc/channel/preparation.h"
#include "worker/process/crash_log.h"
#include "worker/serve/call_failures.h"
#include "worker/serve/operations/operation_table.h"

namespace isopool::worker {

namespace {

constexpr size_t kMaxBlobBytes = size_t{1} << 32;

}  // namespace

CallRunner::CallRunner(ControlPlane& control, CopyCounts& copies, Sandbox& sandbox,
                       ShownModels& models)
    : control_(control), totalCopies_(copies), sandbox_(sandbox), call_(control, sandbox, models) {}

CallRunner::Served CallRunner::serveOne(ClientLink& channel) {
  // Finalizers of user code run between calls, too.
  RunningCall::endForkedChild();
  ipc::WorkerEnd& end = channel.memory->end;
  switch (call_.peek(end)) {
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
  call_.begin(operationOf(call_.received().operation));
  channel.memory->borrowed.beginCall();
  run(channel);
  channel.memory->output.endCall();
  totalCopies_.add(call_.copies());
  sandbox_.report(control_);
  return (call_.received().flags & ipc::kNoReply) != 0 ? Served::kNotification : Served::kCall;
}

void CallRunner::run(ClientLink& channel) {
  const OperationEntry& operation = call_.operation();
  auto refusalKind = ipc::RefusalKind::kBadRequest;
  std::string reason;
  try {
    std::span<const std::byte> bytes;
    try {
      bytes = payload(channel);
    } catch (...) {
      channel.memory->end.taken();
      throw;
    }
    channel.memory->end.taken();
    const ipc::PayloadReader& reader = call_.read(bytes);
    {
      UnclaimedLeases loans(channel, reader.storages());
      if (!call_.awaitSupervisor(
              [&] { return CallInputs::resolvable(channel, reader.storages()); })) {
        badRequest(
            "the call names shared memory or a package that the supervisor has not sent within "
            "5 seconds");
      }
      requireLeases(channel);
      if (operation.traits.needsHandleRoom) channel.handles.requireRoom();
      call_.resolveInputs(channel, loans);
    }
    if (call_.start(channel.memory->end) == ipc::Start::kRecalled) {
      return call_.withdraw(channel);
    }
    call_.countEarlier(channel);
    if (!operation.traits.setsUp) channel.memory->end.noteCode();
    if (operation.traits.runsModel) sandbox_.beginCalls();
    operation.handler(call_, channel);
    return;
  } catch (const PythonRaised&) {
    call_.answerPythonError(channel);
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
    if (error.errorNumber() == ENOMEM) return call_.answerShortage(channel, error.what());
    if (error.errorNumber() == EBADF) throw;
    reason = error.what();
  } catch (const std::bad_alloc&) {
    return call_.answerShortage(channel, "no memory for the call's values");
  } catch (const std::exception& error) {
    reason = error.what();
  }
  PyErr_Clear();
  channel.memory->output.cancelLeases();
  call_.dropInputs();
  call_.settleKept(channel);
  sandbox_.explain(reason);
  call_.refuse(channel, refusalKind, reason);
}

std::span<const std::byte> CallRunner::payload(ClientLink& channel) {
  const ipc::PayloadPlace& place = call_.received().payload;
  if (place.blobBytes == 0) return {call_.received().bytes, place.inlineBytes};
  const base::SegmentId segmentId(place.blobSegment);
  const auto find = [&] { return channel.memory->inputs.find(segmentId); };
  throwIfRefused(channel, segmentId.value);
  if (!call_.awaitSupervisor([&] { return find() != nullptr; })) {
    badRequest("the call lies in shared memory that the supervisor has not sent within 5 seconds");
  }
  const InputSegment& segment = *find();
  const ipc::Mapping& mapping = segment.mapping;
  if (place.blobBytes > kMaxBlobBytes || place.blobOffset > mapping.bytes() ||
      place.blobBytes > mapping.bytes() - place.blobOffset) {
    badRequest("the call reaches beyond its segment");
  }
  // Copied once: the client could change the shared memory between check and use.
  blob_.resize(place.blobBytes);
  channel.memory->borrowed.read(segment, place.blobOffset, blob_);
  return blob_;
}

// Checked before the call has any effect.
void CallRunner::requireLeases(const ClientLink& channel) const {
  if (channel.leaseLimit == 0 || (call_.received().flags & ipc::kNoReply) != 0) return;
  if (ipc::isPreparation(static_cast<ipc::Operation>(call_.received().operation))) return;
  const uint32_t held = channel.memory->output.leasesOut();
  if (held < channel.leaseLimit) return;
  throw Refusal(ipc::RefusalKind::kLimitMet,
                "the program holds " + std::to_string(held) +
                    " results of this worker in shared memory, and the supervisor lets it hold " +
                    std::to_string(channel.leaseLimit) +
                    " (limits.leases, ISOPOOL_CLIENT_LEASES): release earlier results");
}

}  // namespace isopool::worker
