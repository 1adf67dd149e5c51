// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>

#include "isopool/obj.h"

namespace isopool {

class Interpreter;
class ReplicatedObj;
class SessionImpl;
class WorkerSlot;

/// The right to use one worker's interpreter step by step. Sessions on one worker may overlap, in one
/// thread and in several; each step runs alone. A session belongs to one life of its worker: after
/// the worker's death every step throws WorkerLost, and a new session reaches its replacement.
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
  /// True if the object came out of this very session: by global(), fromIValue(), self, or from one
  /// that did. One of another session of the same worker can be used here but is not owned.
  bool isOwner(const Obj& obj) const;

 private:
  friend class Interpreter;
  friend class ReplicatedObj;
  friend class Package;
  std::shared_ptr<SessionImpl> impl_;
};

/// One worker slot of a manager. Its address is stable; a worker that replaces a dead one lives behind
/// the same Interpreter.
class Interpreter {
 public:
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
  std::shared_ptr<WorkerSlot> slot_;
};

}  // namespace isopool
