// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/credentials.h"

#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace isopool::worker {

Credentials::Credentials() : numbers_(numbers()) {
  supplementary_.resize(static_cast<size_t>(std::max(0, ::getgroups(0, nullptr))));
  const int count = ::getgroups(static_cast<int>(supplementary_.size()), supplementary_.data());
  supplementary_.resize(static_cast<size_t>(std::max(0, count)));
}

bool Credentials::areTheSame() const {
  if (numbers() != numbers_) return false;
  // If there are more now, the kernel returns an error, or without any before their number.
  std::vector<gid_t> groups(supplementary_.size());
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  return count == static_cast<int>(groups.size()) && groups == supplementary_;
}

Credentials::Numbers Credentials::numbers() noexcept {
  Numbers now;
  ::getresuid(&now.users[0], &now.users[1], &now.users[2]);
  ::getresgid(&now.groups[0], &now.groups[1], &now.groups[2]);
  // The kernel has no call that only reads these two. -1 is none, so nothing changes.
  now.users[3] = static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1)));
  now.groups[3] = static_cast<gid_t>(::setfsgid(static_cast<gid_t>(-1)));
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  static_assert(sizeof now.capabilities ==
                _LINUX_CAPABILITY_U32S_3 * sizeof(__user_cap_data_struct));
  ::syscall(SYS_capget, &header, now.capabilities.data());
  return now;
}

}  // namespace isopool::worker
