// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

namespace isopool {

/// Options of one operation that runs Python: a call of a ReplicatedObj or an Obj, a step of a
/// session, the loading of a package or a model, the opening of a session. A plain value.
struct CallOptions {
  /// The time that the operation may take, counted from the moment when it is made. If it consists
  /// of several requests they share the time. When this time has passed the caller gets
  /// DeadlineExceeded at once, and:
  ///   - a request that has not started is withdrawn and will not run;
  ///   - a call or step that runs is abandoned, and its worker is killed: sessions and Objs of this
  ///     worker are lost. A shared supervisor kills the worker only if the request still runs after
  ///     the grace period. The same holds for loadPackage(), loadPickle() and loadModel(), which
  ///     then load nothing;
  ///   - a worker that still loads an object for a call continues: the next call needs the object,
  ///     too;
  ///   - an idle worker that does not pick up a queued request within 1 s is assumed to be stopped
  ///     and is killed;
  ///   - if this program itself did not run for a part of the time (it was stopped, or frozen with
  ///     its workers), the caller gets DeadlineExceeded nevertheless, but no worker is killed for
  ///     that part: a call that runs may take so much longer first;
  ///   - code of this program (Environment::configureInterpreter(), onRebuilt()) is not
  ///     interrupted.
  /// Zero or less: the deadline has passed already. None, or a value too large for the clock: no
  /// deadline, the operation waits as long as its worker lives. ISOPOOL_NO_KILL=1, for debuggers,
  /// turns all deadlines off.
  std::optional<std::chrono::nanoseconds> deadline;
  /// For call() and callAsync() of a ReplicatedObj and of its methods, and for all steps of an Obj;
  /// others ignore it. The time that the call may take on a worker, counted from the moment when
  /// the worker begins to run it, within 2 ms: neither the wait for a free worker nor the loading
  /// of the object counts, nor time in which this program itself did not run, and a call that runs
  /// again has the whole time again. When it has passed, the same happens as after the deadline.
  /// The call ends at the earlier of both.
  std::optional<std::chrono::nanoseconds> runTime;
  /// For calls of a ReplicatedObj. The call may run more than once: if its worker dies after the
  /// call has started, the call runs again on another worker; without this option the caller gets
  /// WorkerLost. What is bound to one worker, a step or a call of an Obj, never runs again.
  bool idempotent = false;
  /// For operations that return a value. Converts it as Obj::toIValuePermissive() does; without
  /// this option as toIValue() does.
  bool permissive = false;
  /// For call() of a ReplicatedObj and of its methods; others ignore it. The calling thread calls
  /// it about ten times per second while it waits. If it returns true, the call ends as by
  /// PendingCall::stop(), and throws Cancelled: for a program whose user, or whose own client, no
  /// longer wants the answer. If it throws, the call ends likewise, with that exception.
  std::function<bool()> interrupted;
  /// RemoteError::pickled() has the exception itself, for a program that is Python, too.
  bool pickledErrors = false;
  /// A number of the program's own, for CallRecord::tag: a tenant, a request. The library does not
  /// interpret it.
  uint64_t tag = 0;
};

}  // namespace isopool
