// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "isopool/export.h"
#include "isopool/obj.h"

namespace isopool {

class Environment;
class Interpreter;
class InterpreterManager;
class ReplicatedObj;
class SessionImpl;
class WorkerSlot;

/// The right to use the Python interpreter of one worker step by step. Several sessions on one
/// worker may exist at the same time, in one thread and in several; the worker runs one step at a
/// time. Steps run in the calling thread's grad, inference and autocast modes.
///
/// A session is bound to one worker process. After the worker's death every step throws WorkerLost:
/// the worker's state is lost, so steps are not retried. A new session reaches the replacement.
///
/// Every step throws WorkerLost, DeadlineExceeded, SupervisorLost, LimitExceeded, ArenaFull,
/// RemoteError for a Python exception, and Error if the manager no longer exists or the session was
/// moved from. Steps wait as long as CallOptions::deadline allows, by default without limit. A step
/// that runs past its deadline costs the session its worker.
///
/// Thread-safe for steps. Move and destroy a session only while no other thread uses it. A session
/// may outlive its manager.
class ISOPOOL_EXPORT InterpreterSession {
 public:
  /// For the library.
  explicit InterpreterSession(std::shared_ptr<SessionImpl> impl) noexcept;
  InterpreterSession(InterpreterSession&&) noexcept;
  InterpreterSession& operator=(InterpreterSession&&) = delete;
  /// Does not wait for the worker. Objs that came from the session stay usable.
  ~InterpreterSession();

  /// In a session of a ReplicatedObj: this object. In a session of a Package: the importer of the
  /// package. In other sessions: a default-constructed Obj.
  Obj self;

  /// The attribute `name` of a Python module: global("os.path", "join"). The worker imports the
  /// module if it has not. Both texts are UTF-8.
  Obj global(const char* module, const char* name, const CallOptions& options = {});
  /// Creates a Python object with this value in the worker. Throws Error if the value can't cross
  /// (docs/values.md has the table).
  Obj fromIValue(at::IValue ivalue, const CallOptions& options = {});
  /// Makes an object of this session available to all workers of its manager. The object is pickled
  /// now; each worker unpickles its own copy when it first needs it. The storages of the object's
  /// tensors move into shared memory and are not copied per worker. From then on all workers, and
  /// the original object, share them: a write by one worker is visible to all, and a result that
  /// lies there is an alias of it (is_alias_of), no matter which worker returned it.
  ///
  /// If numpy or another library holds a pointer to a storage, the storage stays where it is and
  /// the moved object gets a copy. Workers find the code of packages; they do not find the code
  /// of `__main__`. Throws Error if the object belongs to another session, RemoteError if it
  /// can't be pickled.
  ReplicatedObj createMovable(Obj obj, const CallOptions& options = {});
  /// The object in this session's worker: the same as obj.toObj(this, options).
  Obj fromMovable(const ReplicatedObj& obj, const CallOptions& options = {});
  /// True if the object came from this session: from global(), fromIValue() or self, or from an
  /// operation on such an object. An object of another session of the same worker can be used in
  /// this session, but isOwner() is false for it.
  bool isOwner(const Obj& obj) const;

 protected:
  /// For derived classes: calls `func` once when the session ends, on the thread that destroys it.
  /// To move a session does not end it. Exceptions of `func` are ignored. Returns false, without an
  /// effect, if the session has a callback already. Not thread-safe.
  bool attachDeconstructorCallback(std::function<void()> func);

 private:
  friend class Interpreter;
  friend class ReplicatedObj;
  friend class Package;
  friend class InterpreterManager;
  std::shared_ptr<SessionImpl> impl_;
};

/// One worker slot of a manager, or a worker that belongs to no manager. After a worker's death the
/// same Interpreter refers to the replacement. The address of a manager's Interpreter does not
/// change while the manager lives.
///
/// Thread-safe. In a child process that the program has forked acquireSession() throws Error.
class ISOPOOL_EXPORT Interpreter {
 public:
  /// Starts a worker that belongs to no manager, and waits until it serves. A null `env` means
  /// NoopEnvironment. The worker ends with this object; its sessions then throw Error. Throws
  /// SupervisorLost, PoolUnavailable, DeadlineExceeded if the worker does not serve within 2 min,
  /// and the exceptions of the environment.
  explicit Interpreter(std::shared_ptr<Environment> env);
  /// The same, for a worker that also sees the modules that `manager` has registered
  /// (registerModuleSource), even after the manager's end. A null manager has no modules.
  Interpreter(InterpreterManager* manager, std::shared_ptr<Environment> env);
  Interpreter(Interpreter&&) noexcept = default;
  Interpreter(const Interpreter&) = delete;
  /// Ends the worker if it belongs to no manager: calls in flight throw Error.
  ~Interpreter();

  /// A session on this worker. If the worker is dead, waits for its replacement. Throws
  /// DeadlineExceeded, PoolUnavailable if the slot is quarantined, WorkerLost if three workers in a
  /// row die while they are prepared (not counted: WorkerLost::ofOtherProgram()), SupervisorLost,
  /// and Error if the manager no longer exists.
  InterpreterSession acquireSession(const CallOptions& options = {}) const;

  /// The process ID of the worker; no value while the worker is replaced and after the manager's
  /// end. Does not wait.
  std::optional<int> processId() const;

 private:
  friend class InterpreterAccess;
  explicit Interpreter(std::shared_ptr<WorkerSlot> slot);
  WorkerSlot& slot() const;

  std::shared_ptr<void> pool_;  // null if the pool belongs to a manager
  std::shared_ptr<WorkerSlot> slot_;
};

}  // namespace isopool
