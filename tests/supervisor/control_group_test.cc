// SPDX-License-Identifier: BSD-3-Clause
// A real isopoold in a control group that is delegated to it. The limits of a group need a system
// whose controllers are those of version 2: tests/packaging/machine has one.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/control_groups.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

namespace fs = std::filesystem;

/// A group that is marked as delegated. The destructor removes it with the groups in it.
class DelegatedGroup {
 public:
  DelegatedGroup() {
    const auto own = base::unifiedGroup();
    if (!own) return;
    folder_ = fs::path(own->folder) / ("isopool-test-" + std::to_string(::getpid()));
    std::error_code error;
    fs::create_directory(folder_, error);
    usable_ = !error && ::setxattr(folder_.c_str(), "user.delegate", "1", 1, 0) == 0;
  }
  ~DelegatedGroup() {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_, error)) ::rmdir(entry.path().c_str());
    ::rmdir(folder_.c_str());
  }
  DelegatedGroup(const DelegatedGroup&) = delete;
  DelegatedGroup& operator=(const DelegatedGroup&) = delete;

  bool usable() const { return usable_; }
  const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
  bool usable_ = false;
};

std::string groupOf(pid_t pid) {
  std::ifstream groups("/proc/" + std::to_string(pid) + "/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::")) return fs::path(line.substr(3)).filename();
  }
  return {};
}

TEST(ControlGroupOfAWorker, EndsWithTheWorkerAndAllThatIsInIt) {
  const DelegatedGroup group;
  if (!group.usable()) GTEST_SKIP() << "no group of version 2 can be made here";
  SharedSupervisor supervisor({"--workers", "1", "--log-level", "info"});
  supervisor.signal(SIGTERM);
  ASSERT_TRUE(supervisor.waitForEnd());
  const std::string script = supervisor.folder() + "/isopoold-in-group";
  std::ofstream(script) << "#!/bin/sh\necho $$ >" << (group.folder() / "cgroup.procs").string()
                        << "\nexec " ISOPOOLD " \"$@\"\n";
  fs::permissions(script, fs::perms::owner_all);
  supervisor.usePrograms(script, PLAIN_WORKER);
  supervisor.start();
  const auto client = supervisor.attachWithPool(1);
  const uint64_t epoch = client->serving(1, 0);
  const ipc::Report report = supervisor.report();
  EXPECT_EQ(groupOf(report.processId), "isopoold") << supervisor.log();
  EXPECT_EQ(groupOf(report.zygoteProcessId), "isopoold");
  pid_t worker = 0;
  for (const ipc::ReportedWorker& each : report.workers) {
    if (each.epoch != epoch) continue;  // a spare that is being started
    worker = each.processId;
    EXPECT_EQ(groupOf(worker), "worker-" + std::to_string(worker));
  }
  ASSERT_GT(worker, 0);
  // In place of a daemon of user code.
  const pid_t left = ::fork();
  if (left == 0) {
    ::setsid();
    for (;;) ::pause();
  }
  const fs::path folder = group.folder() / ("worker-" + std::to_string(worker));
  std::ofstream(folder / "cgroup.procs") << left << std::flush;
  ASSERT_EQ(groupOf(left), folder.filename());
  ::kill(worker, SIGKILL);
  int status = 0;
  EXPECT_TRUE(client->waitFor([&] { return ::waitpid(left, &status, WNOHANG) == left; }));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  ASSERT_TRUE(client->waitFor([&] { return client->serving(1, 0) != epoch; }));
  EXPECT_EQ(client->call(client->serving(1, 0), "served"), "served");
  // When a child of the supervisor ends after the last process of the group: here another worker.
  for (const ipc::ReportedWorker& each : supervisor.report().workers) {
    if (each.epoch == client->serving(1, 0) && each.processId > 0) ::kill(each.processId, SIGKILL);
  }
  EXPECT_TRUE(client->waitFor([&] { return !fs::exists(folder); }));
}

}  // namespace
}  // namespace isopool::tests
