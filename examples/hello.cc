// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ATen.h>

#include <iostream>

#include "isopool/isopool.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: hello PACKAGE (made by package_hello.py)\n";
    return 2;
  }
  isopool::InterpreterManager pool(4);  // four processes, each with its own Python
  isopool::Package package = pool.loadPackage(argv[1]);
  isopool::ReplicatedObj model = package.loadPickle("model", "model.pkl");
  at::Tensor doubled = model({at::ones({3})}).toTensor();
  std::cout << doubled << "\n";
}
