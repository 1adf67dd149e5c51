// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"

namespace isopool::supervisor {

/// The process at the other end of an accepted connection, from the kernel (SO_PEERCRED): as it was
/// when it connected. It may have ended since, or have passed the socket on.
struct Peer {
  pid_t processId = 0;
  uid_t userId = 0;
  gid_t groupId = 0;
};

/// Reads the peer of a connection. Throws base::SystemCallError.
Peer peerOf(const base::Fd& socket);

/// Returns an empty text if the peer may use this supervisor, else the reason why not. It may if
/// its user is the supervisor's or root, or if it is a member of `group` (empty: no group); not if
/// its process is in a PID namespace that this process can't see. Reads the group database, which
/// may take long where that is a network service.
std::string whyRefused(const base::Fd& socket, const Peer& peer, const std::string& group);

/// Returns an empty text if the peer may have this supervisor act (ipc::RequestAction), else the
/// reason why not. It may if its user is the supervisor's or root.
std::string whyNoActions(const Peer& peer);

/// True if `pidfd` is a pidfd of that process. Throws base::SystemCallError if /proc/self/fdinfo
/// can't be read.
bool isPidfdOf(const base::Fd& pidfd, pid_t processId);

}  // namespace isopool::supervisor
