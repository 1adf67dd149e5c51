// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"

namespace isopool::supervisor {

/// The process at the other end of an accepted connection, as the kernel names it.
struct Peer {
  pid_t processId = 0;
  uid_t userId = 0;
  gid_t groupId = 0;
};

/// Throws base::SystemCallError.
Peer peerOf(const base::Fd& socket);

/// Empty if the peer may use this supervisor: it is of our user, or root, or a member of the named
/// group (none if empty). Else why not.
std::string whyRefused(const base::Fd& socket, const Peer& peer, const std::string& group);

/// True if `pidfd` is one, and of that process. Throws base::SystemCallError if it can't be looked
/// at.
bool isPidfdOf(const base::Fd& pidfd, pid_t processId);

}  // namespace isopool::supervisor
