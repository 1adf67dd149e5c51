// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include "isopool/export.h"
#include "isopool/replicated_obj.h"

namespace isopool {

class PackageImpl;

/// An opened torch.package (InterpreterManager::loadPackage). Its bytes were copied when it was
/// opened, so later changes to the file have no effect. Copies share the package. Objects of the
/// package keep its bytes alive; a Package may be destroyed before them.
///
/// Thread-safe. Every member waits for a worker as long as CallOptions::deadline allows, by default
/// without limit. Throws DeadlineExceeded, Error after the manager's end, SupervisorLost,
/// PoolUnavailable, and WorkerLost if the worker dies.
class ISOPOOL_EXPORT Package {
 public:
  /// The object that is pickled as the resource `file` of the package's `module`:
  /// loadPickle("model", "model.pkl"). One worker unpickles it now, so that errors appear here:
  /// RemoteError for a Python exception, WorkerLost if the worker dies while it unpickles. The
  /// other workers unpickle it when they first need it. A worker that has not unpickled it by the
  /// deadline is killed: code that never returns does not block the caller.
  ReplicatedObj loadPickle(const std::string& module, const std::string& file,
                           const CallOptions& options = {});

  /// A text resource of the package, stored as `key` under `packageName`, in UTF-8. Throws
  /// RemoteError if the resource does not exist.
  std::string loadText(const std::string& packageName, const std::string& key,
                       const CallOptions& options = {});
  /// The same for a binary resource: its bytes, unchanged.
  std::string loadBinary(const std::string& packageName, const std::string& key,
                         const CallOptions& options = {});

  /// A session on an idle worker, or on the least used one. Its `self` is the package's importer in
  /// that worker.
  InterpreterSession acquireSession(const CallOptions& options = {});

  /// The same as I->createMovable(obj, options). Throws Error if the session belongs to another
  /// manager.
  ReplicatedObj createMovable(Obj obj, InterpreterSession* I, const CallOptions& options = {});

 private:
  friend class InterpreterManager;
  explicit Package(std::shared_ptr<PackageImpl> impl) : impl_(std::move(impl)) {}
  std::string resource(const char* method, const std::string& packageName, const std::string& key,
                       const CallOptions& options);
  std::shared_ptr<PackageImpl> impl_;
};

}  // namespace isopool
