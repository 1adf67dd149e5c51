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

// The kernel took the registration of restartable sequences from the middle process of a fork,
// which shared the zygote's memory, and so from us. glibc does not know, and sched_getcpu() would
// say for ever where the zygote ran.
void registerRestartableSequences() {
#if __has_include(<sys/rseq.h>)
  if (__rseq_size == 0) return;  // none in the zygote either
  auto* area = reinterpret_cast<struct rseq*>(static_cast<std::byte*>(__builtin_thread_pointer()) +
                                              __rseq_offset);
  const unsigned bytes = std::max<unsigned>(__rseq_size, sizeof *area);
  if (::syscall(SYS_rseq, area, bytes, 0, RSEQ_SIG) == 0 || errno == EBUSY) return;
  // For glibc to ask the kernel each time.
  area->cpu_id = static_cast<uint32_t>(RSEQ_CPU_ID_REGISTRATION_FAILED);
#endif
}

void resetSignals() {
  // Python keeps its handler of SIGINT (KeyboardInterrupt) and ignores SIGPIPE, as it always does.
  // A group of our own is never the terminal's, so a user's Ctrl-C does not come here.
  for (const int signal : {SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGUSR1, SIGUSR2, SIGALRM}) {
    ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Short of memory, the kernel shall take a worker and not the user's program.
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
  // Who opened it anew for writing, through /proc/self/fd, would outlive the supervisor.
  base::checkSystemCall(::fchmod(descriptors.lifeline.get(), 0), "fchmod", "the lifeline");
  // Not through close-on-exec: a worker is never exec'd. User code would find what is left open:
  // files of the program, the zygote's control socket.
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
    // Fails where Yama is not there, and is not needed there.
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  }
}

}  // namespace isopool::worker
