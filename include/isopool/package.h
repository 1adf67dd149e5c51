// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include "isopool/replicated_obj.h"

namespace isopool {

class PackageImpl;

/// An opened torch.package. Its bytes were copied when it was opened: what happens to the file
/// later does not matter. Copies share it. Any thread.
class Package {
 public:
  /// The object pickled as `file` in `module` of the package. It is unpickled in one worker now, so
  /// that errors show here (RemoteError), in the others when they need it.
  ReplicatedObj loadPickle(const std::string& module, const std::string& file);

  /// A resource of the package, stored under `packageName` as `key`: text, or bytes as they are.
  /// Throws RemoteError if there is none.
  std::string loadText(const std::string& packageName, const std::string& key);
  std::string loadBinary(const std::string& packageName, const std::string& key);

  /// A session on a free worker whose `self` is the package's importer there.
  InterpreterSession acquireSession();

  /// The same as I->createMovable(obj). Throws Error for another manager's session.
  ReplicatedObj createMovable(Obj obj, InterpreterSession* I);

 private:
  friend class InterpreterManager;
  explicit Package(std::shared_ptr<PackageImpl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<PackageImpl> impl_;
};

}  // namespace isopool
