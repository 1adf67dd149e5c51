// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/config/settings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/settings/setting_default.h"
#include "base/settings/setting_text.h"
#include "supervisor/config/option_fields.h"
#include "supervisor/config/settings_report.h"
#include "testing/one_processor.h"

namespace isopool::supervisor {
namespace {

class SettingsTest : public testing::Test {
 protected:
  SettingsTest()
      : path_(std::filesystem::temp_directory_path() /
              ("isopool-settings-" + std::to_string(::getpid()) + ".toml")) {
    clearEnvironment();
  }
  ~SettingsTest() override {
    clearEnvironment();
    std::filesystem::remove(path_);
  }

  void writeFile(const std::string& text) { std::ofstream(path_) << text; }

  static std::variant<Settings, OptionsRefused> settings(std::vector<const char*> words) {
    words.insert(words.begin(), "isopoold");
    return Settings::parse(static_cast<int>(words.size()), words.data());
  }
  static Options accepted(const std::vector<const char*>& words) {
    const auto parsed = settings(words);
    if (const auto* refused = std::get_if<OptionsRefused>(&parsed)) {
      ADD_FAILURE() << refused->text;
      return {};
    }
    return std::get<Settings>(parsed).options();
  }
  static std::string refused(const std::vector<const char*>& words) {
    const auto parsed = settings(words);
    const auto* refused = std::get_if<OptionsRefused>(&parsed);
    return refused != nullptr ? refused->text : "accepted";
  }

  Options acceptedFile(const std::string& text) {
    writeFile(text);
    return accepted({"--config", path_.c_str()});
  }
  /// The refusal of a file with this text, without the file's name.
  std::string refusedFile(const std::string& text) {
    writeFile(text);
    const std::string said = refused({"--config", path_.c_str()});
    const std::string start = "isopoold: " + path_;
    return said.starts_with(start) ? said.substr(start.size()) : said;
  }
  std::string sourceOf(const Settings& all, const std::string& key) {
    for (const Settings::Shown& each : all.shown()) {
      if (each.key == key) return each.source;
    }
    return "not there";
  }

  const std::string path_;

 private:
  static void clearEnvironment() {
    ::unsetenv("ISOPOOL_CONFIG");
    for (const base::Setting& setting : base::settingTable()) {
      ::unsetenv(std::string(setting.variable).c_str());
    }
  }
};

TEST_F(SettingsTest, HaveDefaults) {
  const Options options = accepted({});
  EXPECT_EQ(options.spares, 1u);
  EXPECT_EQ(options.restart.deaths, 10u);
  EXPECT_EQ(options.outputArena, 4u << 20);
  EXPECT_EQ(options.forkTimeout, base::Milliseconds(5000));
  EXPECT_NE(options.worker.find("/isopool-worker"), std::string::npos);
  EXPECT_EQ(options.limits.memory, 0u);
  EXPECT_EQ(options.sandbox, "default");
  EXPECT_EQ(options.logLevel, base::LogLevel::kWarning);
  EXPECT_TRUE(options.workerEnvironment.empty());
}

TEST_F(SettingsTest, OfTheTableAreWhatOptionsHaveFromTheStart) {
  const Options fromTable = accepted({});
  const Options plain;
  EXPECT_EQ(fromTable.spares, plain.spares);
  EXPECT_EQ(fromTable.restart.deaths, plain.restart.deaths);
  EXPECT_EQ(fromTable.restart.window, plain.restart.window);
  EXPECT_EQ(fromTable.restart.quarantine, plain.restart.quarantine);
  EXPECT_EQ(fromTable.outputArena, plain.outputArena);
  EXPECT_EQ(base::writtenDefault(*base::findSetting("output_arena_limit")).number,
            plain.outputArenaLimit);
  EXPECT_EQ(fromTable.zygoteTimeout, plain.zygoteTimeout);
  EXPECT_EQ(fromTable.forkTimeout, plain.forkTimeout);
  EXPECT_EQ(fromTable.workerTimeout, plain.workerTimeout);
  EXPECT_EQ(fromTable.handshakeTimeout, plain.handshakeTimeout);
  EXPECT_EQ(fromTable.drainTimeout, plain.drainTimeout);
  EXPECT_EQ(fromTable.grace, plain.grace);
  EXPECT_EQ(fromTable.maxClients, plain.maxClients);
  EXPECT_EQ(fromTable.recycling.jitterPercent, plain.recycling.jitterPercent);
  EXPECT_EQ(fromTable.recycling.patience, plain.recycling.patience);
  EXPECT_EQ(fromTable.sandbox, plain.sandbox);
  EXPECT_EQ(fromTable.logFormat, plain.logFormat);
}

TEST_F(SettingsTest, HaveAsManyWorkersAsProcessorsThatWeMayUse) {
  const std::vector<int> processors = tests::usableProcessors();
  EXPECT_EQ(accepted({}).workers, processors.size());
  const tests::OnOneProcessor one(processors.front());
  EXPECT_EQ(accepted({}).workers, 1u);
}

TEST_F(SettingsTest, AFlagWinsOverTheEnvironmentAndThatOverTheFile) {
  writeFile("spares = 5\n");
  EXPECT_EQ(accepted({"--config", path_.c_str()}).spares, 5u);
  ::setenv("ISOPOOL_SPARES", "3", 1);
  EXPECT_EQ(accepted({"--config", path_.c_str()}).spares, 3u);
  EXPECT_EQ(accepted({"--config", path_.c_str(), "--spares", "0"}).spares, 0u);
  ::setenv("ISOPOOL_SPARES", "", 1);
  EXPECT_EQ(accepted({"--config", path_.c_str()}).spares, 5u) << "empty counts as not set";
}

TEST_F(SettingsTest, TellWhereEachIsFrom) {
  writeFile("\ngrace = \"2s\"\nspares = 2\n\n[limits]\ncalls = 9\n");
  ::setenv("ISOPOOL_SPARES", "3", 1);
  const auto parsed = settings({"--config", path_.c_str(), "--workers", "7"});
  ASSERT_TRUE(std::holds_alternative<Settings>(parsed));
  const Settings& all = std::get<Settings>(parsed);
  EXPECT_EQ(sourceOf(all, "workers"), "flag --workers");
  EXPECT_EQ(sourceOf(all, "spares"), "environment ISOPOOL_SPARES");
  EXPECT_EQ(sourceOf(all, "grace"), "file " + path_ + ":2");
  EXPECT_EQ(sourceOf(all, "limits.calls"), "file " + path_ + ":6");
  EXPECT_EQ(sourceOf(all, "quarantine"), "default");

  const std::string text =
      refused({"--config", path_.c_str(), "--workers", "7", "--show-settings"});
  EXPECT_NE(text.find("flag --workers"), std::string::npos) << text;
  EXPECT_NE(text.find("file " + path_ + ":6"), std::string::npos) << text;
  const std::string json = refused({"--workers", "7", "--show-settings", "--json"});
  EXPECT_NE(json.find(R"({"key":"workers","value":7,"source":"flag --workers",)"),
            std::string::npos)
      << json;
}

TEST_F(SettingsTest, NoKillDisablesTimeouts) {
  ::setenv("ISOPOOL_NO_KILL", "1", 1);
  const Options options = accepted({"--fork-timeout", "1s"});
  for (const auto& each : {options.zygoteTimeout, options.forkTimeout, options.workerTimeout}) {
    EXPECT_GE(each, std::chrono::hours(24));
  }
  ::setenv("ISOPOOL_NO_KILL", "0", 1);
  EXPECT_EQ(accepted({"--fork-timeout", "1s"}).forkTimeout, base::Milliseconds(1000));
  EXPECT_TRUE(accepted({"--no-kill"}).noKill);
}

TEST_F(SettingsTest, UnderstandUnits) {
  EXPECT_EQ(accepted({"--quarantine", "250ms"}).restart.quarantine, base::Milliseconds(250));
  EXPECT_EQ(accepted({"--quarantine", "2m"}).restart.quarantine, base::Milliseconds(120'000));
  EXPECT_EQ(accepted({"--quarantine", "7"}).restart.quarantine, base::Milliseconds(7'000));
  EXPECT_EQ(accepted({"--recycle-age", "36h"}).recycling.age, std::chrono::hours(36));
  EXPECT_EQ(accepted({"--output-arena", "8MiB"}).outputArena, 8u << 20);
}

TEST_F(SettingsTest, RefuseNonsenseInOneLineThatNamesIt) {
  EXPECT_EQ(refused({"--quarantine", "soon"}),
            "isopoold: --quarantine: 'soon' is not a TIME like 500ms, 30s or 2m");
  EXPECT_EQ(refused({"--output-arena", "5Q"}),
            "isopoold: --output-arena: '5Q' is not a SIZE like 512KiB, 8MiB or 1GiB");
  EXPECT_EQ(refused({"--output-arena", "1KiB"}),
            "isopoold: --output-arena: '1KiB' is not between 64KiB and 16384GiB");
  EXPECT_EQ(refused({"--quarantine", "99999999999999999h"}),
            "isopoold: --quarantine: '99999999999999999h' is not between 1ms and 24h");
  EXPECT_EQ(refused({"--spares", "-1"}),
            "isopoold: --spares: '-1' is not a whole number between 0 and 64");
  EXPECT_EQ(refused({"--log-level", "loud"}),
            "isopoold: --log-level: 'loud' is not one of debug, info, warning, error, off");
  EXPECT_NE(refused({"--frobnicate"}).find("--frobnicate"), std::string::npos);
  EXPECT_EQ(refused({"--quarantin", "1s"}),
            "isopoold: --quarantin is not a flag; the nearest is --quarantine");
  EXPECT_NE(refused({"--output-arena", "8MiB", "--output-arena-limit", "4MiB"})
                .find("ISOPOOL_OUTPUT_ARENA_LIMIT"),
            std::string::npos);
  EXPECT_EQ(refused({"--socket-group", "no such group"}),
            "isopoold: --socket-group: 'no such group' is not a group of this system");
  EXPECT_EQ(refused({"--listen", ""}), "isopoold: --listen: '' is not a path");
  EXPECT_NE(refused({"--listen", std::string(108, 'x').c_str()}).find("107 bytes"),
            std::string::npos);
}

TEST_F(SettingsTest, NameTheVariableThatAValueCameFrom) {
  ::setenv("ISOPOOL_QUARANTINE", "soon", 1);
  EXPECT_EQ(refused({}),
            "isopoold: ISOPOOL_QUARANTINE=soon: 'soon' is not a TIME like 500ms, 30s or 2m");
}

TEST_F(SettingsTest, NameFileAndLineAndWhatWouldBeRight) {
  EXPECT_EQ(refusedFile("\nspares = 99\n"),
            ":2: spares: '99' is not a whole number between 0 and 64");
  EXPECT_EQ(refusedFile("spares = \"3\"\n"),
            ":1: spares: '3' is a text, because it is in quotes, and not a whole number between 0 "
            "and 64");
  EXPECT_EQ(refusedFile("no_kill = \"true\"\n"),
            ":1: no_kill: 'true' is a text, because it is in quotes, and not true or false");
  EXPECT_EQ(refusedFile("[class.a]\nshare = \"2\"\n"),
            ":2: class.a.share: '2' is a text, because it is in quotes, and not a whole number "
            "between 1 and 1000");
  EXPECT_EQ(refusedFile("grace = true\n"),
            ":1: grace: true is not a TIME like \"500ms\", \"30s\" or \"2m\"");
  EXPECT_EQ(refusedFile("preload_modules = \"a\"\n"),
            ":1: preload_modules: 'a' is not a list like [\"one\", \"two\"]");
  EXPECT_EQ(refusedFile("no_kill = 1\n"), ":1: no_kill: 1 is not true or false");
  EXPECT_EQ(refusedFile("listen = 3\n"), ":1: listen: 3 is not a path, in quotes");
  EXPECT_EQ(refusedFile("limits = 3\n"), ":1: limits is 3, but [limits] must be a table");
  EXPECT_EQ(refusedFile("spares = 1\nspares = 2\n").substr(0, 4), ":2: ");
  EXPECT_EQ(refusedFile("spares =\n").substr(0, 4), ":1: ");
  EXPECT_EQ(refusedFile("[environment]\nOMP_NUM_THREADS = 4\n"),
            ":2: environment.OMP_NUM_THREADS: follows the setting threads of this file");
  EXPECT_EQ(refusedFile("[environment]\nISOPOOL_SPARES = 4\n"),
            ":2: environment.ISOPOOL_SPARES: is the setting spares of this file");
  EXPECT_EQ(refusedFile("[environment]\nISOPOOL_WORKRES = \"2\"\n"),
            ":2: environment.ISOPOOL_WORKRES: is not a setting; the nearest is ISOPOOL_WORKERS");
}

TEST_F(SettingsTest, NameTheNearestKeyToAnUnknownOne) {
  EXPECT_EQ(refusedFile("workres = 3\n"), ":1: workres is not a setting; the nearest is workers");
  EXPECT_EQ(refusedFile("[limit]\nmodels = 3\n"),
            ":1: limit is not a setting; the nearest is limits");
  EXPECT_EQ(refusedFile("\nmemory_growth = 3\n"),
            ":2: memory_growth is not a setting; the nearest is recycle.memory_growth");
  EXPECT_EQ(refusedFile("[class.a]\nshares = 3\n"),
            ":2: class.a.shares is not a setting; the nearest is class.a.share");
}

TEST_F(SettingsTest, RefuseAFileThatCannotBeRead) {
  EXPECT_EQ(refused({"--config", "/no/such/file"}),
            "isopoold: /no/such/file: No such file or directory");
  EXPECT_EQ(
      refused({"--config", "/tmp"}),
      "isopoold: /tmp: is a directory and not a regular file: only a regular file can be read");
  ::setenv("ISOPOOL_CONFIG", "/no/such/file", 1);
  EXPECT_EQ(refused({}), "isopoold: /no/such/file: No such file or directory");
}

TEST_F(SettingsTest, TakeAnEmptyFile) { EXPECT_EQ(acceptedFile("").spares, 1u); }

TEST_F(SettingsTest, HaveClassesInTheOrderOfTheFile) {
  const Options options = acceptedFile(
      "[class.zebra]\nuser = \"root\"\nshare = 3\n"
      "[class.ape]\nuser = 4321\nprogram = \"frontend\"\ndedicated_workers = 2\n");
  ASSERT_EQ(options.classes.size(), 2u);
  EXPECT_EQ(options.classes[0].name, "zebra");
  EXPECT_EQ(options.classes[0].userId, 0u);
  EXPECT_EQ(options.classes[0].share, 3u);
  EXPECT_EQ(options.classes[1].name, "ape");
  EXPECT_EQ(options.classes[1].userId, 4321u);
  EXPECT_EQ(options.classes[1].program, "frontend");
  EXPECT_EQ(options.classes[1].share, 1u);
  EXPECT_EQ(options.classes[1].dedicatedWorkers, 2u);
  EXPECT_EQ(refusedFile("[class.a]\ncall_time = \"5ms\"\n"),
            ":2: class.a.call_time: '5ms' is not 0 or between 10ms and 24h");
  EXPECT_EQ(refusedFile("[class.a]\nuser = \"nobody at all\"\n"),
            ":2: class.a.user: 'nobody at all' is not a user of this system");
  EXPECT_EQ(refusedFile("[class.shared]\ndedicated_workers = 1\n"),
            ":1: class.shared: 'shared' is the name of the workers that serve all programs without "
            "dedicated workers; give the class another name");
  EXPECT_EQ(
      refusedFile("[class.none]\nshare = 2\n"),
      ":1: class.none: 'none' is the name of all programs without a class in the metrics; give "
      "the class another name");
  EXPECT_EQ(refusedFile("[class.a]\nshare = 0\n"),
            ":2: class.a.share: 0 is not a whole number between 1 and 1000");
}

TEST_F(SettingsTest, OfWorkersAreHandedOnWhereverTheyComeFrom) {
  ::setenv("ISOPOOL_SANDBOX", "strict", 1);
  writeFile(
      "preload_modules = [\"json\", \"csv\"]\nno_kill = true\n"
      "[sandbox]\nlevel = \"none\"\nread = [\"/a\", \"/b\"]\n"
      "[environment]\nHOME = \"/srv\"\nNUMBER = 7\n");
  const Options options = accepted({"--config", path_.c_str(), "--worker-memory", "2GiB"});
  std::vector<std::string> ours = options.workerEnvironment;
  ASSERT_FALSE(ours.empty());
  ours.pop_back();  // what a strict sandbox adds, see below
  EXPECT_EQ(ours,
            (std::vector<std::string>{"HOME=/srv", "NUMBER=7", "ISOPOOL_SANDBOX=strict",
                                      "ISOPOOL_SANDBOX_READ=/a:/b", "ISOPOOL_WORKER_MEMORY=2GiB",
                                      "ISOPOOL_PRELOAD_MODULES=json,csv", "ISOPOOL_NO_KILL=1"}));
  EXPECT_EQ(options.sandbox, "strict") << "the environment wins over the file";
}

TEST_F(SettingsTest, OfWorkersAreHandedOnInOneSpelling) {
  ::setenv("ISOPOOL_SANDBOX_NETWORK", "yes", 1);
  ::setenv("ISOPOOL_SANDBOX_READ", "/models:/data:", 1);
  ::setenv("ISOPOOL_WORKER_MEMORY", "536870912", 1);
  ::setenv("ISOPOOL_CORE_DUMPS", "on", 1);
  EXPECT_EQ(
      accepted({}).workerEnvironment,
      (std::vector<std::string>{"ISOPOOL_SANDBOX_READ=/models:/data", "ISOPOOL_SANDBOX_NETWORK=1",
                                "ISOPOOL_WORKER_MEMORY=512MiB", "ISOPOOL_CORE_DUMPS=1"}));
}

TEST_F(SettingsTest, OfWorkersAreRefusedBeforeAWorkerStarts) {
  const std::map<std::string, std::string> wrong{
      {"ISOPOOL_SANDBOX", "paranoid"},     {"ISOPOOL_SANDBOX_NETWORK", "maybe"},
      {"ISOPOOL_SANDBOX_READ", "models"},  {"ISOPOOL_SANDBOX_WRITE", "/tmp:."},
      {"ISOPOOL_WORKER_MEMORY", "1MiB"},   {"ISOPOOL_WORKER_FILES", "-1"},
      {"ISOPOOL_WORKER_PROCESSES", "10x"}, {"ISOPOOL_CORE_DUMPS", "some"}};
  for (const auto& [name, value] : wrong) {
    ::setenv(name.c_str(), value.c_str(), 1);
    const std::string text = refused({});
    EXPECT_EQ(text.find("isopoold: " + name + "=" + value + ": "), 0u) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    ::unsetenv(name.c_str());
  }
  EXPECT_EQ(refused({"--sandbox-write", "/tmp:."}),
            "isopoold: --sandbox-write: '.' is not a path that begins with /");
}

TEST_F(SettingsTest, OfLimitsThatTheSandboxLevelNoneWouldNotSetAreRefused) {
  EXPECT_EQ(
      refused({"--sandbox", "none", "--worker-memory", "1GiB"}),
      "isopoold: --worker-memory: the sandbox level none sets no limits; remove this limit, or "
      "choose the level default");
  EXPECT_EQ(accepted({"--sandbox", "none", "--worker-memory", "0"}).sandbox, "none");
}

TEST_F(SettingsTest, OfSupervisorsAllHaveAFieldOfOptions) {
  for (const base::Setting& setting : base::settingTable()) {
    const bool ours = setting.scope == base::Scope::kSupervisor ||
                      setting.scope == base::Scope::kShared ||
                      setting.scope == base::Scope::kSupervisorAndWorkers;
    const auto value =
        base::parseSetting(setting, setting.fallback.empty() ? setting.example : setting.fallback);
    if (!ours) continue;
    Options options;
    ASSERT_TRUE(std::holds_alternative<base::SettingValue>(value)) << setting.key;
    EXPECT_TRUE(setOption(options, setting.key, std::get<base::SettingValue>(value)))
        << setting.key;
  }
}

TEST_F(SettingsTest, TellAStrictZygoteWhichFilesTheSupervisorRunsAndReads) {
  writeFile("worker_program = \"/opt/worker\"\n[sandbox]\nlevel = \"strict\"\n");
  const Options options = accepted({"--config", path_.c_str()});
  const std::string own = std::filesystem::read_symlink("/proc/self/exe").string();
  EXPECT_EQ(options.workerEnvironment.back(),
            "ISOPOOL_SUPERVISOR_FILES=" + own + ":/opt/worker:" + path_);
}

TEST_F(SettingsTest, OfSharedSupervisorsAreNotForPrivatePools) {
  EXPECT_EQ(refused({"--private", "--listen", "/tmp/x"}),
            "isopoold: --listen is for a shared supervisor, not for one with --private");
  EXPECT_NE(refused({"--private", "--max-clients", "3"}).find("--private"), std::string::npos);
  ::setenv("ISOPOOL_LISTEN", "/tmp/x", 1);
  const Options options = accepted({"--private"});
  EXPECT_TRUE(options.privatePool);
  EXPECT_EQ(options.listen, "") << "the environment may be meant for another supervisor";
}

TEST_F(SettingsTest, CanBeCheckedWithoutAStart) {
  writeFile("spares = 2\n");
  const auto right = settings(
      {"--config", path_.c_str(), "--listen", "/tmp/s", "--worker", "/bin/true", "--check"});
  EXPECT_EQ(std::get<OptionsRefused>(right).exitCode, 0);
  EXPECT_EQ(std::get<OptionsRefused>(right).text,
            "isopoold: the settings are valid (" + path_ + ")");
  writeFile("spares = 99\n");
  EXPECT_EQ(std::get<OptionsRefused>(
                settings({"--config", path_.c_str(), "--worker", "/bin/true", "--check"}))
                .exitCode,
            2);
}

TEST_F(SettingsTest, HelpNamesEveryFlagAndVariable) {
  const std::string help = refused({"--help"});
  for (const base::Setting& setting : base::settingTable()) {
    if (setting.flag.empty()) continue;
    EXPECT_NE(help.find(setting.flag), std::string::npos) << setting.flag;
    EXPECT_NE(help.find(setting.variable), std::string::npos) << setting.variable;
  }
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    // Newer versions of CLI11 leave the blank at which they break a line.
    line.erase(line.find_last_not_of(' ') + 1);
    EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST_F(SettingsTest, AreSpelledAsTheyAreRead) {
  for (const base::Setting& setting : base::settingTable()) {
    for (const std::string_view text : {setting.fallback, setting.example}) {
      if (text.empty() || setting.key.empty()) continue;
      const auto parsed = base::parseSetting(setting, text);
      ASSERT_TRUE(std::holds_alternative<base::SettingValue>(parsed))
          << setting.key << ": " << std::get<std::string>(parsed);
      const base::SettingValue& value = std::get<base::SettingValue>(parsed);
      EXPECT_EQ(std::get<base::SettingValue>(
                    base::parseSetting(setting, base::spellSetting(setting, value))),
                value)
          << setting.key;
    }
  }
}

TEST_F(SettingsTest, TheExampleFileIsValidAndSetsNothing) {
  writeFile(exampleSettingsFile());
  const auto parsed = settings({"--config", path_.c_str()});
  ASSERT_TRUE(std::holds_alternative<Settings>(parsed));
  for (const Settings::Shown& each : std::get<Settings>(parsed).shown()) {
    EXPECT_EQ(each.source, "default") << each.key;
  }
}

TEST_F(SettingsTest, EveryKeyOfTheExampleFileIsValidWithWhatStandsThere) {
  std::istringstream example(exampleSettingsFile());
  std::string text;
  for (std::string line; std::getline(example, line);) {
    if (line.starts_with("# ")) line.clear();
    if (line.starts_with("#socket_group")) line = "#socket_group = \"root\"";
    if (line.starts_with("#user")) line = "#user = \"root\"";
    text += (line.starts_with("#") ? line.substr(1) : line) + "\n";
  }
  writeFile(text);
  const auto parsed = settings({"--config", path_.c_str()});
  ASSERT_TRUE(std::holds_alternative<Settings>(parsed)) << std::get<OptionsRefused>(parsed).text;
  for (const Settings::Shown& each : std::get<Settings>(parsed).shown()) {
    EXPECT_TRUE(each.source.starts_with("file ")) << each.key << " is not in the example file";
  }
}

class ReloadTest : public SettingsTest {
 protected:
  Settings started(const std::string& file, std::vector<const char*> words = {}) {
    writeFile(file);
    words.insert(words.end(), {"--config", path_.c_str()});
    return std::get<Settings>(settings(words));
  }
  Settings::Changes reloaded(Settings& all, const std::string& file) {
    writeFile(file);
    auto result = all.reload();
    if (const auto* refused = std::get_if<OptionsRefused>(&result)) {
      ADD_FAILURE() << refused->text;
      return {};
    }
    return std::get<Settings::Changes>(result);
  }
  using Keys = std::vector<std::string>;
};

TEST_F(ReloadTest, TakesUpWhatCanChangeAndNamesWhatCannot) {
  Settings all = started("grace = \"1s\"\nspares = 1\n[limits]\ncalls = 5\n");
  const auto changes = reloaded(all, "grace = \"3s\"\nspares = 4\n[limits]\ncalls = 8\n");
  EXPECT_EQ(changes.taken, (Keys{"grace", "limits.calls"}));
  EXPECT_EQ(changes.needRestart, (Keys{"spares"}));
  EXPECT_EQ(all.options().grace, base::Milliseconds(3000));
  EXPECT_EQ(all.options().limits.calls, 8u);
  EXPECT_EQ(all.options().spares, 1u);
}

TEST_F(ReloadTest, NamesWhatNeedsARestartUntilThereIsOne) {
  Settings all = started("spares = 1\n");
  EXPECT_EQ(reloaded(all, "spares = 4\n").needRestart, (Keys{"spares"}));
  EXPECT_EQ(reloaded(all, "spares = 4\n").needRestart, (Keys{"spares"}));
  EXPECT_EQ(reloaded(all, "spares = 1\n").needRestart, (Keys{}));
}

TEST_F(ReloadTest, GoesBackToTheDefaultOfWhatIsNoLongerInTheFile) {
  Settings all = started("max_clients = 5\n");
  EXPECT_EQ(reloaded(all, "").taken, (Keys{"max_clients"}));
  EXPECT_EQ(all.options().maxClients, 1024u);
}

TEST_F(ReloadTest, LeavesAloneWhatAFlagOrTheEnvironmentSays) {
  ::setenv("ISOPOOL_MAX_CLIENTS", "7", 1);
  Settings all = started("", {"--grace", "9s"});
  EXPECT_EQ(reloaded(all, "grace = \"1s\"\nmax_clients = 3\n").taken, (Keys{}));
  EXPECT_EQ(all.options().grace, base::Milliseconds(9000));
  EXPECT_EQ(all.options().maxClients, 7u);
}

TEST_F(ReloadTest, ChangesNothingWhenTheFileIsWrong) {
  Settings all = started("grace = \"1s\"\n");
  writeFile("grace = \"2s\"\nmax_clients = 0\n");
  const auto result = all.reload();
  ASSERT_TRUE(std::holds_alternative<OptionsRefused>(result));
  EXPECT_EQ(
      std::get<OptionsRefused>(result).text,
      "isopoold: " + path_ + ":2: max_clients: '0' is not a whole number between 1 and 100000");
  EXPECT_EQ(all.options().grace, base::Milliseconds(1000));
}

TEST_F(ReloadTest, TakesUpANumberOfWorkers) {
  Settings all = started("workers = 2\n");
  EXPECT_EQ(reloaded(all, "workers = 5\n").taken, (Keys{"workers"}));
  EXPECT_EQ(all.options().workers, 5u);
}

TEST_F(ReloadTest, TakesUpNewClassesAndMoreWorkersOfThoseThatHaveSome) {
  const std::string a = "[class.a]\nprogram = \"x\"\ndedicated_workers = 1\n";
  const std::string b = "[class.b]\nuser = \"root\"\n";
  Settings all = started(a);
  EXPECT_EQ(reloaded(all, b + a).taken, (Keys{"class.b"}));
  ASSERT_EQ(all.options().classes.size(), 2u);
  EXPECT_EQ(all.options().classes[0].name, "b") << "the first class that fits counts";
  EXPECT_EQ(reloaded(all, "[class.a]\nprogram = \"x\"\ndedicated_workers = 3\n" + b).taken,
            (Keys{"class.a.dedicated_workers"}));
  EXPECT_EQ(all.options().classes[0].dedicatedWorkers, 3u);
}

TEST_F(ReloadTest, NeedsARestartForClassesThatAreGoneOrGetTheirFirstWorkers) {
  const std::string a = "[class.a]\nprogram = \"x\"\n";
  const std::string b = "[class.b]\nprogram = \"y\"\n";
  Settings all = started(a);
  EXPECT_EQ(reloaded(all, b).needRestart, (Keys{"class"}));
  EXPECT_EQ(reloaded(all, a + "dedicated_workers = 1\n" + b).needRestart, (Keys{"class"}));
  ASSERT_EQ(all.options().classes.size(), 1u);
  EXPECT_EQ(all.options().classes[0].dedicatedWorkers, 0u);
}

TEST_F(ReloadTest, TakesUpSharesButNotOtherClasses) {
  const std::string before = "[class.a]\nprogram = \"x\"\nshare = 1\n";
  Settings all = started(before);
  EXPECT_EQ(reloaded(all, "[class.a]\nprogram = \"x\"\nshare = 5\n").taken,
            (Keys{"class.a.share"}));
  EXPECT_EQ(all.options().classes[0].share, 5u);
  const auto changes = reloaded(all, "[class.a]\nprogram = \"y\"\nshare = 6\n");
  EXPECT_EQ(changes.needRestart, (Keys{"class"}));
  EXPECT_EQ(all.options().classes[0].share, 5u);
  EXPECT_EQ(all.options().classes[0].program, "x");
}

TEST_F(ReloadTest, ChangesNoWorkersEnvironment) {
  Settings all = started("[environment]\nA = \"1\"\nB = \"1\"\n");
  EXPECT_EQ(reloaded(all, "[environment]\nA = \"2\"\nC = \"1\"\n").needRestart,
            (Keys{"environment.A", "environment.B", "environment.C"}));
  EXPECT_EQ(all.options().workerEnvironment, (Keys{"A=1", "B=1"}));
}

}  // namespace
}  // namespace isopool::supervisor
