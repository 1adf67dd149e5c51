// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "isopool/environment.h"

namespace isopool {

/// The local Python with one more folder at the end of sys.path, from which packages' extern
/// modules are imported. A relative path is relative to the program's folder at the time of
/// construction.
class PathEnvironment : public Environment {
 public:
  explicit PathEnvironment(std::string path);
  void configureInterpreter(Interpreter* /*interp*/) override {}
};

}  // namespace isopool
