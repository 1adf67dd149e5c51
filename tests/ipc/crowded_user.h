// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ipc/control/frame.h"
#include "ipc/control/messages.h"

namespace isopool::tests {

/// While it lives, the kernel passes on no descriptor of this process (ETOOMANYREFS). For a forked
/// child: it gives up its capabilities, which would let it pass them all the same, and its limit of
/// open files.
class CrowdedUser {
 public:
  CrowdedUser() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[2] = {};
    ::syscall(SYS_capset, &header, none);
    // Of the user's, whoever sent them: with a limit of few this process meets it soon.
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
