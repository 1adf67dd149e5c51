// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "isopool/interpreter.h"
#include "isopool/noop_environment.h"
#include "isopool/package.h"
#include "isopool/statistics.h"

namespace caffe2::serialize {
class ReadAdapterInterface;
}

namespace isopool {

namespace client {
class ArchiveFile;
}
class ManagerImpl;

/// A supervisor that runs on its own and serves several programs (`isopoold --listen ADDRESS`).
struct SharedSupervisor {
  std::string address;  ///< path of its socket
};

/// A pool of workers, each a process with a Python interpreter of its own. The constructor returns
/// when all of them can take calls; managers of one process with the same environment share one
/// supervisor, so that a second one starts in milliseconds.
///
/// Any number of threads and managers. The manager must outlive calls that are running; objects,
/// sessions and packages that outlive it throw Error when used, results stay valid for ever. In a
/// child that the program forks every use throws Error.
///
/// Settings of the supervisor that it starts are read from ISOPOOL_* variables: see
/// docs/configuration.md.
class InterpreterManager {
 public:
  /// Throws SupervisorLost if supervisor or Python can't start; the text says why. A null `env`
  /// means NoopEnvironment.
  explicit InterpreterManager(
      size_t nInterp = 2, std::shared_ptr<Environment> env = std::make_shared<NoopEnvironment>());
  /// Attaches to a shared supervisor: in milliseconds, because its workers are there. The same
  /// manager otherwise, with rings of its own to each worker; nothing but tensors that workers
  /// write is shared with other programs. Of more interpreters than there are workers several are
  /// the same process. What the supervisor's operator does not let this program have throws
  /// LimitExceeded. Workers have the supervisor's environment variables and sys.path, to which
  /// `env` adds. A manager without this argument attaches to the address in ISOPOOL_SOCKET, if that
  /// is set.
  explicit InterpreterManager(
      const SharedSupervisor& supervisor, size_t nInterp = 2,
      std::shared_ptr<Environment> env = std::make_shared<NoopEnvironment>());
  ~InterpreterManager();
  InterpreterManager(const InterpreterManager&) = delete;
  InterpreterManager& operator=(const InterpreterManager&) = delete;

  /// A session on a free worker, or on the least used one.
  InterpreterSession acquireOne();

  /// The workers' slots. Addresses are stable as long as the manager lives.
  at::ArrayRef<Interpreter> allInstances();

  /// Only the first N workers take calls and new sessions from now on; the others end what they
  /// have and stay ready. Throws c10::Error if there are not so many, or N is 0.
  void debugLimitInterpreters(size_t N);

  /// Calls an attribute of a module in every worker at the same time, with seeds
  /// (callOnAll("torch", "manual_seed", {7})), thread counts or a warm-up; see
  /// ReplicatedObj::callOnAll() for what holds when parts fail, and for later replacements. The
  /// results are in the order of allInstances(); one of a kind that can't cross is None.
  std::vector<at::IValue> callOnAll(const std::string& module, const std::string& name,
                                    std::vector<at::IValue> args = {},
                                    std::unordered_map<std::string, c10::IValue> kwargs = {});

  /// Opens a package. Throws c10::Error at once, here, if the file can't be read, is no
  /// torch.package, was made by another Python version or needs modules that the workers' Python
  /// lacks.
  Package loadPackage(const std::string& uri);
  /// The same from a reader, which is read to its end now and not kept.
  Package loadPackage(std::shared_ptr<caffe2::serialize::ReadAdapterInterface> reader);

  /// Loads a model that was saved without its Python source: a TorchScript file (torch.jit.save),
  /// or a `.pt2` of AOTInductor (aoti_compile_and_package) or of torch.export.save. Which of them
  /// is told from the file's contents. It is called, asked and unloaded like an object of a
  /// package; `self` of its sessions is what torch's own loader gives in Python. `name` says which
  /// model of a .pt2 that holds several. The bytes are copied now, and the model is loaded in one
  /// worker, so that errors show here: c10::Error if the file can't be read, is no model or is one
  /// for loadPackage; RemoteError if torch refuses to load it; WorkerLost if loading it kills the
  /// worker.
  ReplicatedObj loadModel(const std::string& path, const std::string& name = {});
  /// The same from a reader, which is read to its end now and not kept.
  ReplicatedObj loadModel(std::shared_ptr<caffe2::serialize::ReadAdapterInterface> reader,
                          const std::string& name = {});

  /// The same as I->createMovable(obj). Throws Error for another manager's session.
  ReplicatedObj createMovable(Obj obj, InterpreterSession* I);
  /// Gives all workers, present and future, a Python module as text. Where code imports `name` for
  /// the first time afterwards (any later call, sessions that are open included) it gets this
  /// module, unless sys.path has one of that name; tracebacks show the source. Dots make packages:
  /// "a" is one if there is an "a.b". Registered again the last text counts. Text that is no Python
  /// is a RemoteError where it is imported. Throws Error for an impossible name.
  void registerModuleSource(std::string name, std::string src);
  /// How many names were registered, GetArgumentNamesModule included, which every manager has.
  size_t countRegisteredModuleSources();

  /// Workers that were replaced after a death, since the manager began.
  uint64_t workersReplaced() const;
  /// Calls that ran on another worker because theirs died before they started.
  uint64_t callsRerun() const;
  /// What the pool is doing and has done. Any thread, a few microseconds; waits for no worker.
  PoolStatistics statistics() const;

 private:
  friend class Interpreter;
  ReplicatedObj storedModel(std::shared_ptr<client::ArchiveFile> archive, const std::string& name);

  std::shared_ptr<ManagerImpl> impl_;
};

}  // namespace isopool
