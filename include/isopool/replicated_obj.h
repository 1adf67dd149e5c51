// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "isopool/call_options.h"
#include "isopool/interpreter.h"

namespace isopool {

class ReplicatedObjImpl;

/// A Python object that exists in every worker of its manager: each worker unpickles its own when it
/// first needs it, tensors being mapped from the same pages. It comes from a package, or from one
/// worker by createMovable(). Copies are cheap and share
/// it. Any number of threads may call it at once; a thread is served by the worker that served it
/// last, if that one is free.
///
/// State that a call leaves in the object stays in the worker that ran it, and dies with it.
class ReplicatedObj {
 public:
  ReplicatedObj() = default;

  /// Calls the object on a free worker and returns its result, detached. Throws RemoteError,
  /// WorkerLost, PoolUnavailable, SupervisorLost, ArenaFull.
  at::IValue operator()(at::ArrayRef<at::IValue> args) const;
  [[nodiscard]] at::IValue callKwargs(std::vector<at::IValue> args,
                                      std::unordered_map<std::string, c10::IValue> kwargs) const;
  [[nodiscard]] at::IValue callKwargs(std::unordered_map<std::string, c10::IValue> kwargs) const;
  /// The same with a deadline and a say in what happens when the worker dies. Also throws
  /// DeadlineExceeded.
  [[nodiscard]] at::IValue call(std::vector<at::IValue> args,
                                std::unordered_map<std::string, c10::IValue> kwargs,
                                const CallOptions& options) const;

  [[nodiscard]] bool hasattr(const char* attr) const;

  /// A session on a free worker, or on the given one, whose `self` is this object there.
  InterpreterSession acquireSession(const Interpreter* onThisInterpreter = nullptr) const;

  /// The object in the session's worker: each time the same Python object, until it is unloaded.
  Obj toObj(InterpreterSession* I) const;
  /// Has all workers, or the given one, let the object go; the next use unpickles it anew, without the
  /// state that calls left in it. Objs that refer to the old one keep it. Does not wait for running
  /// calls.
  void unload(const Interpreter* onThisInterpreter = nullptr);

 private:
  friend class Package;
  friend class InterpreterSession;
  explicit ReplicatedObj(std::shared_ptr<ReplicatedObjImpl> impl);
  const ReplicatedObjImpl& impl() const;
  std::shared_ptr<ReplicatedObjImpl> impl_;
};

}  // namespace isopool
