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
#include "isopool/export.h"
#include "isopool/interpreter.h"
#include "isopool/model_info.h"
#include "isopool/result_stream.h"

namespace isopool {

class Method;
class ReplicatedObjImpl;

/// Which session ReplicatedObj::acquireSession() opens. A plain value.
struct SessionOptions {
  const Interpreter* interpreter = nullptr;  ///< the worker; null: an idle one, else the least used
  /// `self` is a replica of the object that only this session has: no call and no other session
  /// sees the state that its steps leave in it, attributes and tensors alike. So a worker can serve
  /// more streams with state (voice activity, KV caches) than there are workers. The worker loads
  /// the object anew, which takes as long as its first load there; of its weights it has only the
  /// pages that steps write. The replica ends when the last Obj that refers to it is destroyed, and
  /// is lost if the worker dies. Objects of createMovable() share their tensors among all workers:
  /// with them acquireSession() throws Error.
  bool ownReplica = false;
};

/// A Python object that every worker of a manager has. Each worker loads its own copy when it first
/// needs it; the copies map their tensors from the same memory pages. The object comes from a
/// package (Package::loadPickle), a stored model (InterpreterManager::loadModel), or one worker
/// (createMovable). Copies of a ReplicatedObj are cheap and refer to the same object.
///
/// Threads: thread-safe; any number of threads may call it at the same time. A call goes to the
/// worker that served the thread last if that worker is idle, else to another one; if all are busy,
/// it waits. Calls run in the calling thread's grad, inference and autocast modes.
///
/// Values: docs/values.md has the table of arguments and results. Result tensors are on the CPU and
/// detached; they belong to the caller and stay valid after the manager's end.
///
/// Deaths: a call that has not started when its worker dies is retried on another worker. A call
/// that has started throws WorkerLost, unless CallOptions::idempotent allows a retry.
///
/// State that a call leaves in the object stays in the worker that ran the call, and is lost when
/// that worker dies: see rebuilt().
///
/// Every member throws Error if the object is default-constructed. Members that need a worker also
/// throw it after the manager's end and in a forked child. A ReplicatedObj may outlive its Package
/// and its manager.
class ISOPOOL_EXPORT ReplicatedObj {
 public:
  /// Refers to no object.
  ReplicatedObj() = default;

  /// Calls the object on a worker and returns its result, converted as Obj::toIValue() does. Waits
  /// without a time limit. Throws RemoteError for a Python exception, WorkerLost, PoolUnavailable,
  /// SupervisorLost, ArenaFull, LimitExceeded, and Error if a value can't cross.
  at::IValue operator()(at::ArrayRef<at::IValue> args) const;
  /// The same with positional and named arguments.
  [[nodiscard]] at::IValue callKwargs(std::vector<at::IValue> args,
                                      std::unordered_map<std::string, c10::IValue> kwargs) const;
  [[nodiscard]] at::IValue callKwargs(std::unordered_map<std::string, c10::IValue> kwargs) const;
  /// The same with per-call options: a deadline, a retry after a worker's death, the conversion of
  /// the result. Also throws DeadlineExceeded.
  [[nodiscard]] at::IValue call(std::vector<at::IValue> args,
                                std::unordered_map<std::string, c10::IValue> kwargs,
                                const CallOptions& options) const;

  /// Makes the same call on every worker at the same time, without regard to
  /// debugLimitInterpreters(). Returns when the last call has ended; the results are in the order
  /// of allInstances(). If a worker dies before its call has started, its replacement runs the
  /// call. CallOptions apply to each call separately. If calls fail, throws the error of the first
  /// interpreter that failed, after all calls have ended; the other calls have had their effects.
  /// Throws what call() throws.
  ///
  /// A worker that starts later does not run the call. Use Environment::configureInterpreter() for
  /// what every worker process needs, and onRebuilt() for what this object needs.
  std::vector<at::IValue> callOnAll(std::vector<at::IValue> args,
                                    std::unordered_map<std::string, c10::IValue> kwargs = {},
                                    const CallOptions& options = {}) const;

  /// Makes this call on every worker now, as callOnAll() does, and in each worker that starts
  /// later, before it takes any call of the manager: replacements and spares load the object, read
  /// its weights and compile what the call compiles ahead of time. A spare takes over from a dead
  /// worker only when it is warm. Returns when the present workers, except spares, are warm.
  /// Several warm-ups add up; they end with the object. The tensors of the arguments must not
  /// change.
  ///
  /// Throws what callOnAll() throws; then later workers do not make the call either. If it fails in
  /// a later worker, that is logged (setLogger) and the worker serves nevertheless. Later workers
  /// make the call without a deadline, on threads of the library; with an Environment of the
  /// program's own these threads call configureInterpreter(), and spares are warmed up when they
  /// take a slot.
  void warmUp(std::vector<at::IValue> args,
              std::unordered_map<std::string, c10::IValue> kwargs = {},
              const CallOptions& options = {}) const;

  /// What statistics and records call it: "bert.pt:model/model.pkl" for an object of a package,
  /// "resnet.onnx" for a model's file, "models.pt2:small" for one of several in it. For an object
  /// of createMovable() the name of the model to which it belonged, else that of its type
  /// ("torch:Tensor") or of the function that it is ("app:factory").
  const std::string& name() const;
  /// What the model is and what it takes. Asks a worker, which loads the object if it has not.
  /// Throws as acquireSession(), RemoteError if the worker can't say it, and Error if the package's
  /// model_info.json is not what ModelInfo describes.
  ModelInfo info(const CallOptions& options = {}) const;

  /// How many times a replacement worker had to load this object again because the dead worker had
  /// it: state that calls had left in the object was lost. Counted when the object is next used in
  /// that slot, not at the death. An object that was unloaded there does not count.
  uint64_t rebuilt() const;

  /// Sets a function that restores lost state. isopool calls it with the index of the interpreter
  /// each time rebuilt() increases, on the thread that uses the object there next, before that use;
  /// with callOnAll() on a thread of the library. Other threads that need the object there wait.
  /// The callback may use a session on that interpreter; its effects exist for all later uses. If
  /// it throws, that use throws the same exception, and the next use calls it again. It must not
  /// destroy the object's manager. All copies share one callback; null removes it.
  void onRebuilt(std::function<void(size_t interpreter)> callback);

  /// As call(), but returns at once. Threads of the library, two for each worker, make the calls in
  /// the order of their submission; any number of calls may wait. A call runs in the grad,
  /// inference and autocast modes that the caller has now, and a deadline counts from now. The
  /// tensors of the arguments are read when the call is sent to a worker: do not change them before
  /// the outcome.
  ///
  /// Throws Error if the manager no longer exists or no thread can be created, SupervisorLost if
  /// the supervisor has ended or is about to end, and LimitExceeded if the program has too many
  /// calls in flight. Every other error is the call's outcome.
  PendingCall callAsync(std::vector<at::IValue> args,
                        std::unordered_map<std::string, c10::IValue> kwargs = {},
                        const CallOptions& options = {}) const;
  /// Calls `callback(const Outcome&)` once, when the call has ended: on a thread of the library,
  /// where a slow callback delays other calls, in PendingCall::cancel(), stop() or runInline(), or
  /// in the manager's destructor. The callback may make calls, wait for other calls, and destroy
  /// the object and the manager. Its exceptions are logged (setLogger), or written to stderr if no
  /// logger is set.
  template <typename Callback,
            typename = std::enable_if_t<std::is_invocable_v<Callback&, const Outcome&>>>
  PendingCall callAsync(std::vector<at::IValue> args, Callback callback,
                        std::unordered_map<std::string, c10::IValue> kwargs = {},
                        const CallOptions& options = {}) const {
    return callMethodAsync({}, shared(std::move(callback)), std::move(args), std::move(kwargs),
                           options);
  }
  /// Delivers the outcome to `queue`, with `tag`. The queue may be destroyed before the call ends.
  PendingCall callAsync(std::vector<at::IValue> args, CompletionQueue& queue, uint64_t tag,
                        std::unordered_map<std::string, c10::IValue> kwargs = {},
                        const CallOptions& options = {}) const;

  /// Calls the object on a worker; the result must be a generator or another iterable. Returns a
  /// stream of its items, which stays on that worker. CallOptions::deadline applies to the call and
  /// then to each item separately. Throws as call().
  [[nodiscard]] ResultStream stream(std::vector<at::IValue> args,
                                    std::unordered_map<std::string, c10::IValue> kwargs = {},
                                    const CallOptions& options = {}) const;

  /// A method of the object, which is called as the object itself is:
  /// object.method("encode")(args). Does not check that the method exists. Throws Error for an
  /// empty name.
  [[nodiscard]] Method method(std::string name) const;

  /// True if the object has the attribute. Throws as call().
  [[nodiscard]] bool hasattr(const char* attr, const CallOptions& options = {}) const;

  /// A session on an idle worker, or on the given one, whose `self` is this object. Throws as
  /// Interpreter::acquireSession(), and Error if the interpreter belongs to another manager.
  InterpreterSession acquireSession(const Interpreter* onThisInterpreter = nullptr,
                                    const CallOptions& options = {}) const;
  /// The same; SessionOptions can give the session a replica of its own. Also throws RemoteError if
  /// the replica can't be loaded.
  InterpreterSession acquireSession(const SessionOptions& session,
                                    const CallOptions& options = {}) const;

  /// The object in the session's worker. Returns the same Python object each time, until it is
  /// unloaded. Throws Error if the session belongs to another manager.
  Obj toObj(InterpreterSession* I, const CallOptions& options = {}) const;
  /// All workers, or the given one, release the object. The next use loads it again, without the
  /// state that calls had left in it. Objs that refer to the old object keep it alive. Does not
  /// wait for running calls, unless the worker's request ring is full.
  void unload(const Interpreter* onThisInterpreter = nullptr);

 private:
  friend class InterpreterManager;
  friend class Package;
  friend class InterpreterSession;
  friend class Method;
  explicit ReplicatedObj(std::shared_ptr<ReplicatedObjImpl> impl);
  const ReplicatedObjImpl& impl() const;
  void warmUpMethod(const std::string& method, std::vector<at::IValue> args,
                    std::unordered_map<std::string, c10::IValue> kwargs,
                    const CallOptions& options) const;
  /// A std::function can't hold a callback that is only movable.
  template <typename Callback>
  static std::function<void(const Outcome&)> shared(Callback callback) {
    auto held = std::make_shared<Callback>(std::move(callback));
    return [held](const Outcome& outcome) { (*held)(outcome); };
  }
  /// An empty `method`: the object itself.
  PendingCall callMethodAsync(std::string method, std::function<void(const Outcome&)> callback,
                              std::vector<at::IValue> args,
                              std::unordered_map<std::string, c10::IValue> kwargs,
                              const CallOptions& options) const;
  PendingCall callMethodAsync(std::string method, CompletionQueue& queue, uint64_t tag,
                              std::vector<at::IValue> args,
                              std::unordered_map<std::string, c10::IValue> kwargs,
                              const CallOptions& options) const;
  std::shared_ptr<ReplicatedObjImpl> impl_;
};

}  // namespace isopool

// Last: a Method holds a ReplicatedObj.
#include "isopool/method.h"
