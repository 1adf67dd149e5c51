// SPDX-License-Identifier: BSD-3-Clause
// A user's library that contains a pool. A Python process loads it.
#include <ATen/ATen.h>

#include <memory>
#include <string>

#include "isopool/isopool.h"

namespace {

struct Pool {
  explicit Pool(const char* package)
      : manager(2), object(manager.loadPackage(package).loadPickle("model", "model.pkl")) {}
  isopool::InterpreterManager manager;
  isopool::ReplicatedObj object;
};
std::unique_ptr<Pool> pool;

}  // namespace

extern "C" {

int bridgeOpen(const char* package) {
  pool = std::make_unique<Pool>(package);
  return static_cast<int>(pool->object({"pid"}).toInt());
}

double bridgeSum() { return pool->object({"sums", at::full({5000}, 0.002)}).toDouble(); }

const char* bridgeError() {
  static std::string type;
  try {
    pool->object({"fail", 1});
    type = "none";
  } catch (const isopool::RemoteError& error) {
    type = error.pythonType();
  }
  return type.c_str();
}

void bridgeClose() { pool.reset(); }

}  // extern "C"
