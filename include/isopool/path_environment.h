// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "isopool/environment.h"
#include "isopool/export.h"

namespace isopool {

/// Appends one folder to the workers' sys.path. Workers import the extern modules of packages from
/// there. A relative path is relative to the working directory at construction; an empty path adds
/// no folder. The folder need not exist.
class ISOPOOL_EXPORT PathEnvironment : public Environment {
 public:
  explicit PathEnvironment(std::string path);
  void configureInterpreter(Interpreter* /*interp*/) override {}
};

}  // namespace isopool
