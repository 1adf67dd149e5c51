// SPDX-License-Identifier: BSD-3-Clause
#include "worker/sandbox/kernel_protections.h"

#include <gtest/gtest.h>

#include <map>

namespace isopool::worker {
namespace {

SandboxSettings settingsOf(const std::map<std::string, std::string>& variables) {
  return readSandboxSettings([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr int kNewest = 7;

std::vector<std::string> missing(const std::map<std::string, std::string>& variables,
                                 const KernelProtections& kernel) {
  return missingProtections(settingsOf(variables), kernel);
}

TEST(KernelProtections, OfANewKernelLackNothing) {
  EXPECT_TRUE(missing({{"ISOPOOL_SANDBOX", "strict"}}, {true, kNewest, true}).empty());
}

TEST(KernelProtections, AreOnlyMissedAtTheStrictLevel) {
  for (const char* level : {"none", "default"}) {
    EXPECT_TRUE(missing({{"ISOPOOL_SANDBOX", level}}, {false, 0, false}).empty()) << level;
  }
}

TEST(KernelProtections, SayWhatIsNotProtectedWithoutThem) {
  const auto lines = missing({{"ISOPOOL_SANDBOX", "strict"}, {"ISOPOOL_WORKER_MEMORY", "1GiB"}},
                             {false, 0, false});
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(has(lines[0], "ISOPOOL_WORKER_MEMORY limits nothing")) << lines[0];
  EXPECT_TRUE(has(lines[1], "no seccomp here, so user code can make every system call"));
  EXPECT_TRUE(has(lines[1], "open sockets")) << lines[1];
  EXPECT_TRUE(has(lines[2], "no Landlock here, so user code can read and write")) << lines[2];
}

TEST(KernelProtections, OfEachOlderLandlockLackMore) {
  const std::map<int, size_t> lacking = {{1, 4}, {2, 4}, {3, 3}, {4, 2}, {5, 1}, {6, 0}, {7, 0}};
  for (const auto& [version, count] : lacking) {
    EXPECT_EQ(missing({{"ISOPOOL_SANDBOX", "strict"}}, {true, version, true}).size(), count)
        << version;
  }
}

TEST(KernelProtections, SayThatThereAreNoTemporaryFolders) {
  const auto lines = missing({{"ISOPOOL_SANDBOX", "strict"}}, {true, kNewest, true, false});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(has(lines[0], "temporary folders: user namespaces are forbidden here")) << lines[0];
}

TEST(KernelProtections, SayWhereTemporaryFilesLieThatAreNotInMemory) {
  const auto lines = missing({{"ISOPOOL_SANDBOX", "strict"}, {"ISOPOOL_WORKER_FOLDERS", "/a/b"}},
                             {true, kNewest, true, false});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(has(lines[0], "so workers' temporary files lie in /a/b")) << lines[0];
}

TEST(KernelProtections, OfTcpAreNotMissedWhereTheNetworkIsAllowed) {
  EXPECT_EQ(
      missing({{"ISOPOOL_SANDBOX", "strict"}, {"ISOPOOL_SANDBOX_NETWORK", "1"}}, {true, 3, true})
          .size(),
      2u);
}

TEST(SandboxSettings, AreTheDefaultLevelWithoutLimitsUnlessSaidOtherwise) {
  const SandboxSettings settings = settingsOf({});
  EXPECT_EQ(settings.level, SandboxLevel::kDefault);
  EXPECT_FALSE(settings.memory || settings.files || settings.processes || settings.network);
}

TEST(SandboxSettings, OfALimitOfZeroAreWithoutThatLimit) {
  EXPECT_EQ(settingsOf({{"ISOPOOL_WORKER_MEMORY", "512MiB"}}).memory, uint64_t{512} << 20);
  EXPECT_EQ(settingsOf({{"ISOPOOL_WORKER_MEMORY", "0"}}).memory, std::nullopt);
  EXPECT_EQ(settingsOf({{"ISOPOOL_WORKER_FILES", "0"}}).files, std::nullopt);
}

TEST(SandboxSettings, InvalidValuesAreRefused) {
  EXPECT_THROW(settingsOf({{"ISOPOOL_SANDBOX_NETWORK", "maybe"}}), base::SettingError);
  EXPECT_THROW(settingsOf({{"ISOPOOL_SANDBOX", "paranoid"}}), base::SettingError);
}

}  // namespace
}  // namespace isopool::worker
