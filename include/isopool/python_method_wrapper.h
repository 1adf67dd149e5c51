// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/csrc/api/include/torch/imethod.h>

#include <string>
#include <vector>

#include "isopool/replicated_obj.h"

namespace isopool {

/// A method of a replicated object as torch's interface for methods, which ScriptMethods have too.
/// Calls from several threads run on several workers; the names of the arguments are found out
/// once, by the first thread that asks, so ask before there are others.
class PythonMethodWrapper : public torch::IMethod {
 public:
  PythonMethodWrapper(ReplicatedObj model, std::string methodName);

  /// The method's name.
  const std::string& name() const override;

  /// Calls the method in a session on a free worker. Throws RemoteError, also if there is no such
  /// method, and WorkerLost: a session's call does not run again elsewhere.
  c10::IValue operator()(std::vector<c10::IValue> args,
                         const IValueMap& kwargs = IValueMap()) const override;

 private:
  void setArgumentNames(std::vector<std::string>& argumentNames) const override;

  ReplicatedObj model_;
  std::string methodName_;
};

}  // namespace isopool
