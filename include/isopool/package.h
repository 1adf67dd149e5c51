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
/// Thread-safe. Every member waits for a worker without a time limit. Throws Error after the
/// manager's end, SupervisorLost, PoolUnavailable, and WorkerLost if the worker dies.
class ISOPOOL_EXPORT Package {
 public:
  /// The object that is pickled as the resource `file` of the package's `module`:
  /// loadPickle("model", "model.pkl"). One worker unpickles it now, so that errors appear here:
  /// RemoteError for a Python exception, WorkerLost if the worker dies while it unpickles. The
  /// other workers unpickle it when they first need it.
  ReplicatedObj loadPickle(const std::string& module, const std::string& file);

  /// A text resource of the package, stored as `key` under `packageName`, in UTF-8. Throws
  /// RemoteError if the resource does not exist.
  std::string loadText(const std::string& packageName, const std::string& key);
  /// The same for a binary resource: its bytes, unchanged.
  std::string loadBinary(const std::string& packageName, const std::string& key);

  /// A session on an idle worker, or on the least used one. Its `self` is the package's importer in
  /// that worker.
  InterpreterSession acquireSession();

  /// The same as I->createMovable(obj). Throws Error if the session belongs to another manager.
  ReplicatedObj createMovable(Obj obj, InterpreterSession* I);

 private:
  friend class InterpreterManager;
  explicit Package(std::shared_ptr<PackageImpl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<PackageImpl> impl_;
};

}  // namespace isopool
