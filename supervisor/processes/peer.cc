// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/peer.h"

#include <grp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "base/pidfd.h"
#include "base/system_call.h"

namespace isopool::supervisor {

namespace {

constexpr int kPeerGroups = 59;  // SO_PEERGROUPS, which C libraries may lack

std::vector<gid_t> groupsOf(const base::Fd& socket, const Peer& peer) {
  std::vector<gid_t> groups(64);
  socklen_t bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  while (::getsockopt(socket.get(), SOL_SOCKET, kPeerGroups, groups.data(), &bytes) != 0) {
    if (errno != ERANGE) {
      bytes = 0;
      break;
    }
    groups.resize(bytes / sizeof(gid_t));
  }
  groups.resize(bytes / sizeof(gid_t));
  groups.push_back(peer.groupId);
  return groups;
}

}  // namespace

Peer peerOf(const base::Fd& socket) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  base::checkSystemCall(::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &bytes),
                        "getsockopt(SO_PEERCRED)", socket.get());
  return {credentials.pid, credentials.uid, credentials.gid};
}

std::string whyRefused(const base::Fd& socket, const Peer& peer, const std::string& group) {
  if (peer.processId <= 0) return "its process is in another PID namespace";
  if (peer.userId == ::geteuid() || peer.userId == 0) return {};
  if (!group.empty()) {
    const struct group* entry = ::getgrnam(group.c_str());
    const std::vector<gid_t> groups = groupsOf(socket, peer);
    if (entry != nullptr &&
        std::find(groups.begin(), groups.end(), entry->gr_gid) != groups.end()) {
      return {};
    }
  }
  return "user " + std::to_string(peer.userId) +
         (group.empty() ? " is neither the supervisor's user nor root, and no group has permission "
                          "to connect (socket_group, ISOPOOL_SOCKET_GROUP)"
                        : " is neither the supervisor's user nor root nor in the group " + group +
                              " (socket_group, ISOPOOL_SOCKET_GROUP)");
}

std::string whyNoActions(const Peer& peer) {
  if (peer.userId == ::geteuid() || peer.userId == 0) return {};
  return "user " + std::to_string(peer.userId) +
         " may read reports, but only the supervisor's user (" + std::to_string(::geteuid()) +
         ") and root may have it act";
}

bool isPidfdOf(const base::Fd& pidfd, pid_t processId) {
  const std::optional<pid_t> its = base::processOf(pidfd);
  if (!its) throw base::SystemCallError("open", "/proc/self/fdinfo", errno);
  return *its == processId;
}

}  // namespace isopool::supervisor
