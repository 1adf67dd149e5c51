// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <iomanip>
#include <iostream>

#include "isopool/isopool.h"

// Calls a transformer of Hugging Face with keyword arguments. It returns a dict of tensors,
// numbers, lists of tuples and an empty list, which TorchScript's rules would refuse.
int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: bert PACKAGE (made by package_bert.py)\n";
    return 2;
  }
  isopool::InterpreterManager pool(2);
  isopool::ReplicatedObj bert = pool.loadPackage(argv[1]).loadPickle("model", "model.pkl");

  const at::NoGradGuard noGrad;
  at::Tensor words;
  {
    const isopool::SharedMemoryGuard shared;  // tensors made here cross without a copy
    words = at::arange(8).reshape({1, 8});
  }
  isopool::CallOptions mixed;
  mixed.permissive = true;
  const at::IValue answer =
      bert.call({}, {{"input_ids", words}, {"attention_mask", at::ones_like(words)}}, mixed);
  for (const auto& entry : answer.toGenericDict()) {
    std::cout << entry.key().toStringRef() << ": ";
    if (entry.value().isTensor()) {
      std::cout << "tensor " << entry.value().toTensor().sizes() << "\n";
    } else {
      std::cout << entry.value() << "\n";
    }
  }
  const at::Tensor pooled = answer.toGenericDict().at("pooler_output").toTensor();
  std::cout << "sum of pooler_output: " << std::fixed << std::setprecision(4)
            << pooled.sum().item<float>() << "\n";
}
