// SPDX-License-Identifier: BSD-3-Clause

// A program for multipy. It does not refer to isopool: only its build does, which links
// isopool::compat.
//
//   PATH_TO_EXTERN_PYTHON_PACKAGES=.../site-packages first_program efficientnet.pt

#include <multipy/runtime/deploy.h>
#include <multipy/runtime/path_environment.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <vector>

int main(int argc, const char* argv[]) {
  if (argc != 2) {
    std::cerr << "usage: first_program PACKAGE\n";
    return 2;
  }
  const char* externPackages = std::getenv("PATH_TO_EXTERN_PYTHON_PACKAGES");
  if (externPackages == nullptr) {
    std::cerr << "PATH_TO_EXTERN_PYTHON_PACKAGES is not set\n";
    return 2;
  }
  auto environment = std::make_shared<multipy::runtime::PathEnvironment>(externPackages);
  multipy::runtime::InterpreterManager manager(4, environment);

  multipy::runtime::ReplicatedObj model;
  try {
    multipy::runtime::Package package = manager.loadPackage(argv[1]);
    model = package.loadPickle("model", "model.pkl");
  } catch (const c10::Error& error) {
    std::cerr << "the model can't be loaded: " << error.msg() << "\n";
    return 1;
  }

  std::vector<torch::jit::IValue> inputs;
  inputs.push_back(torch::ones({1, 3, 224, 224}));
  at::Tensor output = model(inputs).toTensor();
  std::cout << output.slice(/*dim=*/1, /*start=*/0, /*end=*/5) << "\n";
}
