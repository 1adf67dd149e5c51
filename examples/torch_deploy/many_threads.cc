// SPDX-License-Identifier: BSD-3-Clause

// A program for torch::deploy as PyTorch shipped it: threads share one model, and a session uses
// one interpreter step by step. It does not refer to isopool.
//
//   PATH_TO_EXTERN_PYTHON_PACKAGES=.../site-packages many_threads efficientnet.pt

#include <torch/deploy.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr int kThreads = 8;

/// Returns true if the same input gives the same output on every thread.
bool threadsAgree(const torch::deploy::ReplicatedObj& model) {
  std::vector<torch::jit::IValue> inputs;
  inputs.push_back(torch::ones({1, 3, 224, 224}));
  std::vector<at::Tensor> outputs(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { outputs[i] = model(inputs).toTensor(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const at::Tensor& output : outputs) {
    if (!output.equal(outputs.front())) return false;
  }
  std::cout << kThreads << " threads: " << outputs.front().slice(1, 0, 5) << "\n";
  return true;
}

/// Uses Python objects from C++.
void stepByStep(torch::deploy::InterpreterManager& manager,
                const torch::deploy::ReplicatedObj& model) {
  torch::deploy::InterpreterSession session = model.acquireSession();
  torch::deploy::Obj parameters = session.global(
      "builtins", "list")({session.self.attr("parameters")(at::ArrayRef<torch::deploy::Obj>())});
  torch::deploy::Obj count = session.global("builtins", "len")({parameters});
  std::cout << "parameters: " << count.toIValue().toInt() << "\n";

  torch::deploy::InterpreterSession python = manager.acquireOne();
  std::cout << "sqrt(2) = " << python.global("math", "sqrt")({2.0}).toIValue().toDouble() << "\n";
}

}  // namespace

int main(int argc, const char* argv[]) {
  const char* externPackages = std::getenv("PATH_TO_EXTERN_PYTHON_PACKAGES");
  if (argc != 2 || externPackages == nullptr) {
    std::cerr << "usage: PATH_TO_EXTERN_PYTHON_PACKAGES=FOLDER many_threads PACKAGE\n";
    return 2;
  }
  try {
    torch::deploy::InterpreterManager manager(
        4, std::make_shared<torch::deploy::PathEnvironment>(externPackages));
    torch::deploy::Package package = manager.loadPackage(argv[1]);
    torch::deploy::ReplicatedObj model = package.loadPickle("model", "model.pkl");
    stepByStep(manager, model);
    return threadsAgree(model) ? 0 : 1;
  } catch (const c10::Error& error) {
    std::cerr << "the package can't be opened: " << error.msg() << "\n";
  } catch (const std::runtime_error& error) {
    std::cerr << "Python failed: " << error.what() << "\n";
  }
  return 1;
}
