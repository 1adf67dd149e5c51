// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

/// What isopool throws. Everything derives from std::runtime_error, as errors of torch::deploy did,
/// with one exception: a package that can't be opened is a c10::Error, thrown by loadPackage.
namespace isopool {

/// The base of the family. Thrown itself for misuse: a null object, a manager that is gone, a value
/// that can't cross between processes.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A Python exception that user code did not catch. The worker lives on.
class RemoteError : public Error {
 public:
  RemoteError(const std::string& what, std::string pythonType, std::string message,
              std::string traceback, std::string worker);

  const std::string& pythonType() const { return pythonType_; }  ///< "ValueError"
  const std::string& message() const { return message_; }        ///< str(exception)
  const std::string& traceback() const { return traceback_; }    ///< as Python prints it
  const std::string& worker() const { return worker_; }          ///< "worker 1 (pid 4711)"

 private:
  std::string pythonType_;
  std::string message_;
  std::string traceback_;
  std::string worker_;
};

/// The worker that had the call died. Thrown if the call had started (and so may have had effects)
/// or may not be run elsewhere: calls on sessions and Objs. Calls of a ReplicatedObj that had not
/// started run on another worker instead, unseen.
class WorkerLost : public Error {
 public:
  struct Death {
    std::string worker;  ///< "worker 1 (pid 4711)"
    int processId = 0;
    int signal = 0;  ///< 0 if it exited by itself
    int exitCode = 0;
    bool causeKnown = false;  ///< false: signal and exitCode could not be read
    std::string crashLog;     ///< the last lines of its error stream and its last Python stack
  };
  WorkerLost(Death death, bool started);

  const std::string& worker() const { return death_.worker; }
  int processId() const { return death_.processId; }
  int signal() const { return death_.signal; }
  int exitCode() const { return death_.exitCode; }
  bool causeKnown() const { return death_.causeKnown; }
  const std::string& crashLog() const { return death_.crashLog; }
  /// The old name of crashLog(), for one release.
  [[deprecated("it is crashLog() now")]] const std::string& lastWords() const {
    return death_.crashLog;
  }
  /// True if user code of this call may have run an instruction.
  bool started() const { return started_; }

 private:
  Death death_;
  bool started_;
};

/// The call's deadline passed. If it had not started it never will; else its worker is killed, by a
/// shared supervisor only if the call has not ended when its grace period is over.
class DeadlineExceeded : public Error {
 public:
  DeadlineExceeded(const std::string& what, bool started) : Error(what), started_(started) {}
  bool started() const { return started_; }

 private:
  bool started_;
};

/// An asynchronous call was taken back by PendingCall::cancel() before it started: it never ran.
class Cancelled : public Error {
 public:
  using Error::Error;
};

/// No worker could take the call: all slots of the pool are quarantined because their workers keep
/// dying before they complete a call. The text says how and for how long.
class PoolUnavailable : public Error {
 public:
  using Error::Error;
};

/// The supervisor is gone, is about to end, or could not start, and its workers with it. The
/// manager stays dead; a new one starts a new supervisor, or attaches to the shared one that is
/// there then. A shared supervisor that is told to end lets calls end that were made before, within
/// its drain_timeout, those that wait for a worker included, and refuses calls that are made later.
class SupervisorLost : public Error {
 public:
  explicit SupervisorLost(const std::string& what, bool started = false)
      : Error(what), started_(started) {}
  /// True if user code of this call may have run an instruction; else the call can be made again.
  bool started() const { return started_; }

 private:
  bool started_;
};

/// An arena has no room for a payload and none came free before the deadline. The text names the
/// knob.
class ArenaFull : public Error {
 public:
  using Error::Error;
};

/// The operator of a shared supervisor lets this program have no more of what the text names.
/// Nothing was done, but for a limit of a call's time or of its result's memory: then the call had
/// started.
class LimitExceeded : public Error {
 public:
  using Error::Error;
};

}  // namespace isopool
