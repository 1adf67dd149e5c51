// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

/// Landlock's interface as newer kernel headers declare it: the headers of the build system may be
/// older. The numbers are the kernel's and are equal on all architectures.
namespace isopool::worker::landlock {

inline constexpr long kCreateRuleset = 444;
inline constexpr long kAddRule = 445;
inline constexpr long kRestrictSelf = 446;
inline constexpr uint32_t kAskVersion = 1;
inline constexpr int kRulePathBeneath = 1;

// The version of the interface from which on a right is supported.
inline constexpr int kVersionWithRefer = 2;
inline constexpr int kVersionWithTruncate = 3;
inline constexpr int kVersionWithTcp = 4;
inline constexpr int kVersionWithDevices = 5;
inline constexpr int kVersionWithScopes = 6;

/// LANDLOCK_ACCESS_FS_...
enum FileRight : uint64_t {
  kExecute = 1u << 0,
  kWriteFile = 1u << 1,
  kReadFile = 1u << 2,
  kReadFolder = 1u << 3,
  kRemoveFolder = 1u << 4,
  kRemoveFile = 1u << 5,
  kMakeCharacterDevice = 1u << 6,
  kMakeFolder = 1u << 7,
  kMakeFile = 1u << 8,
  kMakeSocket = 1u << 9,
  kMakePipe = 1u << 10,
  kMakeBlockDevice = 1u << 11,
  kMakeLink = 1u << 12,
  kRefer = 1u << 13,
  kTruncate = 1u << 14,
  kControlDevice = 1u << 15,
};
inline constexpr uint64_t kTcpRights = 3;  ///< bind, connect
inline constexpr uint64_t kScopes = 3;     ///< abstract Unix sockets, signals

/// struct landlock_ruleset_attr: the rights that a ruleset controls.
struct RulesetAttributes {
  uint64_t files = 0;
  uint64_t network = 0;
  uint64_t scoped = 0;
};

/// struct landlock_path_beneath_attr: rights below the folder `parent` (a descriptor).
struct [[gnu::packed]] PathRule {
  uint64_t allowed = 0;
  int32_t parent = -1;
};

}  // namespace isopool::worker::landlock
