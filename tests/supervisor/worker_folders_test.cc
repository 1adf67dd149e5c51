// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/processes/worker_folders.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "ipc/named_objects.h"
#include "testing/temporary_folder.h"
#include "tests/supervisor/shared_supervisor.h"

namespace isopool::tests {
namespace {

namespace fs = std::filesystem;

/// Supervisors whose folder for temporary files (TMPDIR) belongs to the test.
class WorkerFolder : public testing::Test {
 protected:
  WorkerFolder() {
    const char* before = ::getenv("TMPDIR");
    if (before != nullptr) before_ = before;
    ::setenv("TMPDIR", temporary_.c_str(), 1);
    ::setenv("PLAIN_WORKER_NEEDS_FOLDERS", "1", 1);
  }
  ~WorkerFolder() override {
    ::unsetenv("PLAIN_WORKER_NEEDS_FOLDERS");
    before_ ? ::setenv("TMPDIR", before_->c_str(), 1) : ::unsetenv("TMPDIR");
  }

  std::vector<fs::path> folders() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(temporary_)) {
      const std::string name = entry.path().filename();
      if (name.rfind("isopool-workers-", 0) == 0) found.push_back(entry.path());
    }
    return found;
  }
  static bool waitUntil(const std::function<bool()>& condition) {
    for (int tries = 0; tries < 2000 && !condition(); ++tries) ::poll(nullptr, 0, 5);
    return condition();
  }
  /// What user code may leave in its worker's folder.
  static void leaveThingsIn(const fs::path& folder, const fs::path& others) {
    fs::create_directories(folder / "a" / "b");
    std::ofstream(folder / "a" / "b" / "file") << "text";
    fs::create_directory_symlink(others, folder / "link");
    ::chmod((folder / "a" / "b").c_str(), 0);
    ::chmod((folder / "a").c_str(), 0);
  }

  const TemporaryFolder folder_;
  const fs::path temporary_ = folder_.path();
  std::optional<std::string> before_;
};

// Makes folders in `folder`, each in the one before. Their path may be longer than the
// kernel accepts.
void makeFolders(const fs::path& folder, int depth) {
  base::Fd last(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < depth && last.valid(); ++i) {
    ASSERT_EQ(::mkdirat(last.get(), "folder", 0700), 0);
    base::Fd next(::openat(last.get(), "folder", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // Two files beside the folder. removeTree() may want the name of one for a folder that it
    // moves up.
    for (const char* name : {"file", "1"}) ::mknodat(last.get(), name, S_IFREG | 0600, 0);
    // Only root may now read or write the folder.
    if (i % 7 == 0) ::fchmod(last.get(), 0);
    last = std::move(next);
  }
}

/// Named semaphores and shared memory, as the kernel has them.
class NamedObjects : public WorkerFolder {
 protected:
  ~NamedObjects() override {
    for (const fs::path& each : made_) fs::remove(each);
  }

  /// Makes a semaphore and shared memory, named like those of a worker of the only supervisor.
  std::vector<fs::path> objectsOf(uint64_t worker) {
    const std::string name = ipc::namedObjectsOf(folders().front(), base::Epoch(worker)) + "12ab";
    return {make("sem." + name), make(name)};
  }
  fs::path make(const std::string& name) {
    made_.push_back(fs::path("/dev/shm") / name);
    std::ofstream(made_.back()) << "content";
    return made_.back();
  }
  static size_t left(const std::vector<fs::path>& objects) {
    const auto exists = [](const fs::path& each) { return fs::exists(each); };
    return static_cast<size_t>(std::count_if(objects.begin(), objects.end(), exists));
  }

 private:
  std::vector<fs::path> made_;
};

TEST_F(WorkerFolder, IsRemovedWhenItsWorkerIsDeadAndNoOthersIs) {
  const SharedSupervisor supervisor({"--workers", "2"});
  const auto client = supervisor.attachWithPool(2);
  ASSERT_EQ(folders().size(), 1u);
  const fs::path all = folders().front();
  EXPECT_EQ(fs::status(all).permissions(), fs::perms::owner_all);
  const fs::path others = fs::path(supervisor.folder()) / "others";
  fs::create_directory(others);
  std::ofstream(others / "file") << "text";
  const uint64_t killed = client->serving(1, 0);
  const uint64_t living = client->serving(1, 1);
  for (const uint64_t each : {killed, living}) leaveThingsIn(all / std::to_string(each), others);

  client->killAndReport(killed);
  EXPECT_TRUE(waitUntil([&] { return !fs::exists(all / std::to_string(killed)); }));
  EXPECT_TRUE(fs::exists(all / std::to_string(living)));
  EXPECT_TRUE(fs::exists(others / "file")) << "a link was followed";
}

TEST_F(WorkerFolder, IsNotMadeWhereTheKernelGivesOnesInMemory) {
  ::unsetenv("PLAIN_WORKER_NEEDS_FOLDERS");
  const SharedSupervisor supervisor({"--workers", "1"});
  const auto client = supervisor.attachWithPool(1);
  EXPECT_TRUE(folders().empty());
}

TEST_F(WorkerFolder, IsRemovedWithItsSupervisorHoweverThatEnds) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    SharedSupervisor supervisor({"--workers", "1"});
    auto client = supervisor.attachWithPool(1);
    ASSERT_EQ(folders().size(), 1u);
    leaveThingsIn(folders().front() / std::to_string(client->serving(1, 0)), supervisor.folder());
    const pid_t process = supervisor.supervisorPid();
    client.reset();  // after SIGTERM the supervisor waits for its clients
    ASSERT_EQ(::kill(process, signal), 0);
    ASSERT_TRUE(supervisor.waitForEnd());
    EXPECT_TRUE(folders().empty()) << signal;
  }
}

TEST_F(WorkerFolder, OfASupervisorThatIsGoneWithItsGuardianIsRemovedByTheNextOne) {
  const SharedSupervisor living({"--workers", "1"});
  const auto client = living.attachWithPool(1);
  ASSERT_EQ(folders().size(), 1u);
  const fs::path kept = folders().front();
  {
    SharedSupervisor killed({"--workers", "1"});
    const auto other = killed.attachWithPool(1);
    ASSERT_EQ(folders().size(), 2u);
    ASSERT_EQ(::kill(killed.pid(), SIGKILL), 0);
    ASSERT_TRUE(killed.waitForEnd());
    ASSERT_TRUE(killed.mark().waitUntilNoneIsLeft(milliseconds(5000)));
  }
  EXPECT_EQ(folders().size(), 2u);
  const SharedSupervisor next({"--workers", "1"});
  const auto another = next.attachWithPool(1);
  EXPECT_EQ(folders().size(), 2u) << "the abandoned folder is removed, its own is added";
  EXPECT_TRUE(fs::exists(kept));
}

TEST_F(WorkerFolder, IsRemovedHoweverDeepUserCodeMadeIt) {
  const fs::path folder = temporary_ / "folder";
  const fs::path others = temporary_ / "others";
  fs::create_directories(folder / "wide");
  for (int i = 0; i < 300; ++i) fs::create_directory(folder / "wide" / std::to_string(i));
  fs::create_directory(others);
  std::ofstream(others / "file") << "text";
  fs::create_directory_symlink(others, folder / "wide" / "link");
  makeFolders(folder, 1000);

  supervisor::removeTree(folder);
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_TRUE(fs::exists(others / "file")) << "a link was followed";
}

TEST_F(NamedObjects, AreRemovedWhenTheirWorkerIsKilledAndNoOthersAre) {
  const SharedSupervisor supervisor({"--workers", "2"});
  const auto client = supervisor.attachWithPool(2);
  ASSERT_EQ(folders().size(), 1u);
  const uint64_t killed = client->serving(1, 0);
  const auto gone = objectsOf(killed);
  std::vector<fs::path> kept = objectsOf(client->serving(1, 1));
  for (const auto& each : objectsOf(killed * 10)) kept.push_back(each);
  const std::string own = ipc::namedObjectsOf(folders().front(), base::Epoch(killed));
  for (const std::string& name : {"prefix-" + own + "1", "sem.prefix-" + own + "1"}) {
    kept.push_back(make(name));
  }

  client->killAndReport(killed);
  EXPECT_TRUE(waitUntil([&] { return left(gone) == 0; })) << left(gone) << " are left";
  EXPECT_EQ(left(kept), kept.size());
}

TEST_F(NamedObjects, AreRemovedWithTheirSupervisorHoweverThatEnds) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    SharedSupervisor supervisor({"--workers", "1"});
    auto client = supervisor.attachWithPool(1);
    ASSERT_EQ(folders().size(), 1u);
    const auto objects = objectsOf(client->serving(1, 0));
    const fs::path others = make("isopool-workers-test-" + std::to_string(::getpid()));
    const pid_t process = supervisor.supervisorPid();
    client.reset();
    ASSERT_EQ(::kill(process, signal), 0);
    ASSERT_TRUE(supervisor.waitForEnd());
    EXPECT_EQ(left(objects), 0u) << signal;
    EXPECT_TRUE(fs::exists(others));
  }
}

}  // namespace
}  // namespace isopool::tests
