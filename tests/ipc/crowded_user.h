// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ipc/control/client_messages.h"
#include "ipc/control/frame.h"

namespace isopool::tests {

/// During its lifetime the kernel passes no descriptor of this process on (ETOOMANYREFS). Only for
/// a forked child: the constructor drops the capabilities of the process, with which the kernel
/// would pass them nevertheless, and lowers its limit of open files; neither is restored.
class CrowdedUser {
 public:
  CrowdedUser() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[2] = {};
    ::syscall(SYS_capset, &header, none);
    // The kernel counts all descriptors of the user in flight. With a low limit, few are enough.
    const rlimit few{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &few);
    auto [sender, unread] = ipc::ControlSocket::makePair();
    sender_ = ipc::ControlSocket(std::move(sender));
    unread_ = std::move(unread);
    const int object = unread_.get();
    ipc::SendResult result = ipc::SendResult::kSent;
    for (int i = 0; i < 1000 && result == ipc::SendResult::kSent; ++i) {
      ipc::OutgoingFrame frame = ipc::encodeMessage(ipc::ClosePool{1}, 1);
      result = sender_.trySend(frame, &object, 1);
    }
    crowded_ = result == ipc::SendResult::kCrowded;
  }

  bool crowded() const { return crowded_; }

 private:
  ipc::ControlSocket sender_;
  base::Fd unread_;
  bool crowded_ = false;
};

}  // namespace isopool::tests
