// SPDX-License-Identifier: BSD-3-Clause
#include "isopool/python_method_wrapper.h"

#include "client/pool/module_sources.h"

namespace isopool {

PythonMethodWrapper::PythonMethodWrapper(ReplicatedObj model, std::string methodName)
    : model_(std::move(model)), methodName_(std::move(methodName)) {}

const std::string& PythonMethodWrapper::name() const { return methodName_; }

c10::IValue PythonMethodWrapper::operator()(std::vector<c10::IValue> args,
                                            const IValueMap& kwargs) const {
  const InterpreterSession session = model_.acquireSession();
  const Obj method = session.self.attr(methodName_.c_str());
  return method.callKwargs(std::move(args), kwargs).toIValue();
}

void PythonMethodWrapper::setArgumentNames(std::vector<std::string>& argumentNames) const {
  InterpreterSession session = model_.acquireSession();
  const Obj method = session.self.attr(methodName_.c_str());
  const at::IValue names =
      session.global(client::kArgumentNamesModule, client::kArgumentNamesFunction)({method})
          .toIValue();
  argumentNames.clear();
  if (names.isNone()) return;
  for (const at::IValue& name : names.toListRef()) argumentNames.push_back(name.toStringRef());
}

}  // namespace isopool
