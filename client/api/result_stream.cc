// SPDX-License-Identifier: BSD-3-Clause
#include "client/api/result_stream.h"

#include <new>
#include <utility>

#include "client/pool/pool_migration.h"

namespace isopool {

using client::Answer;
using client::Pool;
using client::RequestDraft;
using client::RequestOutcome;
using client::WorkerLink;

StreamImpl::StreamImpl(std::shared_ptr<Pool> pool, std::shared_ptr<WorkerLink> channel,
                       base::HandleId handle, const CallOptions& options)
    : pool_(std::move(pool)), channel_(std::move(channel)), handle_(handle), options_(options) {}

std::optional<at::IValue> StreamImpl::next() {
  if (ended_) return std::nullopt;
  RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(2).pack(handle_.value);
  draft.writer.packer().pack(static_cast<uint32_t>(ipc::NextAction::kAdvance));
  if (options_.permissive) draft.flags |= ipc::kPermissive;
  at::IValue answer;
  try {
    answer = client::step(*pool_, *channel_, ipc::Operation::kNext, draft,
                          client::deadlineOf(*pool_, options_));
  } catch (const RemoteError&) {
    close();
    throw;
  }
  if (!answer.isTuple() || answer.toTupleRef().elements().size() != 2) {
    throw Error(channel_->name() + " sent an invalid stream item");
  }
  const auto& elements = answer.toTupleRef().elements();
  if (elements[0].toBool()) return elements[1];
  ended_ = true;  // the worker has released the iterator
  if (slot_) pool_->releaseUser(*std::exchange(slot_, nullptr));
  return std::nullopt;
}

void StreamImpl::close() noexcept {
  if (slot_) pool_->releaseUser(*std::exchange(slot_, nullptr));
  if (std::exchange(ended_, true) || channel_->dead()) return;
  try {
    // Not the thread's own draft: it is destroyed already when a static object's destructor runs.
    RequestDraft draft;
    draft.writer.packer().pack_array(2).pack(handle_.value);
    draft.writer.packer().pack(static_cast<uint32_t>(ipc::NextAction::kClose));
    if (channel_->notify(ipc::Operation::kNext, draft)) return;
  } catch (const std::bad_alloc&) {
    // Handled as a ring without room.
  }
  // The ring has no room: the next request releases the handle, like any other.
  channel_->releaseHandle(handle_);
}

namespace {

// Evaluates the answer to one of the requests that open a stream. False if the worker died and the
// call is to be tried on another one.
bool opened(Pool& pool, WorkerLink& channel, Answer answer, bool idempotent, bool userCode) {
  switch (answer.outcome()) {
    case RequestOutcome::kAnswered:
      answer.take();
      return true;
    case RequestOutcome::kWithdrawn:
      client::throwNotStartedInTime(channel.name(), "call");
    case RequestOutcome::kOverdue:
      client::throwOverdue(channel, "call");
    case RequestOutcome::kLost:
      pool.checkAfterDeath(userCode);
      if (userCode && !idempotent) throw WorkerLost(channel.death(), /*started=*/true);
      break;
    default:
      pool.check();
  }
  pool.countRerun();
  return false;
}

}  // namespace

std::unique_ptr<StreamImpl> openStream(const client::PoolCall& call, const CallOptions& items) {
  const ReplicatedObjImpl& object = call.object;
  const std::shared_ptr<Pool>& pool = object.pool;
  const client::Deadline& deadline = call.deadline;
  const client::CallLimit::Call counted(pool->callLimit().get());
  client::Preparation preparation(object, deadline);
  client::PoolMigration migration(*pool);
  for (;;) {
    const Pool::WorkerReservation reservation = migration.nextReservation(deadline);
    WorkerLink& channel = reservation.channel();
    if (!preparation.on(channel)) {
      pool->countRerun();
      continue;
    }
    const base::HandleId callee = channel.nextHandle();
    RequestDraft& find = client::requestDraft();
    find.writer.packer().pack_array(2).pack(object.definition.object).pack(callee.value);
    migration.begin(client::Clock::now());
    try {
      Answer found =
          channel.exchange(ipc::Operation::kObjectHandle, find, deadline, nullptr, &migration);
      if (migration.left()) continue;
      if (!opened(*pool, channel, std::move(found), call.idempotent, /*userCode=*/false)) {
        continue;
      }
    } catch (const client::ObjectUnloaded&) {
      channel.definedObjects.remove(object.definition.object);
      continue;
    }
    const base::HandleId made = channel.nextHandle();
    RequestDraft& draft = client::requestDraft();
    draft.writer.packer().pack_array(4).pack(callee.value).pack(made.value);
    client::draftArguments(draft, call.args, call.kwargs);
    Answer answer = channel.exchange(ipc::Operation::kCallHandle, draft, deadline);
    channel.releaseHandle(callee);
    if (!opened(*pool, channel, std::move(answer), call.idempotent, /*userCode=*/true)) continue;
    auto stream = std::make_unique<StreamImpl>(pool, channel.shared_from_this(), made, items);
    pool->addUser(*reservation.slot());
    stream->occupy(reservation.slot());
    return stream;
  }
}

// ---- ResultStream ----------------------------------------------------------------------------

ResultStream::ResultStream() noexcept = default;
ResultStream::ResultStream(std::unique_ptr<StreamImpl> impl) noexcept : impl_(std::move(impl)) {}
ResultStream::ResultStream(ResultStream&&) noexcept = default;
ResultStream& ResultStream::operator=(ResultStream&&) noexcept = default;
ResultStream::~ResultStream() = default;

ResultStream::ResultStream(const Obj& iterable) {
  if (!iterable.baseObj_) throw Error("a default-constructed Obj refers to no object");
  const InterpreterObj& body = *iterable.baseObj_;
  WorkerLink& channel = *body.channel();
  // The stream gets an iterator of its own: the Obj still refers to the iterable.
  const base::HandleId iter = channel.nextHandle();
  RequestDraft& find = client::requestDraft();
  find.writer.packer().pack_array(3).pack(std::string("builtins")).pack(std::string("iter"));
  find.writer.packer().pack(iter.value);
  client::step(*body.pool(), channel, ipc::Operation::kGlobal, find);
  const base::HandleId made = channel.nextHandle();
  RequestDraft& draft = client::requestDraft();
  auto& packer = draft.writer.packer();
  packer.pack_array(4).pack(iter.value).pack(made.value).pack_array(1);
  draft.writer.addHandle(body.handle().value);
  packer.pack_map(0);
  client::step(*body.pool(), channel, ipc::Operation::kCallHandle, draft);
  channel.releaseHandle(iter);
  impl_ = std::make_unique<StreamImpl>(body.pool(), body.channel(), made, CallOptions());
}

std::optional<at::IValue> ResultStream::next() { return impl_ ? impl_->next() : std::nullopt; }

void ResultStream::close() noexcept {
  if (impl_) impl_->close();
}

}  // namespace isopool
