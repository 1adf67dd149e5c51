// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace isopool::base {

/// A control group of the calling process, see cgroups(7).
struct ControlGroup {
  int version = 2;
  /// The folder of the group, then those of its ancestors. Not all of them need exist: a container
  /// may see its group's path on the host, and has its own group at the mount, the last folder.
  std::vector<std::string> folders;
};

/// The groups of the calling process that may have the limits of `controller` ("cpu", "memory"):
/// the one of version 2, and that of the controller's hierarchy of version 1. Reads /proc at each
/// call. Any thread. `root`: a folder in place of "/", for tests.
std::vector<ControlGroup> controlGroupsFor(std::string_view controller,
                                           const std::string& root = "");

/// The group of version 2 of the calling process, where its hierarchy is mounted.
struct UnifiedGroup {
  std::string folder;
  bool isRootOfNamespace = false;  ///< the process sees no group above it
};

/// Nothing if no hierarchy of version 2 is mounted, or none that shows the group.
std::optional<UnifiedGroup> unifiedGroup(const std::string& root = "");

}  // namespace isopool::base
