// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "isopool/environment.h"

namespace isopool {

/// Leaves the workers' Python as it is.
class NoopEnvironment : public Environment {
 public:
  void configureInterpreter(Interpreter* /*interp*/) override {}
};

}  // namespace isopool
