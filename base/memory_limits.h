// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

/// How much memory this process and others beside it may use, and what the kernel does if that is
/// not enough. All functions read everything again at each call; any thread may call them. `root`:
/// a folder in place of "/", for tests.
namespace isopool::base {

/// Bytes of memory that this process may use at most, together with the other processes of its
/// control groups: the machine's memory, or less if a control group or one of its ancestors limits
/// it (`memory.max` of version 2, `memory.limit_in_bytes` of version 1, see cgroups(7)). UINT64_MAX
/// if /proc/meminfo can't be read and no control group sets a limit.
uint64_t usableMemory(const std::string& root = "");

/// Memory in use, and its limit.
struct MemoryUse {
  uint64_t used = 0;
  uint64_t limit = 0;
};
/// The use of the control group of this process, or of its ancestor, that is nearest to its limit,
/// without what the kernel can take back at once (inactive pages of files); without a limit that of
/// the machine. Nothing if the kernel does not show it.
std::optional<MemoryUse> memoryUse(const std::string& root = "");

/// How many processes of this process's control group (on a system without control groups for
/// memory: of the machine) the kernel has killed because memory ran out. The kernel counts a
/// process before it kills it. Nothing if the kernel does not show the number.
std::optional<uint64_t> memoryKills(const std::string& root = "");

/// The same for the control group of this folder (version 2), with the groups below it; nothing
/// also if there is no such group or it counts no memory.
std::optional<uint64_t> memoryKillsIn(const std::string& folder);

/// True if the kernel kills all processes of this process's control group, and not one of them,
/// when the group's memory runs out (`memory.oom.group`).
bool memoryKillsWholeGroup(const std::string& root = "");

}  // namespace isopool::base
