// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "isopool/export.h"

/// The exceptions that isopool throws. Each is an Error and so a std::runtime_error, as errors of
/// torch::deploy were. Beside them, functions that check a file or an argument as torch does throw
/// c10::Error: loadPackage(), loadModel(), debugLimitInterpreters() and isopool::empty().
///
/// What happened          | exception        | what to do
/// -----------------------|------------------|------------------------------------------------
/// Python code raised     | RemoteError      | handle it like the Python exception
/// a worker died          | WorkerLost       | call again if the call has no lasting effects
/// the deadline passed    | DeadlineExceeded | call again if started() is false
/// workers die repeatedly | PoolUnavailable  | read the crash log; wait for the time in the text
/// the supervisor died    | SupervisorLost   | make a new InterpreterManager
/// an operator's limit    | LimitExceeded    | wait, or use less
/// shared memory is full  | ArenaFull        | release tensors, or raise the limit in the text
/// wrong use              | Error            | correct the program
namespace isopool {

/// The base class. Thrown itself for wrong use: a default-constructed object, a manager that no
/// longer exists, use in a forked child, a value that can't cross between processes.
class ISOPOOL_EXPORT Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An exception that Python code in the worker raised and did not catch. The worker continues to
/// serve calls.
class ISOPOOL_EXPORT RemoteError : public Error {
 public:
  RemoteError(const std::string& what, std::string pythonType, std::string message,
              std::string traceback, std::string worker, std::string pickled = {});

  const std::string& pythonType() const { return pythonType_; }  ///< the class, "ValueError"
  const std::string& message() const { return message_; }        ///< str(exception)
  const std::string& traceback() const { return traceback_; }    ///< as Python prints it
  const std::string& worker() const { return worker_; }          ///< "worker 1 (pid 4711)"
  /// The exception by Python's pickle, if CallOptions::pickledErrors asked for it and it has one of
  /// 64 KiB at most; else empty. A worker made it: whoever unpickles it trusts the worker.
  const std::string& pickled() const { return pickled_; }

 private:
  std::string pythonType_;
  std::string message_;
  std::string traceback_;
  std::string worker_;
  std::string pickled_;
};

/// The worker that had the call died. Thrown if the call had started, because it may have had
/// effects, and if the call can't run elsewhere: steps of sessions and calls of Objs. Calls of a
/// ReplicatedObj that had not started are retried transparently on another worker; so are started
/// ones with CallOptions::idempotent. The supervisor replaces the worker; other workers are not
/// affected.
class ISOPOOL_EXPORT WorkerLost : public Error {
 public:
  /// How a worker process ended.
  struct Death {
    std::string worker;  ///< "worker 1 (pid 4711)"
    int processId = 0;
    int signal = 0;               ///< the signal that killed it; 0 if it exited by itself
    int exitCode = 0;             ///< meaningful if `signal` is 0
    bool causeKnown = false;      ///< false: signal and exitCode could not be read
    std::string crashLog;         ///< the last lines of its error stream, and its Python stack
    bool ofOtherProgram = false;  ///< see WorkerLost::ofOtherProgram()
  };
  WorkerLost(Death death, bool started);

  const std::string& worker() const { return death_.worker; }
  int processId() const { return death_.processId; }
  int signal() const { return death_.signal; }
  int exitCode() const { return death_.exitCode; }
  bool causeKnown() const { return death_.causeKnown; }
  const std::string& crashLog() const { return death_.crashLog; }
  /// True if the code that ran in the worker when it died, or last, was of another program that
  /// shares the supervisor. The worker itself published that.
  bool ofOtherProgram() const { return death_.ofOtherProgram; }
  /// Deprecated alias of crashLog(), for one release.
  [[deprecated("it is crashLog() now")]] const std::string& lastWords() const {
    return death_.crashLog;
  }
  /// True if user code of this call may have run an instruction.
  bool started() const { return started_; }

 private:
  Death death_;
  bool started_;
};

/// The call's deadline (CallOptions::deadline) passed. If the call had not started it will not run.
/// If it had started its worker is killed; a shared supervisor kills it only if the call has not
/// ended when the grace period is over.
class ISOPOOL_EXPORT DeadlineExceeded : public Error {
 public:
  DeadlineExceeded(const std::string& what, bool started) : Error(what), started_(started) {}
  /// True if user code of this call may have run an instruction.
  bool started() const { return started_; }

 private:
  bool started_;
};

/// PendingCall::cancel() or PendingCall::stop() ended the asynchronous call.
class ISOPOOL_EXPORT Cancelled : public Error {
 public:
  explicit Cancelled(const std::string& what, bool started = false)
      : Error(what), started_(started) {}
  /// False: the call has not run and will not run. True: it was stopped while it ran, and its
  /// worker was killed.
  bool started() const { return started_; }

 private:
  bool started_;
};

/// No worker can take the call: every slot of the pool that may serve it is quarantined, because
/// its workers died repeatedly before they completed a call; or a shared supervisor gives this
/// program no further worker for a while, because code of it repeatedly ended workers before it had
/// completed a call there: the text names the model. It also has the time until the next try. A
/// later call succeeds if that try succeeds. Or the program has had no free descriptor for 5 s to
/// receive a worker in place of those that died.
class ISOPOOL_EXPORT PoolUnavailable : public Error {
 public:
  using Error::Error;
};

/// The supervisor could not start, is about to end, or has ended; its workers end with it. A
/// manager with a private supervisor can't be used again: make a new one.
///
/// A manager whose shared supervisor has ended attaches again by itself when one listens at the
/// same address, and loads its packages, models and moved objects again. Calls that had not
/// started, calls that may run twice (CallOptions::idempotent), and everything that begins
/// meanwhile wait for that, until their deadlines, and for PoolOptions::reconnect at most: then
/// they get this error, until the manager has attached again. Calls that had started get it at
/// once. Sessions, Objs and streams are lost with their worker: each use of them throws this error.
///
/// A shared supervisor that is about to end completes the calls that were made before, those that
/// wait for a worker included, within its drain_timeout. Calls that are made later wait for the
/// next one.
class ISOPOOL_EXPORT SupervisorLost : public Error {
 public:
  explicit SupervisorLost(const std::string& what, bool started = false)
      : Error(what), started_(started) {}
  /// True if user code of this call may have run an instruction. If false, the call can be made
  /// again without a risk that it runs twice.
  bool started() const { return started_; }

 private:
  bool started_;
};

/// Shared memory has no room for the arguments or the result of a call. For arguments the library
/// waits up to 5 s for memory to become free; at an earlier deadline of the call it throws
/// DeadlineExceeded. Or the system refuses shared memory, or the program has had no free descriptor
/// for 5 s to receive it with. The text names the setting that limits the memory, or the cause.
class ISOPOOL_EXPORT ArenaFull : public Error {
 public:
  using Error::Error;
};

/// This program has reached a limit that the operator of a shared supervisor has set. The text
/// names the limit. The request had no effect, except for a limit on the time of a call or on the
/// memory of its result: in these two cases the call had started.
class ISOPOOL_EXPORT LimitExceeded : public Error {
 public:
  using Error::Error;
};

}  // namespace isopool
