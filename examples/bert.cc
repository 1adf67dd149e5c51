// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ATen.h>

#include <iomanip>
#include <iostream>

#include "isopool/isopool.h"

// A transformer as Hugging Face's class gives it: keyword arguments in, a dict of tensors and lists of
// tensors out, which TorchScript's rules would refuse.
int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: bert PACKAGE (package_bert.py makes one)\n";
    return 2;
  }
  isopool::InterpreterManager pool(2);
  isopool::ReplicatedObj bert = pool.loadPackage(argv[1]).loadPickle("model", "model.pkl");

  const at::NoGradGuard noGrad;
  at::Tensor words;
  {
    const isopool::SharedMemoryGuard shared;  // what is made here crosses without a copy
    words = at::arange(8).reshape({1, 8});
  }
  isopool::CallOptions mixed;
  mixed.permissive = true;
  const at::IValue answer = bert.call({},
                                      {{"input_ids", words},
                                       {"attention_mask", at::ones_like(words)},
                                       {"output_hidden_states", true}},
                                      mixed);
  for (const auto& entry : answer.toGenericDict()) {
    std::cout << entry.key().toStringRef() << ": ";
    if (entry.value().isTensor()) {
      std::cout << entry.value().toTensor().sizes() << "\n";
    } else {
      std::cout << "a " << entry.value().tagKind() << "\n";
    }
  }
  const at::Tensor pooled = answer.toGenericDict().at("pooler_output").toTensor();
  std::cout << "sum of pooler_output: " << std::fixed << std::setprecision(4)
            << pooled.sum().item<float>() << "\n";
}
