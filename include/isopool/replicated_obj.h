// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
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
/// State that a call leaves in the object stays in the worker that ran it, and dies with it: see
/// rebuilt().
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

  /// The same call on every worker at the same time, debugLimitInterpreters() notwithstanding; returns
  /// when the last has ended, the results in the order of allInstances(). Where a worker dies before
  /// it has begun its part, its replacement does it. If parts fail, the first interpreter's error is
  /// thrown after the others have ended; the parts that did not fail have had their effects, and
  /// CallOptions count for each part by itself. Throws what call() throws.
  ///
  /// A later replacement has not seen it: what every worker needs in every life belongs into
  /// Environment::configureInterpreter(), what this object needs into onRebuilt().
  std::vector<at::IValue> callOnAll(std::vector<at::IValue> args,
                                    std::unordered_map<std::string, c10::IValue> kwargs = {},
                                    const CallOptions& options = {}) const;

  /// How often a worker that took over for a dead one had to make this object anew where the dead one
  /// had it, so that the state that calls had left there is lost. It is noticed, and counted, when
  /// the object is next used there. After unload() there is nothing to lose.
  uint64_t rebuilt() const;
  /// Has `callback` called from now on when that happens, with the index of the interpreter, on the
  /// thread of that next use (with callOnAll() on a thread of its own) and before it. What the callback
  /// does in a session on that interpreter is there for every later use; other threads' uses of the
  /// object there wait for it. What it throws that use throws, and it is called again for the next. It
  /// must not end the object's manager. All copies share one callback; null takes it away.
  void onRebuilt(std::function<void(size_t interpreter)> callback);

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
