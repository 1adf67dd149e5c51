// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/pool/death_report.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace isopool::tests {
namespace {

using supervisor::DeathReport;
using supervisor::Slot;

DeathReport reportOf(std::optional<Slot> slot) {
  DeathReport report;
  report.name = "worker 0 (pid 11) of shared pool";
  report.slot = slot;
  return report;
}

std::string textOf(const DeathReport& report, std::optional<pid_t> replacement) {
  return report.text("SIGKILL", "killed from outside", replacement);
}

constexpr const char* kDeath =
    "worker 0 (pid 11) of shared pool died: SIGKILL (killed from outside)";
const Slot kSlot{base::PoolId(1), 0};

TEST(DeathReport, NamesTheReplacementOrWhenItComes) {
  DeathReport report = reportOf(kSlot);
  EXPECT_EQ(textOf(report, 12), std::string(kDeath) + "; replaced by pid 12");
  EXPECT_EQ(textOf(report, 0), std::string(kDeath) + "; a replacement is starting");
  report.vacancy = base::Milliseconds(500);
  EXPECT_EQ(textOf(report, 0), std::string(kDeath) + "; its slot stays empty for 500 ms");
  report.early = true;
  EXPECT_EQ(textOf(report, 12),
            std::string(kDeath) + ", before it completed a call; replaced by pid 12");
}

TEST(DeathReport, OfAGroupThatStartsNoWorkersPromisesNone) {
  EXPECT_EQ(textOf(reportOf(kSlot), std::nullopt), kDeath);
  EXPECT_EQ(textOf(reportOf(std::nullopt), std::nullopt), kDeath);
}

TEST(DeathReport, OfASpareAnnouncesTheNextOne) {
  DeathReport report = reportOf(std::nullopt);
  EXPECT_EQ(textOf(report, 0), std::string(kDeath) + "; another spare is started");
  report.vacancy = base::Milliseconds(500);
  EXPECT_EQ(textOf(report, 0), std::string(kDeath) + "; another spare is started in 500 ms");
}

TEST(DeathReport, OfAWorkerThatRetiredSaysThatItIsReplaced) {
  DeathReport report = reportOf(kSlot);
  report.replaced = true;
  EXPECT_EQ(textOf(report, 0), std::string(kDeath) + "; another worker had already replaced it");
}

TEST(CrashLog, ShowsACrashOfTheThreadOfTheCallOnlyIfPythonsLastThreadIsTheCurrentOne) {
  const std::string fatal = "a line of the model\nFatal Python error: Segmentation fault\n\n";
  const std::string current = "Current thread 0x00007f1 (most recent call first):\n";
  const std::string other = "Thread 0x00007f2 (most recent call first):\n";
  const std::string frame = "  File \"app.py\", line 3 in f\n";
  const std::string modules = "\nExtension modules: numpy (total: 1)\n";
  const auto shows = [](const std::string& text) {
    const base::Fd log(::memfd_create("crash log", MFD_CLOEXEC));
    EXPECT_EQ(::write(log.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    return supervisor::crashedInCall(log);
  };
  EXPECT_TRUE(shows(fatal + current + frame + modules));
  EXPECT_TRUE(shows(fatal + other + frame + "\n" + current + frame + modules));
  EXPECT_FALSE(shows(fatal + current + frame + "\n" + other + frame + modules));
  EXPECT_FALSE(shows(fatal + other + frame));
  EXPECT_FALSE(shows(fatal + current + "  Garbage-collecting\n" + frame));
  EXPECT_FALSE(shows(fatal + current + frame + "...\n"));
  // An earlier crash, of a process that user code forked.
  EXPECT_FALSE(shows(fatal + current + frame + fatal + other + frame));
  EXPECT_FALSE(shows(""));
}

TEST(CrashLog, HasALastLineThatCannotForgeALine) {
  const base::Fd log(::memfd_create("crash log", MFD_CLOEXEC));
  const auto append = [&](const std::string& text) {
    ASSERT_EQ(::write(log.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  EXPECT_EQ(supervisor::lastLineOf(log), "");
  append("first\nlast\n\n");
  EXPECT_EQ(supervisor::lastLineOf(log), "last");
  append("a\rb\x1b[2J\n");
  EXPECT_EQ(supervisor::lastLineOf(log), "a?b?[2J");
  append(std::string(2000, 'x'));
  EXPECT_EQ(supervisor::lastLineOf(log), std::string(512, 'x'));
}

}  // namespace
}  // namespace isopool::tests
