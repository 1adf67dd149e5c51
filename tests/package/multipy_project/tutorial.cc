// SPDX-License-Identifier: BSD-3-Clause
// A program for multipy: Python's greeting, and the sum of a tensor.
#include <multipy/runtime/deploy.h>
#include <multipy/runtime/path_environment.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <iostream>
#include <memory>

int main() {
  const auto env = std::make_shared<multipy::runtime::PathEnvironment>("/opt/packages");
  multipy::runtime::InterpreterManager manager(1, env);
  auto I = manager.acquireOne();
  I.global("builtins", "print")({"greetings from Python"});
  const auto sum = I.global("torch", "sum")({torch::ones({3})}).toIValue().toTensor();
  std::cout << "sum " << sum.item<float>() << std::endl;
}
