// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

namespace isopool::worker {

/// A file of worker/python/ inside this program, so that a worker finds its own Python wherever it
/// is installed.
struct EmbeddedModule {
  const char* name;  ///< "__init__" is the package itself
  const char* text;
};

/// In an order in which each needs only earlier ones.
std::span<const EmbeddedModule> embeddedModules();

}  // namespace isopool::worker
