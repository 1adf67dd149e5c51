// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/guardian_link.h"

#include <unistd.h>

#include <utility>

#include "ipc/crash_point.h"

namespace isopool::supervisor {

GuardianLink::GuardianLink(base::EventLoop& loop, base::Fd socket, Events events)
    : events_(std::move(events)),
      connection_(loop, std::move(socket),
                  Connection::Events{.frame = [this](ipc::Frame& frame) { handle(frame); },
                                     // The kernel kills this process when its guardian ends.
                                     .over =
                                         [this](const std::string&) {
                                           gone_ = true;
                                           if (awaitsSuccessor_) ended("it has no guardian");
                                         },
                                     .sent = nullptr}) {}

void GuardianLink::startSuccessor(const ipc::StartSuccessor& request, int socket, int lock) {
  if (gone_) return ended("it has no guardian");
  awaitsSuccessor_ = true;
  if (lock >= 0) {
    connection_.send(request, {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO, socket, lock});
  } else {
    connection_.send(request, {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO, socket});
  }
  ipc::reachCrashPoint(ipc::CrashPoint::kSuccessorAsked);
}

void GuardianLink::serves() {
  connection_.send(ipc::Serves{});
  ipc::reachCrashPoint(ipc::CrashPoint::kServesSent);
}

void GuardianLink::handle(const ipc::Frame& frame) {
  if (frame.type == ipc::MessageType::kSuccessorServes) {
    ipc::reachCrashPoint(ipc::CrashPoint::kSuccessorSeen);
    return events_.successorServes();
  }
  ended(ipc::decodeMessage<ipc::SuccessorEnded>(frame).text);
}

void GuardianLink::ended(const std::string& text) {
  awaitsSuccessor_ = false;
  events_.successorEnded(text);
}

}  // namespace isopool::supervisor
