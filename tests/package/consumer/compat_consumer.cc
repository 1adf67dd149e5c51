// SPDX-License-Identifier: BSD-3-Clause
// The same program in the style of users of torch::deploy and multipy.

#include <multipy/runtime/deploy.h>
#include <torch/deploy.h>

int main() {
  multipy::runtime::InterpreterManager manager(1);
  torch::deploy::InterpreterSession session = manager.acquireOne();
  return session.global("math", "sqrt")({at::IValue(81.0)}).toIValue().toDouble() == 9.0 ? 0 : 1;
}
