// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/csrc/api/include/torch/imethod.h>

#include <string>
#include <vector>

#include "isopool/export.h"
#include "isopool/replicated_obj.h"

namespace isopool {

/// A method of a replicated object behind torch::IMethod, the interface that TorchScript's methods
/// have, too. It shares ownership of the object.
///
/// Calls are thread-safe; calls from several threads run on several workers. getArgumentNames()
/// asks a worker at its first call and stores the names without a lock: make that first call before
/// other threads use the wrapper.
class ISOPOOL_EXPORT PythonMethodWrapper : public torch::IMethod {
 public:
  /// Does not check that the method exists.
  PythonMethodWrapper(ReplicatedObj model, std::string methodName);

  /// The name of the method.
  const std::string& name() const override;

  /// Calls the method in a session on an idle worker, or on the least used one, and returns the
  /// result as Obj::toIValue() does. Throws RemoteError for a Python exception or if the method
  /// does not exist, and WorkerLost if the worker dies, because steps of a session are not retried.
  c10::IValue operator()(std::vector<c10::IValue> args,
                         const IValueMap& kwargs = IValueMap()) const override;

 private:
  void setArgumentNames(std::vector<std::string>& argumentNames) const override;

  ReplicatedObj model_;
  std::string methodName_;
};

}  // namespace isopool
