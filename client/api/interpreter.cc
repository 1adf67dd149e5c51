// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/interpreter.h"

#include "client/api/manager_impl.h"
#include "client/pool/movable.h"
#include "client/pool/pool_call.h"
#include "client/pool/worker_steps.h"
#include "isopool/interpreter_manager.h"
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

Obj InterpreterSession::global(const char* module, const char* name, const CallOptions& options) {
  SessionImpl& session = bodyOf(impl_);
  const base::HandleId handle = session.channel->nextHandle();
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(3).pack(std::string(module)).pack(std::string(name));
  draft.writer.packer().pack(handle.value);
  draft.tag = options.tag;
  client::step(*session.pool, *session.channel, ipc::Operation::kGlobal, draft,
               client::deadlineOf(*session.pool, options));
  return Obj(std::make_shared<InterpreterObj>(session, handle));
}

Obj InterpreterSession::fromIValue(at::IValue ivalue, const CallOptions& options) {
  SessionImpl& session = bodyOf(impl_);
  const base::HandleId handle = session.channel->nextHandle();
  client::RequestDraft& draft = client::requestDraft();
  draft.writer.packer().pack_array(2);
  const client::Deadline deadline = client::deadlineOf(*session.pool, options);
  try {
    client::draftValue(draft, ivalue, deadline);
  } catch (const ipc::ValueError& error) {
    throw Error(error.what());
  }
  draft.writer.packer().pack(handle.value);
  draft.tag = options.tag;
  client::step(*session.pool, *session.channel, ipc::Operation::kFromValue, draft, deadline);
  return Obj(std::make_shared<InterpreterObj>(session, handle));
}

ReplicatedObj InterpreterSession::createMovable(Obj obj, const CallOptions& options) {
  const SessionImpl& session = bodyOf(impl_);
  if (!obj.baseObj_) throw Error("a default-constructed Obj refers to no object");
  return ReplicatedObj(
      client::moveObject(session, *obj.baseObj_, client::deadlineOf(*session.pool, options)));
}

Obj InterpreterSession::fromMovable(const ReplicatedObj& obj, const CallOptions& options) {
  return obj.toObj(this, options);
}

bool InterpreterSession::isOwner(const Obj& obj) const {
  return obj.baseObj_ && obj.baseObj_->owner() == bodyOf(impl_).number;
}

bool InterpreterSession::attachDeconstructorCallback(std::function<void()> func) {
  SessionImpl& session = bodyOf(impl_);
  if (session.whenEnded) return false;
  session.whenEnded = std::move(func);
  return true;
}

Interpreter::Interpreter(std::shared_ptr<WorkerSlot> slot) : slot_(std::move(slot)) {}
Interpreter::Interpreter(std::shared_ptr<Environment> env) : Interpreter(nullptr, std::move(env)) {}
Interpreter::Interpreter(InterpreterManager* manager, std::shared_ptr<Environment> env) {
  PoolOptions options;
  options.workers = 1;
  options.environment = std::move(env);
  auto owner = std::make_shared<client::PoolOwner>(
      options,
      manager == nullptr ? std::make_shared<client::ModuleSources>() : manager->impl_->modules,
      "Interpreter");
  slot_ = owner->pool()->slots().front();
  pool_ = std::move(owner);
}
Interpreter::~Interpreter() = default;

WorkerSlot& Interpreter::slot() const {
  if (!slot_) throw Error("an Interpreter that was moved from can't be used");
  return *slot_;
}

InterpreterSession Interpreter::acquireSession(const CallOptions& options) const {
  const auto pool = slot().pool.lock();
  if (!pool) throw Error("the InterpreterManager that this belongs to is gone");
  return InterpreterSession(client::openSession(pool, client::deadlineOf(*pool, options), slot_));
}

std::optional<int> Interpreter::processId() const {
  const auto pool = slot().pool.lock();
  if (!pool) return std::nullopt;
  const auto channel = pool->currentLink(*slot_);
  if (!channel) return std::nullopt;
  return channel->processId();
}

}  // namespace isopool
