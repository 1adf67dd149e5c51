// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "isopool/export.h"
#include "isopool/interpreter.h"
#include "isopool/noop_environment.h"
#include "isopool/options.h"
#include "isopool/package.h"
#include "isopool/statistics.h"

namespace caffe2::serialize {
class ReadAdapterInterface;
}

namespace isopool {

class ManagerImpl;

/// Names a supervisor that is a service of its own and serves several programs
/// (`isopoold --listen ADDRESS`).
struct SharedSupervisor {
  std::string address;  ///< path of its Unix socket; must not be empty
};

/// A pool of workers. Each worker is a process with its own Python interpreter, so a crash in
/// Python or native code ends one worker and not this program. Start here: make a manager, open a
/// package or a model, call the ReplicatedObj.
///
/// Processes: a manager starts a private supervisor, which starts the workers and replaces dead
/// ones, or attaches to a shared supervisor. Managers of one process that have the same
/// Environment, working directory and environment variables share one private supervisor, so the
/// second manager starts in milliseconds. The kernel ends a private supervisor and its workers
/// together with this program.
///
/// Deaths: a dead worker is replaced. The call that it ran, and its sessions and Objs, throw
/// WorkerLost; other calls are not affected. If a private supervisor dies every use throws
/// SupervisorLost: make a new manager. If a shared one is restarted the manager attaches to it
/// again by itself, see SupervisorLost.
///
/// Threads: all members are thread-safe, and a process may have any number of managers. The
/// library's control thread and its threads for asynchronous calls block all signals.
///
/// Lifetime: no member may run while the manager is destroyed. Objects, sessions and packages may
/// outlive the manager; they throw Error when they are used. Results stay valid. In a child process
/// that the program has forked every use throws Error; make a new manager there.
///
/// Options: PoolOptions has everything that can be chosen for a pool. Operators override it by
/// ISOPOOL_* variables: see docs/configuration.md.
class ISOPOOL_EXPORT InterpreterManager {
 public:
  /// Starts the workers and waits until all can take calls, or attaches to a shared supervisor,
  /// as the next but one constructor does.
  ///
  /// Throws SupervisorLost if the supervisor or Python can't start (the text names the cause),
  /// PoolUnavailable if the workers die repeatedly, DeadlineExceeded if they do not serve within
  /// 2 min, Error for a wrong option or ISOPOOL_* value, and the exceptions of the environment.
  explicit InterpreterManager(const PoolOptions& options);
  /// The same for `nInterp` workers (1 to 1024) with default options. A null `env` means
  /// NoopEnvironment.
  explicit InterpreterManager(
      size_t nInterp = 2, std::shared_ptr<Environment> env = std::make_shared<NoopEnvironment>());
  /// Attaches to a shared supervisor. This takes milliseconds because the workers run already;
  /// workers that run calls of other programs attach the manager afterwards, and it waits for the
  /// first worker and then a second at most for the others. It has its own rings to each worker; it
  /// shares with other programs only the tensors that workers write. If `nInterp` is larger than
  /// the number of workers, several interpreters are the same process. The workers have the
  /// supervisor's environment variables and sys.path; `env` adds folders to the latter.
  ///
  /// Uses that exceed a limit of the supervisor's operator throw LimitExceeded. If the supervisor
  /// can't be reached or refuses this program, throws SupervisorLost, whose text names the remedy.
  /// Otherwise throws as the first constructor.
  explicit InterpreterManager(
      const SharedSupervisor& supervisor, size_t nInterp = 2,
      std::shared_ptr<Environment> env = std::make_shared<NoopEnvironment>());
  /// Ends the workers; those of a shared supervisor live on. Calls in flight throw Error, and
  /// queued asynchronous calls get it as their outcome: their callbacks may run in the destructor.
  /// Waits for its processes to end, at most a few seconds.
  ~InterpreterManager();
  InterpreterManager(const InterpreterManager&) = delete;
  InterpreterManager& operator=(const InterpreterManager&) = delete;

  /// A session on an idle worker, or on the least used one if none is idle. Throws as
  /// Interpreter::acquireSession().
  InterpreterSession acquireOne(const CallOptions& options = {});

  /// The slots of the workers. Their addresses do not change while the manager lives. A reference,
  /// where torch::deploy returns a value, so that no compiler warns of a dangling reference in
  /// `const Interpreter& first = manager.allInstances().front();`.
  const at::ArrayRef<Interpreter>& allInstances();

  /// From now on only the first N workers get calls and new sessions. The others complete what they
  /// have, and stay ready for a later, larger N. Throws c10::Error if N is 0 or larger than the
  /// number of workers.
  void debugLimitInterpreters(size_t N);

  /// Calls an attribute of a Python module in every worker at the same time, for example to set
  /// seeds (callOnAll("torch", "manual_seed", {7})) or thread counts. Returns when the last call
  /// has ended. The results are in the order of allInstances(); a result that can't cross is None.
  /// CallOptions apply to each call separately.
  /// For errors and for workers that start later see ReplicatedObj::callOnAll().
  std::vector<at::IValue> callOnAll(const std::string& module, const std::string& name,
                                    std::vector<at::IValue> args = {},
                                    std::unordered_map<std::string, c10::IValue> kwargs = {},
                                    const CallOptions& options = {});

  /// Opens a torch.package, a file that torch.package.PackageExporter wrote. Copies its bytes into
  /// shared memory, which all workers map. Throws c10::Error if the file can't be read, is not a
  /// regular file or is changed meanwhile, is not a torch.package, was made by another Python
  /// version (ISOPOOL_ALLOW_OTHER_PYTHON=1 allows that), or needs modules that the workers' Python
  /// does not have. Throws LimitExceeded if a shared supervisor refuses the package, and as
  /// acquireOne(). The deadline is checked between two reads of 4 MiB: a read that hangs, as from a
  /// network file system whose server is gone, is waited for.
  Package loadPackage(const std::string& uri, const CallOptions& options = {});
  /// The same from a reader. Reads it to its end now and does not keep it. A null reader throws
  /// c10::Error.
  Package loadPackage(std::shared_ptr<caffe2::serialize::ReadAdapterInterface> reader,
                      const CallOptions& options = {});

  /// Loads a model that was saved without its Python source: a TorchScript file (torch.jit.save), a
  /// `.pt2` of AOTInductor (aoti_compile_and_package), a `.pt2` of torch.export.save, or an ONNX
  /// model (torch.onnx.export), for which the workers' Python needs the package onnxruntime. The
  /// contents of the file decide which of them it is. `name` selects a model of a `.pt2` that holds
  /// several. The result is used like an object of a package; `self` of its sessions is the Python
  /// object that torch's own loader returns, for an ONNX model a callable with the attribute
  /// `session`.
  ///
  /// Copies the bytes now and loads the model in one worker, so that errors appear here: c10::Error
  /// as by loadPackage() if the file can't be read, or if it is not a model or is a file for
  /// loadPackage(); RemoteError if its loader refuses it; WorkerLost if the worker dies while it
  /// loads the model; DeadlineExceeded if it has not loaded the model by the deadline. Then the
  /// worker is killed.
  ReplicatedObj loadModel(const std::string& path, const std::string& name = {},
                          const CallOptions& options = {});
  /// The same from a reader. Reads it to its end now and does not keep it.
  ReplicatedObj loadModel(std::shared_ptr<caffe2::serialize::ReadAdapterInterface> reader,
                          const std::string& name = {}, const CallOptions& options = {});

  /// The same as I->createMovable(obj, options). Throws Error if the session belongs to another
  /// manager.
  ReplicatedObj createMovable(Obj obj, InterpreterSession* I, const CallOptions& options = {});
  /// Registers a Python module as text, for all workers, present and future. Code that imports
  /// `name` for the first time after this, in a new or an open session, gets this module, unless
  /// sys.path has a module of that name. Tracebacks show the source. Dots make packages: "a" is a
  /// package if "a.b" is registered. If a name is registered again, the last text is valid. If
  /// `src` is not valid Python, the import throws RemoteError. Throws Error if `name` can't be the
  /// name of a module.
  void registerModuleSource(std::string name, std::string src);
  /// The number of registered names, including GetArgumentNamesModule, which every manager
  /// registers itself.
  size_t countRegisteredModuleSources();

  /// The number of workers that were replaced since the manager was made: after a death, or on
  /// purpose by the supervisor's recycle settings.
  uint64_t workersReplaced() const;
  /// The number of times that a call moved to another worker because its worker died.
  uint64_t callsRerun() const;
  /// A snapshot of what the pool does and has done. Does not wait for a worker; reads one file of
  /// /proc for each, which takes some tens of microseconds. Throws Error in a forked child, and
  /// SupervisorLost unless the manager attaches again.
  PoolStatistics statistics() const;
  /// What this pool uses, and where each value came from: first the settings that this program
  /// decides, then those of the supervisor, as they were when the manager was made. Throws Error in
  /// a forked child, and SupervisorLost.
  std::vector<PoolSetting> options() const;

 private:
  friend class Interpreter;
  std::shared_ptr<ManagerImpl> impl_;
};

}  // namespace isopool
