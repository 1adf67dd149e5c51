// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "client/transport/deadline.h"
#include "isopool/replicated_obj.h"

namespace isopool {

class InterpreterObj;
class SessionImpl;

namespace client {

class Pool;

/// Moves an object of `session` to all workers of its pool: the session's worker pickles it and
/// writes its tensors' storages into memory that all workers share. The object in that worker stays
/// as it is. Waits for that worker; the other workers make the object at its first
/// use there. Throws Error (another session made the object, the manager is gone, no memory),
/// RemoteError (the object can't be pickled), and what step() throws; then nothing is moved.
std::shared_ptr<ReplicatedObjImpl> moveObject(const SessionImpl& session,
                                              const InterpreterObj& object,
                                              const Deadline& deadline);

/// Throws Error if `session` is null or belongs to another pool.
void checkSession(const SessionImpl* session, const Pool& pool);

}  // namespace client
}  // namespace isopool
