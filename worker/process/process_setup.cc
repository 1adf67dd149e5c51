// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/process_setup.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <string>

#include "base/close_descriptors.h"
#include "base/settings/environment.h"
#include "base/system_call.h"
#include "worker/process/lifeline.h"

namespace isopool::worker {

namespace {

// The kernel dropped the registration of restartable sequences for the middle process of the fork
// (a vfork), and so for this process. glibc is not aware of this: without a new registration
// sched_getcpu() would always return the processor on which the zygote ran.
void registerRestartableSequences() {
#if __has_include(<sys/rseq.h>)
  if (__rseq_size == 0) return;  // the zygote has no registration either
  auto* area = reinterpret_cast<struct rseq*>(static_cast<std::byte*>(__builtin_thread_pointer()) +
                                              __rseq_offset);
  const unsigned bytes = std::max<unsigned>(__rseq_size, sizeof *area);
  if (::syscall(SYS_rseq, area, bytes, 0, RSEQ_SIG) == 0 || errno == EBUSY) return;
  // Makes glibc ask the kernel each time.
  area->cpu_id = static_cast<uint32_t>(RSEQ_CPU_ID_REGISTRATION_FAILED);
#endif
}

void resetSignals() {
  // Python keeps its handler of SIGINT (KeyboardInterrupt) and ignores SIGPIPE, as it always does.
  // The worker's own process group is never the terminal's foreground group, so a user's Ctrl-C
  // does not reach it.
  for (const int signal : {SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGUSR1, SIGUSR2, SIGALRM}) {
    ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// If memory runs out, the kernel should kill a worker and not the user's program.
void offerToTheOomKiller() {
  const int fd = ::open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  char text[16] = {};
  const ssize_t read = ::read(fd, text, sizeof text - 1);
  const int current = read > 0 ? std::atoi(text) : 0;
  const std::string wanted = std::to_string(std::min(1000, current + 500));
  ::lseek(fd, 0, SEEK_SET);
  [[maybe_unused]] const ssize_t written = ::write(fd, wanted.data(), wanted.size());
  ::close(fd);
}

}  // namespace

bool debugged() { return base::settingInEnvironment("ISOPOOL_NO_KILL").number != 0; }

size_t threadCount() {
  DIR* tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return 0;
  size_t count = 0;
  while (const dirent* entry = ::readdir(tasks)) count += entry->d_name[0] != '.' ? 1 : 0;
  ::closedir(tasks);
  return count;
}

void setUpWorkerProcess(const WorkerDescriptors& descriptors, pid_t forker) {
  registerRestartableSequences();
  base::checkSystemCall(::setpgid(0, 0), "setpgid");
  armLifeline(descriptors.lifeline.get());
  // Mode 0, so that user code cannot open the pipe for writing through /proc/self/fd: a worker with
  // a write end would outlive the supervisor.
  base::checkSystemCall(::fchmod(descriptors.lifeline.get(), 0), "fchmod", "the lifeline");
  if (descriptors.output.valid()) {
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      base::checkSystemCall(::dup2(descriptors.output.get(), stream), "dup2", "a standard stream");
    }
  }
  // Close-on-exec would not help: a worker is forked and not exec'd. User code could use any
  // descriptor that is left open: the zygote's control socket, files of the program.
  const std::array kept{descriptors.control.get(), descriptors.lifeline.get(),
                        descriptors.doorbell.get(), descriptors.crashLog.get(),
                        descriptors.statusPage.get()};
  base::closeDescriptorsBut(kept, 3);
  resetSignals();
  ::prctl(PR_SET_NAME, "isopool-worker", 0, 0, 0);
  if (base::settingInEnvironment("ISOPOOL_CORE_DUMPS").number == 0) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
  }
  offerToTheOomKiller();
  endWithSupervisor(forker);
  if (debugged()) {
    // Fails if the kernel has no Yama; then it is not needed.
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  }
}

}  // namespace isopool::worker
