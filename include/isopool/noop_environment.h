// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "isopool/environment.h"
#include "isopool/export.h"

namespace isopool {

/// Leaves the workers' Python as it is.
class ISOPOOL_EXPORT NoopEnvironment : public Environment {
 public:
  void configureInterpreter(Interpreter* /*interp*/) override {}
};

}  // namespace isopool
