// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/crash_point.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>

#include "testing/temporary_folder.h"
#include "tests/ipc/channel/peers.h"

namespace isopool::ipc {
namespace {

using tests::Peer;
using tests::PeerKind;

constexpr const char* kVariable = "ISOPOOL_TEST_CRASH_POINT";

/// True if a process that runs `act` kills itself.
bool kills(const std::function<void()>& act) {
  const int status = Peer(PeerKind::kProcess, act).waitForEnd();
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

TEST(CrashPoint, HasANameOfItsOwnThatLeadsBack) {
  std::set<std::string> names;
  for (uint32_t i = 1; i < static_cast<uint32_t>(CrashPoint::kCount); ++i) {
    const auto point = static_cast<CrashPoint>(i);
    const std::string name(crashPointName(point));
    EXPECT_FALSE(name.empty()) << "the list of names lacks number " << i;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(crashPointFromName(name), point);
  }
  EXPECT_EQ(crashPointName(CrashPoint::kWorkerReaped), "workerReaped");
  EXPECT_EQ(crashPointOwner(CrashPoint::kWorkerReaped), CrashPointOwner::kSupervisor);
  EXPECT_EQ(crashPointName(CrashPoint::kCount), "unknown");
  EXPECT_EQ(crashPointFromName("none"), std::nullopt);
  EXPECT_EQ(crashPointFromName(""), std::nullopt);
  EXPECT_EQ(crashPointFromName("submissionTailStore"), std::nullopt);
}

class ArmedCrashPoint : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv(kVariable); }
};

TEST_F(ArmedCrashPoint, KillsAtTheNthTimeAndNotBefore) {
  for (const uint32_t nth : {1u, 2u, 7u}) {
    const auto reach = [&](uint32_t times) {
      return kills([&] {
        armCrashPoint(CrashPoint::kStartedStored, nth);
        for (uint32_t i = 0; i < times; ++i) reachCrashPoint(CrashPoint::kStartedStored);
      });
    };
    EXPECT_FALSE(reach(nth - 1)) << nth;
    EXPECT_TRUE(reach(nth)) << nth;
  }
}

TEST_F(ArmedCrashPoint, LeavesOtherPointsAlone) {
  EXPECT_FALSE(kills([] {
    armCrashPoint(CrashPoint::kStartedStored, 1);
    reachCrashPoint(CrashPoint::kSubmissionHeadStored);
    reachCrashPoint(CrashPoint::kCompletionTailStored);
  }));
}

TEST_F(ArmedCrashPoint, ComesFromTheEnvironment) {
  const auto killsAtOnce = [](const char* request) {
    ::setenv(kVariable, request, 1);
    return kills([] {
      if (armCrashPointFromEnvironment(kVariable)) reachCrashPoint(CrashPoint::kStartedStored);
    });
  };
  EXPECT_TRUE(killsAtOnce("startedStored"));
  EXPECT_TRUE(killsAtOnce("startedStored:1"));
  EXPECT_FALSE(killsAtOnce("startedStored:2"));
  EXPECT_FALSE(killsAtOnce("completionWoken"));
}

TEST_F(ArmedCrashPoint, ComesFromAFileForTheFirstProcessOnly) {
  const tests::TemporaryFolder folder;
  const std::string path = folder.path() + "/request";
  ::setenv(kVariable, path.c_str(), 1);
  const auto comes = [] {
    if (armCrashPointFromEnvironment(kVariable)) reachCrashPoint(CrashPoint::kStartedStored);
  };
  EXPECT_FALSE(kills(comes)) << "no request exists yet";
  std::ofstream(path) << "startedStored\n";
  EXPECT_TRUE(kills(comes));
  EXPECT_FALSE(kills(comes)) << "the request is already taken";
  size_t reached = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    reached += entry.path().extension() == ".reached" ? 1 : 0;
  }
  EXPECT_EQ(reached, 1u);
}

TEST_F(ArmedCrashPoint, InvalidRequestIsAnError) {
  for (const char* request : {"", "noSuchPoint", "startedStored:", "startedStored:x",
                              "startedStored:2x", "startedStored:-1", "none"}) {
    ::setenv(kVariable, request, 1);
    EXPECT_FALSE(armCrashPointFromEnvironment(kVariable)) << request;
  }
  ::unsetenv(kVariable);
  EXPECT_TRUE(armCrashPointFromEnvironment(kVariable)) << "no request";
}

}  // namespace
}  // namespace isopool::ipc
