// SPDX-License-Identifier: BSD-3-Clause
// A user's program: asks a worker for the square root of 81.

#include <isopool/isopool.h>

int main() {
  isopool::InterpreterManager manager(1);
  auto session = manager.acquireOne();
  return session.global("math", "sqrt")({at::IValue(81.0)}).toIValue().toDouble() == 9.0 ? 0 : 1;
}
