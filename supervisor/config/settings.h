// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/settings/setting_table.h"
#include "supervisor/config/command_line.h"
#include "supervisor/config/options.h"
#include "supervisor/config/settings_file.h"

namespace isopool::supervisor {

/// The value and the source of every setting. A flag overrides an environment variable, the
/// variable overrides the file, the file overrides the program that started this supervisor
/// (--default, its PoolOptions), and the program overrides the default. Every value is checked: if
/// there is a Settings, all of them are valid. Not thread-safe.
class Settings {
 public:
  /// One setting as --show-settings prints it.
  struct Shown {
    const base::Setting* setting;  ///< nullptr for entries of [environment] and [class.NAME]
    std::string key;
    base::SettingValue value;
    std::string text;
    std::string source;  ///< "flag --spares", "file PATH:LINE", "default", ...

    /// True if a reload can change it.
    bool reloadable() const;
  };

  /// Keys whose values differ between two readings of the file.
  struct Changes {
    std::vector<std::string> taken;        ///< in effect now
    std::vector<std::string> needRestart;  ///< the old values stay in effect
  };

  /// Reads flags, environment, and the file that the command line names. Returns OptionsRefused
  /// for a setting that is wrong (exit code 2, one line with the place, the error and a remedy),
  /// and also, with exit code 0, as the answer to --help, --check and the like. --check may take a
  /// minute, see problemOnThisSystem().
  static std::variant<Settings, OptionsRefused> parse(int argc, const char* const* argv);

  /// Valid until reload().
  const Options& options() const { return options_; }
  /// All settings in the order of the table, then [environment] and the classes.
  std::vector<Shown> shown() const;
  /// The path of the settings file; empty if there is none.
  const std::string& file() const { return commandLine_.file; }

  /// Reads the file again, with the flags and the environment of the start. Afterwards options()
  /// has the new values of those settings that can change at run time. If it returns
  /// OptionsRefused, nothing has changed. Classes can be added; of the others the shares can
  /// change, and the number of dedicated workers unless it is or becomes 0. [environment] can't.
  std::variant<Changes, OptionsRefused> reload();

 private:
  enum class SourceKind { kDefault, kProgram, kFile, kEnvironment, kFlag };
  struct ResolvedSetting {
    base::SettingValue value;
    SourceKind source = SourceKind::kDefault;
    uint32_t line = 0;
  };
  using ResolvedSettings = std::map<const base::Setting*, ResolvedSetting>;

  ResolvedSettings resolve(const SettingsFile& file) const;
  std::string whereIs(const base::Setting& setting, const ResolvedSetting& resolved) const;
  std::string sourceOf(const base::Setting& setting, const ResolvedSetting& resolved) const;
  void takeClasses(std::vector<SettingsFile::Class> classes, Changes& changes);
  void takeEnvironment(const std::vector<SettingsFile::Variable>& environment, Changes& changes);
  Options makeOptions() const;
  std::string filesOf(const Options& options) const;
  void check(const Options& options) const;

  CommandLine commandLine_;
  ResolvedSettings resolved_;
  std::vector<SettingsFile::Variable> environment_;
  std::vector<SettingsFile::Class> classes_;
  Options options_;
};

/// Settings::parse() for callers that need only the options.
std::variant<Options, OptionsRefused> parseOptions(int argc, const char* const* argv);

}  // namespace isopool::supervisor
