// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

namespace isopool::worker {

/// A file of worker/python/ or worker/backends/ that is embedded in this program, so that a worker
/// does not depend on installed files.
struct EmbeddedModule {
  const char* name;  ///< "__init__" is the package itself
  const char* text;
};

/// All files, sorted by name.
std::span<const EmbeddedModule> embeddedModules();

}  // namespace isopool::worker
