// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/interpreter.h"

#include "client/movable.h"
#include "client/worker_steps.h"
#include "isopool/replicated_obj.h"

namespace isopool {

namespace {

SessionImpl& bodyOf(const std::shared_ptr<SessionImpl>& impl) {
  if (!impl) throw Error("a session that was moved from can't be used");
  return *impl;
}

}  // namespace

InterpreterSession::InterpreterSession(std::shared_ptr<SessionImpl> impl) noexcept
    : impl_(std::move(impl)) {}
InterpreterSession::InterpreterSession(InterpreterSession&&) noexcept = default;
InterpreterSession::~InterpreterSession() = default;

Obj InterpreterSession::global(const char* module, const char* name) {
  SessionImpl& session = bodyOf(impl_);
  const ipc::HandleId handle = session.channel->nextHandle();
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(3).pack(std::string(module)).pack(std::string(name));
  draft.writer.packer().pack(handle.value);
  client::step(*session.pool, *session.channel, ipc::Operation::kGlobal, draft);
  return Obj(std::make_shared<InterpreterObj>(session, handle));
}

Obj InterpreterSession::fromIValue(at::IValue ivalue) {
  SessionImpl& session = bodyOf(impl_);
  const ipc::HandleId handle = session.channel->nextHandle();
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(2);
  try {
    draft.writer.addValue(ivalue);
  } catch (const ipc::ValueError& error) {
    throw Error(error.what());
  }
  draft.writer.packer().pack(handle.value);
  client::step(*session.pool, *session.channel, ipc::Operation::kFromValue, draft);
  return Obj(std::make_shared<InterpreterObj>(session, handle));
}

ReplicatedObj InterpreterSession::createMovable(Obj obj) {
  const SessionImpl& session = bodyOf(impl_);
  if (!obj.baseObj_) throw Error("a default-constructed Obj refers to no object");
  return ReplicatedObj(client::moveObject(session, *obj.baseObj_));
}

Obj InterpreterSession::fromMovable(const ReplicatedObj& obj) { return obj.toObj(this); }

bool InterpreterSession::isOwner(const Obj& obj) const {
  return obj.baseObj_ && obj.baseObj_->owner() == bodyOf(impl_).number;
}

Interpreter::Interpreter(std::shared_ptr<WorkerSlot> slot) : slot_(std::move(slot)) {}
Interpreter::~Interpreter() = default;

InterpreterSession Interpreter::acquireSession() const {
  const auto pool = slot_->pool.lock();
  if (!pool) throw Error("the InterpreterManager that this belongs to is gone");
  return InterpreterSession(client::openSession(pool, slot_));
}

std::optional<int> Interpreter::processId() const {
  const auto pool = slot_->pool.lock();
  if (!pool) return std::nullopt;
  const auto channel = pool->currentChannel(*slot_);
  if (!channel) return std::nullopt;
  return channel->processId();
}

}  // namespace isopool
