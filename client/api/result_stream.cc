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
  draft.flags |= client::flagsOf(options_);
  draft.tag = options_.tag;
  at::IValue answer;
  try {
    answer = client::step(*pool_, *channel_, ipc::Operation::kNext, draft,
                          client::deadlineOf(*pool_, options_));
  } catch (const RemoteError&) {
    failed();
    close();
    throw;
  } catch (...) {
    failed();
    throw;
  }
  if (!answer.isTuple() || answer.toTupleRef().elements().size() != 2) {
    throw Error(channel_->name() + " sent an invalid stream item");
  }
  const auto& elements = answer.toTupleRef().elements();
  if (elements[0].toBool()) return elements[1];
  ended_ = true;  // the worker has released the iterator
  answered();
  if (slot_) pool_->releaseUser(*std::exchange(slot_, nullptr));
  return std::nullopt;
}

void StreamImpl::answered() noexcept {
  if (figures_) std::exchange(figures_, nullptr)->answered(client::Clock::now() - begin_);
}

void StreamImpl::failed() noexcept {
  if (figures_) std::exchange(figures_, nullptr)->failed();
}

void StreamImpl::close() noexcept {
  answered();
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

void StreamImpl::closeAndWait(const CallOptions& options) {
  answered();
  if (slot_) pool_->releaseUser(*std::exchange(slot_, nullptr));
  if (std::exchange(ended_, true)) return;
  RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(2).pack(handle_.value);
  draft.writer.packer().pack(static_cast<uint32_t>(ipc::NextAction::kClose));
  client::step(*pool_, *channel_, ipc::Operation::kNext, draft,
               client::deadlineOf(*pool_, options));
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
      if (userCode && !idempotent) {
        pool.checkSupervisorOf(channel, /*started=*/true);
        throw WorkerLost(channel.death(), /*started=*/true);
      }
      pool.checkForRetry(channel);
      break;
    default:
      pool.check();
  }
  pool.countRerun();
  return false;
}

}  // namespace

namespace {

std::unique_ptr<StreamImpl> tryToOpen(const client::PoolCall& call, const CallOptions& items) {
  const ReplicatedObjImpl& object = call.object;
  const std::shared_ptr<Pool>& pool = object.pool;
  const client::Deadline& deadline = call.deadline;
  const client::CallLimit::Call counted(pool->callLimit().get());
  client::Preparation preparation(object, deadline);
  client::PoolMigration migration(*pool);
  for (;;) {
    const Pool::WorkerReservation reservation = migration.nextReservation(deadline);
    WorkerLink& channel = reservation.channel();
    try {
      if (!preparation.on(channel)) {
        pool->countRerun();
        continue;
      }
      base::HandleId callee = channel.nextHandle();
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
      if (call.operation == ipc::Operation::kCallMethod) {
        const base::HandleId method = channel.nextHandle();
        RequestDraft& lookUp = client::requestDraft();
        lookUp.writer.packer().pack_array(3).pack(callee.value).pack(call.attribute);
        lookUp.writer.packer().pack(method.value);
        Answer answer = channel.exchange(ipc::Operation::kAttribute, lookUp, deadline);
        channel.releaseHandle(std::exchange(callee, method));
        if (!opened(*pool, channel, std::move(answer), call.idempotent, /*userCode=*/true))
          continue;
      }
      const base::HandleId made = channel.nextHandle();
      RequestDraft& draft = client::requestDraft();
      draft.writer.packer().pack_array(4).pack(callee.value).pack(made.value);
      client::draftArguments(draft, call.args, call.kwargs, deadline);
      Answer answer = channel.exchange(ipc::Operation::kCallHandle, draft, deadline);
      channel.releaseHandle(callee);
      if (!opened(*pool, channel, std::move(answer), call.idempotent, /*userCode=*/true)) continue;
      auto stream = std::make_unique<StreamImpl>(pool, channel.shared_from_this(), made, items);
      pool->addUser(*reservation.slot());
      stream->occupy(reservation.slot());
      return stream;
    } catch (const SupervisorLost& error) {
      if (error.started() || !pool->awaitNextConnection(channel, deadline)) throw;
      pool->countRerun();
    }
  }
}

}  // namespace

std::unique_ptr<StreamImpl> openStream(const client::PoolCall& call, const CallOptions& items) {
  const auto begin = client::Clock::now();
  try {
    auto stream = tryToOpen(call, items);
    stream->countFor(call.object.figures, begin);
    return stream;
  } catch (const ipc::ValueError& error) {
    call.object.figures->failed();
    throw Error(error.what());
  } catch (...) {
    call.object.figures->failed();
    throw;
  }
}

// ---- ResultStream ----------------------------------------------------------------------------

ResultStream::ResultStream() noexcept = default;
ResultStream::ResultStream(std::unique_ptr<StreamImpl> impl) noexcept : impl_(std::move(impl)) {}
ResultStream::ResultStream(ResultStream&&) noexcept = default;
ResultStream& ResultStream::operator=(ResultStream&&) noexcept = default;
ResultStream::~ResultStream() = default;

ResultStream::ResultStream(const Obj& iterable, const CallOptions& options) {
  if (!iterable.baseObj_) throw Error("a default-constructed Obj refers to no object");
  const InterpreterObj& body = *iterable.baseObj_;
  WorkerLink& channel = *body.channel();
  const client::Deadline deadline = client::deadlineOf(*body.pool(), options);
  // The stream gets an iterator of its own: the Obj still refers to the iterable.
  const base::HandleId iter = channel.nextHandle();
  RequestDraft& find = client::requestDraft();
  find.writer.packer().pack_array(3).pack(std::string("builtins")).pack(std::string("iter"));
  find.writer.packer().pack(iter.value);
  client::step(*body.pool(), channel, ipc::Operation::kGlobal, find, deadline);
  const base::HandleId made = channel.nextHandle();
  RequestDraft& draft = client::requestDraft();
  auto& packer = draft.writer.packer();
  packer.pack_array(4).pack(iter.value).pack(made.value).pack_array(1);
  draft.writer.addHandle(body.handle().value);
  packer.pack_map(0);
  client::step(*body.pool(), channel, ipc::Operation::kCallHandle, draft, deadline);
  channel.releaseHandle(iter);
  impl_ = std::make_unique<StreamImpl>(body.pool(), body.channel(), made, options);
}

std::optional<at::IValue> ResultStream::next() { return impl_ ? impl_->next() : std::nullopt; }

void ResultStream::close() noexcept {
  if (impl_) impl_->close();
}

void ResultStream::closeAndWait(const CallOptions& options) {
  if (impl_) impl_->closeAndWait(options);
}

}  // namespace isopool
