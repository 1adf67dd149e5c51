// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/worker_control_groups.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>

#include "base/control_groups.h"
#include "base/fd.h"
#include "tests/base/own_root.h"

namespace isopool::supervisor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMounts =
    "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    "31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";

std::string contentOf(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string whyNot(const std::string& root) {
  try {
    const WorkerControlGroups groups(root);
    return {};
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

// Files in place of the kernel's: what is written where. A file is written from its beginning, so
// that each has the last text.
class ControlGroupFiles : public ::testing::Test {
 protected:
  ControlGroupFiles() {
    root_.write("/proc/self/cgroup", "0::/\n");
    root_.write("/proc/self/mountinfo", kMounts);
    write("cgroup.type", "domain");
    write("cgroup.procs", std::to_string(::getpid()) + "\n");
    write("cgroup.controllers", "cpu memory pids");
    for (const char* each : {"cgroup.subtree_control", "isopoold/cgroup.procs"}) write(each, "");
    for (const char* each : {"memory.max", "memory.oom.group", "memory.swap.max", "pids.max",
                             "cgroup.procs", "cgroup.kill", "memory.events"}) {
      write(std::string("worker-77/") + each, "");
    }
  }
  void write(const std::string& file, const std::string& text) {
    root_.write("/sys/fs/cgroup/" + file, text);
  }
  std::string read(const std::string& file) {
    return contentOf(root_.path() + "/sys/fs/cgroup/" + file);
  }

  base::OwnRoot root_;
};

TEST_F(ControlGroupFiles, LimitMemorySwapAndTasksOfAWorkerBeforeItIsMoved) {
  WorkerControlGroups groups(root_.path());
  EXPECT_EQ(read("cgroup.subtree_control"), "+memory +pids");
  EXPECT_EQ(read("isopoold/cgroup.procs"), std::to_string(::getppid()));
  EXPECT_EQ(groups.confine(77, {.memory = 1000, .tasks = 20}), "");
  EXPECT_EQ(read("worker-77/memory.max"), "1000");
  EXPECT_EQ(read("worker-77/memory.oom.group"), "1");
  EXPECT_EQ(read("worker-77/memory.swap.max"), "0");
  EXPECT_EQ(read("worker-77/pids.max"), "20");
  EXPECT_EQ(read("worker-77/cgroup.procs"), "77");
  groups.allowMemory(77, 900);
  EXPECT_EQ(read("worker-77/memory.max"), "1000") << "it was lowered";
  groups.allowMemory(77, 2000);
  EXPECT_EQ(read("worker-77/memory.max"), "2000");
  write("worker-77/memory.events", "low 0\noom 1\noom_kill 3\noom_group_kill 1\n");
  EXPECT_EQ(groups.memoryKills(77), 3u);
  EXPECT_EQ(groups.memoryKills(78), 0u);
  groups.kill(77);
  EXPECT_EQ(read("worker-77/cgroup.kill"), "1");
}

TEST_F(ControlGroupFiles, HaveNoLimitThatIsNotSetOrHasNoController) {
  write("cgroup.controllers", "cpu pids");
  WorkerControlGroups groups(root_.path());
  EXPECT_EQ(read("cgroup.subtree_control"), "+pids");
  EXPECT_EQ(groups.confine(77, {.memory = 1000, .tasks = 0}), "");
  for (const char* file : {"worker-77/memory.max", "worker-77/pids.max"}) EXPECT_EQ(read(file), "");
  EXPECT_EQ(groups.allMemoryKills(), std::nullopt);
}

// After isopool restart: the guardian is in the leaf, and the group has the former workers, too.
TEST_F(ControlGroupFiles, OfAPredecessorAreItsSuccessors) {
  root_.write("/proc/self/cgroup", "0::/isopoold\n");
  write("isopoold/cgroup.type", "domain");
  write("isopoold/cgroup.procs", "1\n2\n");
  write("cgroup.subtree_control", "memory pids");
  WorkerControlGroups groups(root_.path(), /*successor=*/true);
  EXPECT_EQ(read("isopoold/cgroup.procs"), "1\n2\n");
  EXPECT_EQ(groups.confine(77, {.memory = 1000, .tasks = 20}), "");
  EXPECT_EQ(read("worker-77/memory.max"), "1000");
  EXPECT_EQ(read("worker-77/pids.max"), "20");
  EXPECT_EQ(read("worker-77/cgroup.procs"), "77");
  root_.write("/proc/self/cgroup", "0::/\n");
  EXPECT_THROW(WorkerControlGroups(root_.path(), /*successor=*/true), std::runtime_error)
      << "the predecessor had none";
}

TEST_F(ControlGroupFiles, CountTheKillsOfAllGroups) {
  WorkerControlGroups groups(root_.path());
  write("memory.events", "oom 2\noom_kill 5\n");
  EXPECT_EQ(groups.allMemoryKills(), 5u);
}

TEST_F(ControlGroupFiles, AreLeftAloneIfTheyAreNotTheSupervisorsAlone) {
  write("cgroup.procs", std::to_string(::getpid()) + "\n1\n");
  const std::string why = whyNot(root_.path());
  EXPECT_EQ(why.find("process 1 is in") != std::string::npos, ::getppid() != 1) << why;
  EXPECT_EQ(read("isopoold/cgroup.procs"), "");
  EXPECT_EQ(read("cgroup.subtree_control"), "");
}

TEST_F(ControlGroupFiles, AreLeftAloneIfTheyAreNotDelegated) {
  root_.write("/proc/self/cgroup", "0::/service\n");
  write("service/cgroup.type", "domain");
  write("service/cgroup.procs", "");
  const std::string why = whyNot(root_.path());
  EXPECT_EQ(why.find("is not delegated") != std::string::npos, ::geteuid() == 0) << why;
}

TEST_F(ControlGroupFiles, AreLeftAloneIfTheyAreTheMachines) {
  fs::remove(root_.path() + "/sys/fs/cgroup/cgroup.type");
  EXPECT_EQ(whyNot(root_.path()), "this is the root group");
}

TEST(UnifiedGroup, IsWhereItsHierarchyIsMounted) {
  const base::OwnRoot root;
  const auto folder = [&] {
    const auto found = base::unifiedGroup(root.path());
    return found ? found->folder.substr(root.path().size()) : "";
  };
  EXPECT_EQ(folder(), "");
  root.write("/proc/self/mountinfo", kMounts);
  root.write("/proc/self/cgroup", "4:memory:/a\n0::/service\n");
  EXPECT_EQ(folder(), "/sys/fs/cgroup/service");
  root.write("/proc/self/mountinfo",
             "31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  EXPECT_EQ(folder(), "/sys/fs/cgroup/unified/service");
  // A container that sees its own group at the mount, and its path on the host.
  root.write("/proc/self/mountinfo", "31 24 0:27 /pod/a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  root.write("/proc/self/cgroup", "0::/pod/a\n");
  EXPECT_EQ(folder(), "/sys/fs/cgroup");
  root.write("/proc/self/cgroup", "0::/pod/a/b\n");
  EXPECT_EQ(folder(), "/sys/fs/cgroup/b");
  root.write("/proc/self/cgroup", "0::/pod/another\n");
  EXPECT_EQ(folder(), "");
}

// ---- the kernel's ------------------------------------------------------------------------------

// A group that is delegated to the process which `begin` runs in, with its parent: the guardian's
// place. Empty, or why there is none.
std::string inDelegatedGroup(const std::function<int()>& begin, int& code) {
  const auto own = base::unifiedGroup();
  if (!own) return "no hierarchy of version 2 is mounted";
  const fs::path folder = fs::path(own->folder) / ("isopool-test-" + std::to_string(::getpid()));
  std::error_code error;
  if (!fs::create_directory(folder, error)) return "no group can be made: " + error.message();
  std::string problem;
  if (::setxattr(folder.c_str(), "user.delegate", "1", 1, 0) != 0) {
    problem = "the kernel has no attributes of groups";
  } else {
    const pid_t guardian = ::fork();
    if (guardian == 0) {
      std::ofstream(folder / "cgroup.procs") << "0" << std::flush;
      const pid_t supervisor = ::fork();
      if (supervisor == 0) ::_exit(begin());
      int status = 0;
      ::waitpid(supervisor, &status, 0);
      ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
    }
    int status = 0;
    ::waitpid(guardian, &status, 0);
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 98;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_directory()) ::rmdir(entry.path().c_str());
  }
  ::rmdir(folder.c_str());
  EXPECT_FALSE(fs::exists(folder)) << "a group is left";
  return problem;
}

enum Code { kGood, kNoGroups, kNotConfined, kNotStarted, kNotKilled, kNotRemoved };

// A daemon is in no process group, session or tree of its worker, but in its control group.
int killsADaemon() {
  std::optional<WorkerControlGroups> groups;
  try {
    groups.emplace();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kNoGroups;
  }
  int go[2];
  int report[2];
  if (::pipe(go) != 0 || ::pipe(report) != 0) return kNotStarted;
  const pid_t worker = ::fork();
  if (worker == 0) {
    char byte = 0;
    (void)!::read(go[0], &byte, 1);
    if (::fork() == 0) {
      ::setsid();
      if (::fork() != 0) ::_exit(0);
      const pid_t self = ::getpid();
      (void)!::write(report[1], &self, sizeof self);
      for (;;) ::pause();
    }
    for (;;) ::pause();
  }
  const std::string problem = groups->confine(worker, {.memory = 1 << 30, .tasks = 100});
  if (!problem.empty()) {
    std::fprintf(stderr, "%s\n", problem.c_str());
    return kNotConfined;
  }
  (void)!::write(go[1], "x", 1);
  pid_t daemon = 0;
  if (::read(report[0], &daemon, sizeof daemon) != sizeof daemon) return kNotStarted;
  const base::Fd daemonEnd(static_cast<int>(::syscall(SYS_pidfd_open, daemon, 0)));
  groups->kill(worker);
  ::waitpid(worker, nullptr, 0);
  pollfd end{daemonEnd.get(), POLLIN, 0};
  if (::poll(&end, 1, 10'000) != 1) return kNotKilled;
  const std::string folder = base::unifiedGroup()->folder;  // GROUP/isopoold
  const fs::path group = fs::path(folder).parent_path() / ("worker-" + std::to_string(worker));
  // A process that has ended leaves its group shortly afterwards.
  for (int i = 0; i < 1000 && fs::exists(group); ++i) {
    groups->remove(worker);
    ::poll(nullptr, 0, 5);
  }
  return fs::exists(group) ? kNotRemoved : kGood;
}

TEST(ControlGroups, EndAWorkerWithAllThatItsCodeHasStarted) {
  int code = -1;
  const std::string problem = inDelegatedGroup(killsADaemon, code);
  if (!problem.empty()) GTEST_SKIP() << problem;
  EXPECT_EQ(code, kGood);
}

}  // namespace
}  // namespace isopool::supervisor
