// SPDX-License-Identifier: BSD-3-Clause
#include "worker/kernel_protections.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

namespace isopool::worker {
namespace {

SandboxSettings settingsOf(const std::map<std::string, std::string>& variables) {
  return readSandboxSettings([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string refusalOf(const std::map<std::string, std::string>& variables) {
  try {
    settingsOf(variables);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing was refused";
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

TEST(KernelProtections, ThatNobodyAskedForAreNotMissed) {
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

TEST(SandboxSettings, TakeSizesInUnits) {
  for (const auto& [text, bytes] : std::map<std::string, uint64_t>{{"536870912", 512u << 20},
                                                                   {"512MiB", 512u << 20},
                                                                   {"1 GiB", 1u << 30},
                                                                   {"65536KiB", 64u << 20}}) {
    EXPECT_EQ(settingsOf({{"ISOPOOL_WORKER_MEMORY", text}}).memory, bytes) << text;
  }
  EXPECT_EQ(settingsOf({{"ISOPOOL_WORKER_MEMORY", "0"}}).memory, std::nullopt);
  EXPECT_EQ(inWords(512u << 20), "512 MiB");
  EXPECT_EQ(inWords(1000), "1000 bytes");
}

TEST(SandboxSettings, TakePathsSeparatedByColons) {
  EXPECT_EQ(settingsOf({{"ISOPOOL_SANDBOX_READ", "/models:/data:"}}).readable,
            (std::vector<std::string>{"/models", "/data"}));
}

TEST(SandboxSettings, RefuseNonsenseInOneLineThatNamesTheVariable) {
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"ISOPOOL_SANDBOX", "paranoid"},
                                          {"ISOPOOL_SANDBOX_NETWORK", "maybe"},
                                          {"ISOPOOL_SANDBOX_READ", "models"},
                                          {"ISOPOOL_SANDBOX_WRITE", "/tmp:."},
                                          {"ISOPOOL_WORKER_MEMORY", "lots"},
                                          {"ISOPOOL_WORKER_FILES", "-1"},
                                          {"ISOPOOL_WORKER_PROCESSES", "10x"}}) {
    const std::string text = refusalOf({{name, value}});
    EXPECT_EQ(text.rfind(name + "=", 0), 0u) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
  EXPECT_TRUE(has(refusalOf({{"ISOPOOL_WORKER_MEMORY", "1MiB"}}), "a worker needs 16 MiB"));
  EXPECT_TRUE(has(refusalOf({{"ISOPOOL_WORKER_MEMORY", "99999999999GiB"}}), "makes no sense"));
}

TEST(SandboxSettings, RefuseLimitsThatTheLevelNoneWouldNotSet) {
  EXPECT_TRUE(has(refusalOf({{"ISOPOOL_SANDBOX", "none"}, {"ISOPOOL_WORKER_MEMORY", "1GiB"}}),
                  "ISOPOOL_SANDBOX=none sets no limits"));
}

}  // namespace
}  // namespace isopool::worker
