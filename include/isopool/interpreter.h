// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "isopool/obj.h"

namespace isopool {

class Environment;
class Interpreter;
class InterpreterManager;
class ReplicatedObj;
class SessionImpl;
class WorkerSlot;
namespace client {
class PoolOwner;
}

/// The right to use one worker's interpreter step by step. Sessions on one worker may overlap, in
/// one thread and in several; each step runs alone. A session belongs to one life of its worker:
/// after the worker's death every step throws WorkerLost, and a new session reaches its
/// replacement.
class InterpreterSession {
 public:
  explicit InterpreterSession(std::shared_ptr<SessionImpl> impl) noexcept;
  InterpreterSession(InterpreterSession&&) noexcept;
  InterpreterSession& operator=(InterpreterSession&&) = delete;
  ~InterpreterSession();

  /// The object itself in a session of a ReplicatedObj, the package's importer in one of a Package,
  /// else a default Obj.
  Obj self;

  /// An attribute of a module, which is imported if need be: global("os.path", "join").
  Obj global(const char* module, const char* name);
  /// A value as an object in the worker.
  Obj fromIValue(at::IValue ivalue);
  /// Gives an object of this session to all workers of its manager: it is pickled now, and each
  /// worker unpickles its own when it first needs it. The storages of its tensors are not copied
  /// for each but lie in shared memory from then on, those of the source too: what one worker
  /// writes to them all see, and a result that lies there is an alias of it (is_alias_of) whichever
  /// worker returned it. A storage that numpy or another library points to stays where it is; the
  /// moved object gets a copy. Code of packages is found again by every worker, that of `__main__`
  /// is not. Throws Error if the object is another session's, RemoteError if it can't be pickled.
  ReplicatedObj createMovable(Obj obj);
  /// The object in this session's worker, as ReplicatedObj::toObj gives it.
  Obj fromMovable(const ReplicatedObj& obj);
  /// True if the object came out of this very session: by global(), fromIValue(), self, or from one
  /// that did. One of another session of the same worker can be used here but is not owned.
  bool isOwner(const Obj& obj) const;

 protected:
  /// For classes that make sessions of their own: `func` is called once, on the thread that ends
  /// the session; moving a session does not end it. What `func` throws is ignored. False, and
  /// nothing changes, if a callback is attached already.
  bool attachDeconstructorCallback(std::function<void()> func);

 private:
  friend class Interpreter;
  friend class ReplicatedObj;
  friend class Package;
  friend class InterpreterManager;
  std::shared_ptr<SessionImpl> impl_;
};

/// One worker slot of a manager, or a worker of its own. A worker that replaces a dead one lives
/// behind the same Interpreter; the address of a manager's is stable. Any thread.
class Interpreter {
 public:
  /// A worker that belongs to no manager. Returns when it serves; a null `env` means
  /// NoopEnvironment. Its sessions throw Error once the Interpreter has ended. Throws
  /// SupervisorLost, PoolUnavailable, and what the environment throws.
  explicit Interpreter(std::shared_ptr<Environment> env);
  /// The same beside a manager, whose registered modules it sees, also after the manager's end. A
  /// null manager has none.
  Interpreter(InterpreterManager* manager, std::shared_ptr<Environment> env);
  Interpreter(Interpreter&&) noexcept = default;
  Interpreter(const Interpreter&) = delete;
  ~Interpreter();

  /// A session on this very worker. Waits while a dead worker is being replaced.
  InterpreterSession acquireSession() const;

  /// The worker's process, or nothing while it is being replaced.
  std::optional<int> processId() const;

 private:
  friend class InterpreterManager;
  friend class ReplicatedObj;
  friend class InterpreterAccess;
  explicit Interpreter(std::shared_ptr<WorkerSlot> slot);
  WorkerSlot& slot() const;

  std::shared_ptr<client::PoolOwner> own_;  // null if it is a manager's
  std::shared_ptr<WorkerSlot> slot_;
};

}  // namespace isopool
