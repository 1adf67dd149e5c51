// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "isopool/replicated_obj.h"

namespace isopool {

class InterpreterObj;
class SessionImpl;

namespace client {

class Pool;

/// Has the worker of `session` give an object, which must be the session's own, to all workers of
/// its pool: its tensors' storages then lie in memory that all share. Throws Error, RemoteError (it
/// can't be pickled), WorkerLost.
std::shared_ptr<ReplicatedObjImpl> moveObject(const SessionImpl& session,
                                              const InterpreterObj& object);

/// Throws Error unless there is a session and it is one of this pool's.
void checkSession(const SessionImpl* session, const Pool& pool);

}  // namespace client
}  // namespace isopool
