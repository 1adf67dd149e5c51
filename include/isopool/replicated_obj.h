// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "isopool/async.h"
#include "isopool/call_options.h"
#include "isopool/interpreter.h"
#include "isopool/result_stream.h"

namespace isopool {

class ReplicatedObjImpl;

/// A Python object that exists in every worker of its manager: each worker loads its own when it
/// first needs it, tensors being mapped from the same pages. It comes from a package, from a stored
/// model, or from one worker by createMovable(). Copies are cheap and share it. Any number of
/// threads may call it at once; a thread is served by the worker that served it last, if that one
/// is free.
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

  /// The same call on every worker at the same time, debugLimitInterpreters() notwithstanding;
  /// returns when the last has ended, the results in the order of allInstances(). Where a worker
  /// dies before it has begun its part, its replacement does it. If parts fail, the first
  /// interpreter's error is thrown after the others have ended; the parts that did not fail have
  /// had their effects, and CallOptions count for each part by itself. Throws what call() throws.
  ///
  /// A later replacement has not seen it: what every worker needs in every life belongs into
  /// Environment::configureInterpreter(), what this object needs into onRebuilt().
  std::vector<at::IValue> callOnAll(std::vector<at::IValue> args,
                                    std::unordered_map<std::string, c10::IValue> kwargs = {},
                                    const CallOptions& options = {}) const;

  /// How often a worker that took over for a dead one had to make this object anew where the dead
  /// one had it, so that the state that calls had left there is lost. It is noticed, and counted,
  /// when the object is next used there. After unload() there is nothing to lose.
  uint64_t rebuilt() const;
  /// Has `callback` called from now on when that happens, with the index of the interpreter, on the
  /// thread of that next use (with callOnAll() on a thread of its own) and before it. What the
  /// callback does in a session on that interpreter is there for every later use; other threads'
  /// uses of the object there wait for it. What it throws that use throws, and it is called again
  /// for the next. It must not end the object's manager. All copies share one callback; null takes
  /// it away.
  void onRebuilt(std::function<void(size_t interpreter)> callback);

  /// The same calls without waiting: made in turn, first come, first served, on threads of the
  /// library (two for each worker, however many calls wait), in the caller's grad and inference
  /// modes of now. A deadline counts from now. What the arguments refer to is read when the call is
  /// sent. Throws Error at once if the manager is gone; every other error is the call's outcome.
  PendingCall callAsync(std::vector<at::IValue> args,
                        std::unordered_map<std::string, c10::IValue> kwargs = {},
                        const CallOptions& options = {}) const;
  /// `callback(const Outcome&)` is called when the call has ended, once: on a thread of the library
  /// (where it delays other calls if it is slow), in cancel(), or in the manager's destructor. It
  /// may make calls, wait for other calls, and let go of the object and the manager. What it throws
  /// is logged (setLogger) or else written to stderr.
  template <typename Callback,
            typename = std::enable_if_t<std::is_invocable_v<Callback&, const Outcome&>>>
  PendingCall callAsync(std::vector<at::IValue> args, Callback callback,
                        std::unordered_map<std::string, c10::IValue> kwargs = {},
                        const CallOptions& options = {}) const {
    // Shared, because a std::function can't hold what can only be moved.
    auto shared = std::make_shared<Callback>(std::move(callback));
    return callAsyncWith([shared](const Outcome& outcome) { (*shared)(outcome); }, std::move(args),
                         std::move(kwargs), options);
  }
  /// The outcome goes to `queue` under `tag`.
  PendingCall callAsync(std::vector<at::IValue> args, CompletionQueue& queue, uint64_t tag,
                        std::unordered_map<std::string, c10::IValue> kwargs = {},
                        const CallOptions& options = {}) const;

  /// Calls the object on a free worker, which must return a generator or any other iterable, and
  /// gives its items one at a time. A deadline bounds the call, and each item by itself. Throws as
  /// call().
  [[nodiscard]] ResultStream stream(std::vector<at::IValue> args,
                                    std::unordered_map<std::string, c10::IValue> kwargs = {},
                                    const CallOptions& options = {}) const;

  [[nodiscard]] bool hasattr(const char* attr) const;

  /// A session on a free worker, or on the given one, whose `self` is this object there.
  InterpreterSession acquireSession(const Interpreter* onThisInterpreter = nullptr) const;

  /// The object in the session's worker: each time the same Python object, until it is unloaded.
  Obj toObj(InterpreterSession* I) const;
  /// Has all workers, or the given one, let the object go; the next use unpickles it anew, without
  /// the state that calls left in it. Objs that refer to the old one keep it. Does not wait for
  /// running calls.
  void unload(const Interpreter* onThisInterpreter = nullptr);

 private:
  friend class InterpreterManager;
  friend class Package;
  friend class InterpreterSession;
  explicit ReplicatedObj(std::shared_ptr<ReplicatedObjImpl> impl);
  const ReplicatedObjImpl& impl() const;
  PendingCall callAsyncWith(std::function<void(const Outcome&)> callback,
                            std::vector<at::IValue> args,
                            std::unordered_map<std::string, c10::IValue> kwargs,
                            const CallOptions& options) const;
  std::shared_ptr<ReplicatedObjImpl> impl_;
};

}  // namespace isopool
