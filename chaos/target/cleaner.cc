// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/target/cleaner.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "testing/process_mark.h"

namespace chaos {

namespace {

// More than one round: a guardian may be starting a process at that time.
constexpr int kRounds = 5;
constexpr std::chrono::milliseconds kPatience(200);

}  // namespace

Cleaner::Cleaner() {
  const std::string run = std::to_string(::getpid());
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no process");
  if (child == 0) {
    ::setsid();
    // It ends with the process that it follows. A signal to all of that name ends the attacks only.
    ::signal(SIGINT, SIG_IGN);
    ::signal(SIGTERM, SIG_IGN);
    ::close(pipe[1]);
    char byte = 0;
    while (::read(pipe[0], &byte, 1) > 0) {
    }
    const isopool::tests::ProcessMark mark("ISOPOOL_CHAOS_RUN=" + run);
    for (int round = 0; round < kRounds; ++round) {
      mark.kill();
      if (mark.waitUntilNoneIsLeft(kPatience)) break;
    }
    ::_exit(0);
  }
  ::close(pipe[0]);
  lifeline_ = isopool::base::Fd(pipe[1]);
  ::setenv("ISOPOOL_CHAOS_RUN", run.c_str(), 1);
}

}  // namespace chaos
