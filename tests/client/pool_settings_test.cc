// SPDX-License-Identifier: BSD-3-Clause
// PoolOptions become settings, without a supervisor.
#include "client/control/pool_settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/settings/setting_table.h"
#include "isopool/errors.h"
#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

using std::chrono::milliseconds;

std::string refusalOf(const PoolOptions& options) {
  try {
    client::settingsOf(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "not refused";
}

// Differs from the default in every field.
PoolOptions everythingElse() {
  PoolOptions options;
  options.python = "/srv/venv/bin/python";
  options.preloadModules = {"json", "decimal"};
  options.preloadLibraries = {"/srv/one.so"};
  options.workerPreloadLibraries = {"/srv/two.so"};
  options.threadsPerWorker = 2;
  options.gpus = {"0", "GPU-8e2f"};
  options.spares = 2;
  options.restartLimit = 3;
  options.restartWindow = milliseconds(1500);
  options.quarantine = std::chrono::minutes(2);
  options.recycle = {.calls = 5,
                     .age = std::chrono::hours(1),
                     .memoryGrowth = 1 << 20,
                     .jitterPercent = 0,
                     .patience = std::chrono::seconds(7)};
  options.zygoteTimeout = std::chrono::seconds(8);
  options.forkTimeout = std::chrono::seconds(9);
  options.workerTimeout = std::chrono::seconds(10);
  options.stoppedTimeout = std::chrono::seconds(10);
  options.outputArena = 1 << 20;
  options.outputArenaLimit = 1 << 21;
  options.workerMemory = 1 << 30;
  options.sandbox = SandboxLevel::kStrict;
  options.sandboxRead = {"/srv/read"};
  options.sandboxWrite = {"/srv/write"};
  options.sandboxNetwork = true;
  options.workerFiles = 100;
  options.workerProcesses = 50;
  options.supervisorLogLevel = "error";
  options.supervisorLogFormat = "json";
  options.coreDumps = true;
  options.noKill = true;
  options.workerProgram = "/srv/isopool-worker";
  return options;
}

TEST(PoolSettings, OptionsThatSetNothingAskForNothing) {
  const client::PoolSettings settings = client::settingsOf(PoolOptions());
  EXPECT_EQ(settings.supervisorDefaults, std::vector<std::string>{});
  EXPECT_TRUE(settings.address.empty());
  EXPECT_EQ(settings.cleanupTimeout, std::chrono::seconds(30));
  EXPECT_GE(settings.workers, 1u);
}

// A setting of a private supervisor without a field could not be chosen in code.
TEST(PoolSettings, EverySettingOfAPrivateSupervisorHasAField) {
  const client::PoolSettings settings = client::settingsOf(everythingElse());
  std::set<std::string> asked;
  for (const std::string& each : settings.supervisorDefaults) {
    asked.insert(each.substr(0, each.find('=')));
  }
  for (const base::Setting& setting : base::settingTable()) {
    if (setting.key.empty() || setting.scope == base::Scope::kShared) continue;
    EXPECT_TRUE(asked.contains(std::string(setting.key))) << setting.key;
  }
}

TEST(PoolSettings, ValuesAreSpelledAsAnOperatorWouldWriteThem) {
  const auto asked = client::settingsOf(everythingElse()).supervisorDefaults;
  for (const char* text :
       {"preload_modules=json,decimal", "gpus=0,GPU-8e2f", "restart_window=1500ms", "quarantine=2m",
        "output_arena=1MiB", "sandbox.level=strict", "sandbox.read=/srv/read", "core_dumps=1"}) {
    EXPECT_TRUE(std::find(asked.begin(), asked.end(), text) != asked.end()) << text;
  }
}

TEST(PoolSettings, AnInvalidFieldIsNamed) {
  PoolOptions options;
  options.spares = 65;
  EXPECT_EQ(refusalOf(options), "PoolOptions::spares: '65' is not a whole number between 0 and 64");
  options = {};
  options.preloadModules = {"json,decimal"};
  EXPECT_EQ(refusalOf(options),
            "PoolOptions::preloadModules: 'json,decimal' is empty or contains ','");
  options = {};
  options.quarantine = milliseconds(-1);
  EXPECT_EQ(refusalOf(options), "PoolOptions::quarantine: a time can't be negative");
  options = {};
  options.workers = 1025;
  EXPECT_EQ(refusalOf(options), "PoolOptions::workers: 1025 is not a number from 0 to 1024");
  options = {};
  options.variables = {{"ISOPOOL_SPARES", "2"}};
  EXPECT_EQ(refusalOf(options),
            "PoolOptions::variables[\"ISOPOOL_SPARES\"]: isopool's settings are fields");
  options = {};
  options.variables = {{"A=B", "2"}};
  EXPECT_NE(refusalOf(options).find("is not the name of a variable"), std::string::npos);
  options = {};
  options.supervisorLogLevel = "loud";
  EXPECT_NE(refusalOf(options).find("PoolOptions::supervisorLogLevel: 'loud' is not"),
            std::string::npos);
}

TEST(PoolSettings, AFieldThatASharedSupervisorWouldIgnoreIsRefused) {
  PoolOptions options;
  options.sharedSupervisor = "/run/isopool.sock";
  EXPECT_EQ(refusalOf(options), "not refused");
  options.spares = 2;
  EXPECT_EQ(refusalOf(options),
            "PoolOptions::spares: the operator of the shared supervisor /run/isopool.sock decides "
            "this; leave the field at its default");
  options = {};
  options.sharedSupervisor = "/run/isopool.sock";
  options.variables = {{"A", "2"}};
  EXPECT_NE(refusalOf(options).find("variables[\"A\"]: the operator"), std::string::npos);
  options.variables = {};
  options.cleanupTimeout = milliseconds(5);
  options.pythonPaths = {"/srv/modules"};
  options.allowOtherPython = true;
  EXPECT_EQ(refusalOf(options), "not refused");
}

// The operator has moved the program to a shared supervisor: what the program chose for its own
// workers has no effect.
TEST(PoolSettings, WithASocketInTheEnvironmentNothingIsAskedOfTheSupervisor) {
  const ScopedVariable socket("ISOPOOL_SOCKET=/run/isopool.sock");
  const client::PoolSettings settings = client::settingsOf(everythingElse());
  EXPECT_EQ(settings.address, "/run/isopool.sock");
  EXPECT_EQ(settings.supervisorDefaults, std::vector<std::string>{});
  EXPECT_FALSE(settings.noKill);
}

TEST(PoolSettings, AVariableOverridesAFieldThatThisProcessUses) {
  const ScopedVariable timeout("ISOPOOL_CLEANUP_TIMEOUT=250ms");
  PoolOptions options;
  options.cleanupTimeout = std::chrono::seconds(3);
  const client::PoolSettings settings = client::settingsOf(options);
  EXPECT_EQ(settings.cleanupTimeout, milliseconds(250));
  const auto reported =
      std::find_if(settings.own.begin(), settings.own.end(),
                   [](const PoolSetting& each) { return each.name == "ISOPOOL_CLEANUP_TIMEOUT"; });
  ASSERT_NE(reported, settings.own.end());
  EXPECT_EQ(reported->value, "250ms");
  EXPECT_EQ(reported->source, "environment ISOPOOL_CLEANUP_TIMEOUT");
}

TEST(PoolSettings, FoldersAreRelativeToWhereTheOptionsAreUsed) {
  PoolOptions options;
  options.pythonPaths = {"modules", ""};
  EXPECT_EQ(client::settingsOf(options).pythonPaths,
            std::vector<std::string>{std::filesystem::current_path() / "modules"});
}

TEST(PoolSettings, PoolsWithEqualOptionsHaveOneIdentity) {
  const std::string plain = client::settingsOf(PoolOptions()).identity();
  PoolOptions options;
  options.workers = 7;  // a pool's own
  EXPECT_EQ(client::settingsOf(options).identity(), plain);
  std::set<std::string> identities{plain};
  options.spares = 2;
  identities.insert(client::settingsOf(options).identity());
  options = {};
  options.variables = {{"A", "2"}};
  identities.insert(client::settingsOf(options).identity());
  options = {};
  options.pythonPaths = {"/A"};
  identities.insert(client::settingsOf(options).identity());
  options = {};
  options.cleanupTimeout = milliseconds(5);
  identities.insert(client::settingsOf(options).identity());
  EXPECT_EQ(identities.size(), 5u);
}

}  // namespace
}  // namespace isopool::tests
