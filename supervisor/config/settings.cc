// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/config/settings.h"

#include <grp.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/processors.h"
#include "base/settings/environment.h"
#include "base/settings/setting_default.h"
#include "base/settings/setting_text.h"
#include "base/unix_address.h"
#include "ipc/memory/memory_object.h"
#include "supervisor/config/option_fields.h"
#include "supervisor/config/settings_report.h"
#include "supervisor/config/system_check.h"

namespace isopool::supervisor {

namespace {

class SettingsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

OptionsRefused refusal(const std::exception& error) {
  return {std::string("isopoold: ") + error.what(), 2};
}

std::string workerBesideUs() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string self(path, static_cast<size_t>(length > 0 ? length : 0));
  return self.substr(0, self.rfind('/') + 1) + "isopool-worker";
}

base::SettingValue valueIfNotSet(const base::Setting& setting) {
  if (setting.key == "workers") return {static_cast<uint64_t>(base::usableProcessors()), {}, {}};
  if (setting.key == "worker_program") return {0, workerBesideUs(), {}};
  return base::defaultOf(setting);
}

SettingsFile readFile(const std::string& path) {
  if (path.empty()) return {};
  auto read = readSettingsFile(path);
  if (const auto* problem = std::get_if<std::string>(&read)) throw SettingsError(*problem);
  return std::move(std::get<SettingsFile>(read));
}

// The beginning of an error text about a value that a program's PoolOptions have.
std::string programWants(const base::Setting& setting) {
  return "PoolOptions: " + std::string(setting.key);
}

bool isGroup(const std::string& name) { return ::getgrnam(name.c_str()) != nullptr; }

// Clients keep their class, and a class that has workers of its own keeps having some.
bool mayBecome(const ClientClass& ours, const ClientClass& next) {
  return ours.name == next.name && ours.userId == next.userId && ours.program == next.program &&
         (ours.dedicatedWorkers == 0) == (next.dedicatedWorkers == 0);
}

}  // namespace

std::variant<Settings, OptionsRefused> Settings::parse(int argc, const char* const* argv) {
  auto words = parseCommandLine(argc, argv);
  if (auto* refused = std::get_if<OptionsRefused>(&words)) return std::move(*refused);
  const CommandLineRequest& request = std::get<CommandLineRequest>(words);
  Settings settings;
  try {
    settings.commandLine_ = request.commandLine;
    const SettingsFile file = readFile(request.commandLine.file);
    settings.resolved_ = settings.resolve(file);
    settings.environment_ = file.environment;
    settings.classes_ = file.classes;
    settings.options_ = settings.makeOptions();
    settings.check(settings.options_);
  } catch (const SettingsError& error) {
    return refusal(error);
  }
  switch (request.answer) {
    case Answer::kServe:
      return settings;
    case Answer::kCheck: {
      const std::string& file = settings.file();
      std::string problem = problemOnThisSystem(settings);
      for (const std::string& each : unknownVariables()) problem = each;
      if (!problem.empty()) return OptionsRefused{"isopoold: " + problem, 2};
      std::string text = "isopoold: the settings are valid";
      if (!file.empty()) text += " (" + file + ")";
      const Options& options = settings.options();
      if (!options.privatePool && options.listen.empty()) {
        text +=
            "; listen is not set, so only a service manager that hands over a socket can start "
            "isopoold with them";
      }
      return OptionsRefused{std::move(text), 0};
    }
    case Answer::kShow:
      return OptionsRefused{showSettings(settings), 0};
    case Answer::kShowJson:
      return OptionsRefused{showSettingsAsJson(settings), 0};
  }
  return settings;
}

Settings::ResolvedSettings Settings::resolve(const SettingsFile& file) const {
  ResolvedSettings all;
  for (const base::Setting& setting : base::settingTable()) {
    if (setting.key.empty()) continue;
    ResolvedSetting& resolved = all[&setting];
    const auto flag = commandLine_.flags.find(&setting);
    const char* variable = base::textInEnvironment(setting);
    const auto entry = file.entries.find(&setting);
    std::string text;
    std::string where;
    if (flag != commandLine_.flags.end()) {
      text = flag->second;
      where = setting.flag;
      resolved.source = SourceKind::kFlag;
    } else if (variable != nullptr) {
      text = variable;
      where = std::string(setting.variable) + "=" + text;
      resolved.source = SourceKind::kEnvironment;
    } else if (entry != file.entries.end()) {
      resolved = {entry->second.value, SourceKind::kFile, entry->second.line};
      continue;
    } else if (const auto asked = commandLine_.defaults.find(&setting);
               asked != commandLine_.defaults.end()) {
      text = asked->second;
      where = programWants(setting);
      resolved.source = SourceKind::kProgram;
    } else {
      resolved.value = valueIfNotSet(setting);
      continue;
    }
    auto parsed = base::parseSetting(setting, text);
    if (const auto* problem = std::get_if<std::string>(&parsed)) {
      throw SettingsError(where + ": " + *problem);
    }
    resolved.value = std::move(std::get<base::SettingValue>(parsed));
  }
  return all;
}

// The beginning of an error text about this setting.
std::string Settings::whereIs(const base::Setting& setting, const ResolvedSetting& resolved) const {
  switch (resolved.source) {
    case SourceKind::kFlag:
      return std::string(setting.flag);
    case SourceKind::kEnvironment:
      return std::string(setting.variable) + "=" + base::spellSetting(setting, resolved.value);
    case SourceKind::kFile:
      return commandLine_.file + ":" + std::to_string(resolved.line) + ": " +
             std::string(setting.key);
    case SourceKind::kProgram:
      return programWants(setting);
    case SourceKind::kDefault:
      break;
  }
  return std::string(setting.key);
}

std::string Settings::sourceOf(const base::Setting& setting,
                               const ResolvedSetting& resolved) const {
  switch (resolved.source) {
    case SourceKind::kFlag:
      return "flag " + std::string(setting.flag);
    case SourceKind::kEnvironment:
      return "environment " + std::string(setting.variable);
    case SourceKind::kFile:
      return "file " + commandLine_.file + ":" + std::to_string(resolved.line);
    case SourceKind::kProgram:
      return "program";
    case SourceKind::kDefault:
      break;
  }
  return "default";
}

// For worker/python/code_paths.py: a worker that may write these files controls what the supervisor
// runs.
std::string Settings::filesOf(const Options& options) const {
  std::error_code error;
  std::string files = std::filesystem::read_symlink("/proc/self/exe", error).string();
  for (const std::string& file : {options.worker, commandLine_.file}) {
    if (!file.empty()) files += ":" + std::filesystem::absolute(file, error).string();
  }
  return files;
}

Options Settings::makeOptions() const {
  Options options;
  options.privatePool = commandLine_.privatePool;
  options.collectOutput = commandLine_.collectOutput;
  options.controlFd = commandLine_.controlFd;
  options.lifelineFd = commandLine_.lifelineFd;
  for (const SettingsFile::Variable& each : environment_) {
    options.workerEnvironment.push_back(each.name + "=" + each.value);
  }
  for (const auto& [setting, resolved] : resolved_) {
    if (options.privatePool && setting->scope == base::Scope::kShared) continue;
    setOption(options, setting->key, resolved.value);
    // Also those that the workers would inherit: they get the checked value in its shortest form.
    if (setting->concernsWorkers() && resolved.source != SourceKind::kDefault) {
      options.workerEnvironment.push_back(std::string(setting->variable) + "=" +
                                          base::spellSetting(*setting, resolved.value));
    }
  }
  for (const SettingsFile::Class& each : classes_) options.classes.push_back(each.clientClass);
  for (const Shown& each : shown()) {
    // [environment] may have secrets, which are not for every client.
    if (each.setting == nullptr) continue;
    if (options.privatePool && each.setting->scope == base::Scope::kShared) continue;
    options.settings.push_back({each.key, each.text, each.source});
  }
  if (options.sandbox == "strict") {
    options.workerEnvironment.push_back("ISOPOOL_SUPERVISOR_FILES=" + filesOf(options));
  }
  if (options.noKill) {
    constexpr std::chrono::hours kForEver(24 * 365);
    options.zygoteTimeout = options.forkTimeout = options.workerTimeout = kForEver;
  }
  options.outputArena = ipc::roundUpToPages(options.outputArena);
  return options;
}

void Settings::check(const Options& options) const {
  if (options.outputArenaLimit < options.outputArena) {
    throw SettingsError(
        "--output-arena-limit (ISOPOOL_OUTPUT_ARENA_LIMIT) is less than --output-arena; raise the "
        "limit");
  }
  const auto where = [this](std::string_view key) {
    const base::Setting& setting = *base::findSetting(key);
    return whereIs(setting, resolved_.at(&setting));
  };
  // Variables that its processes read.
  for (const char* variable : {"ISOPOOL_FORK_COPY_LIMIT", "ISOPOOL_NESTED_POOLS"}) {
    try {
      base::settingInEnvironment(variable);
    } catch (const base::SettingError& error) {
      throw SettingsError(error.what());
    }
  }
  const ResolvedSetting& listen = resolved_.at(base::findSetting("listen"));
  if (listen.source == SourceKind::kFlag && listen.value.text.empty()) {
    throw SettingsError(where("listen") + ": '' is not a path");
  }
  constexpr size_t kMostPath = base::UnixAddress::kMostBytes;
  if (options.listen.size() > kMostPath) {
    throw SettingsError(where("listen") + ": '" + options.listen + "' is longer than the " +
                        std::to_string(kMostPath) + " bytes that the path of a socket may have");
  }
  if (!options.logFile.empty() && options.logFile.front() != '/') {
    throw SettingsError(where("log_file") + ": '" + options.logFile +
                        "' is not an absolute path: isopoold opens it again after a reload, in " +
                        "another working folder");
  }
  if (options.sandbox == "none") {
    for (const std::string_view key : {"sandbox.memory", "sandbox.files", "sandbox.processes"}) {
      if (resolved_.at(base::findSetting(key)).value.number == 0) continue;
      throw SettingsError(where(key) +
                          ": the sandbox level none sets no limits; remove this limit, or " +
                          "choose the level default");
    }
  }
  if (!options.socketGroup.empty() && !isGroup(options.socketGroup)) {
    throw SettingsError(where("socket_group") + ": '" + options.socketGroup +
                        "' is not a group of this system");
  }
}

bool Settings::Shown::reloadable() const {
  if (setting == nullptr) {
    return key.ends_with(".share") || key.ends_with(".call_time") ||
           (key.ends_with(".dedicated_workers") && text != "0");
  }
  return setting->reload == base::ReloadPolicy::kOnReload;
}

std::vector<Settings::Shown> Settings::shown() const {
  std::vector<Shown> all;
  for (const base::Setting& setting : base::settingTable()) {
    if (setting.key.empty()) continue;
    const ResolvedSetting& resolved = resolved_.at(&setting);
    all.push_back({&setting, std::string(setting.key), resolved.value,
                   base::spellSetting(setting, resolved.value), sourceOf(setting, resolved)});
  }
  const auto add = [&](const std::string& key, const std::string& text, uint32_t line) {
    all.push_back(
        {nullptr, key, {}, text, "file " + commandLine_.file + ":" + std::to_string(line)});
  };
  for (const SettingsFile::Variable& each : environment_) {
    add("environment." + each.name, each.value, each.line);
  }
  for (const SettingsFile::Class& each : classes_) {
    const std::string prefix = "class." + each.clientClass.name + ".";
    if (!each.user.empty()) add(prefix + "user", each.user, each.line);
    if (!each.clientClass.program.empty())
      add(prefix + "program", each.clientClass.program, each.line);
    add(prefix + "share", std::to_string(each.clientClass.share), each.line);
    add(prefix + "dedicated_workers", std::to_string(each.clientClass.dedicatedWorkers), each.line);
    if (each.clientClass.callTime) {
      base::SettingValue time;
      time.number = static_cast<uint64_t>(each.clientClass.callTime->count());
      add(prefix + "call_time", base::spellSetting(*base::findSetting("limits.call_time"), time),
          each.line);
    }
  }
  return all;
}

std::variant<Settings::Changes, OptionsRefused> Settings::reload() {
  Settings next = *this;
  Changes changes;
  try {
    SettingsFile file = readFile(commandLine_.file);
    for (auto& [setting, resolved] : resolve(file)) {
      ResolvedSetting& ours = next.resolved_.at(setting);
      const bool changed = !(ours.value == resolved.value);
      if (changed && setting->reload == base::ReloadPolicy::kAtStart) {
        changes.needRestart.emplace_back(setting->key);
        continue;
      }
      if (changed) changes.taken.emplace_back(setting->key);
      ours = std::move(resolved);
    }
    next.takeEnvironment(file.environment, changes);
    next.takeClasses(std::move(file.classes), changes);
    next.options_ = next.makeOptions();
    next.check(next.options_);
  } catch (const SettingsError& error) {
    return refusal(error);
  }
  *this = std::move(next);
  return changes;
}

void Settings::takeEnvironment(const std::vector<SettingsFile::Variable>& environment,
                               Changes& changes) {
  const auto missesIn = [&](const auto& all, const SettingsFile::Variable& one) {
    return std::none_of(all.begin(), all.end(), [&](const SettingsFile::Variable& each) {
      return each.name == one.name && each.value == one.value;
    });
  };
  std::vector<std::string> keys;
  for (const auto& each : environment) {
    if (missesIn(environment_, each)) keys.push_back("environment." + each.name);
  }
  for (const auto& each : environment_) {
    if (missesIn(environment, each)) keys.push_back("environment." + each.name);
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  changes.needRestart.insert(changes.needRestart.end(), keys.begin(), keys.end());
}

// Takes all classes of the file, or none of them.
void Settings::takeClasses(std::vector<SettingsFile::Class> classes, Changes& changes) {
  const bool allMay =
      std::all_of(classes_.begin(), classes_.end(), [&](const SettingsFile::Class& ours) {
        return std::any_of(classes.begin(), classes.end(), [&](const SettingsFile::Class& next) {
          return mayBecome(ours.clientClass, next.clientClass);
        });
      });
  if (!allMay) {
    changes.needRestart.emplace_back("class");
    return;
  }
  for (const SettingsFile::Class& each : classes) {
    const ClientClass& next = each.clientClass;
    const std::string key = "class." + next.name;
    const auto ours = std::find_if(
        classes_.begin(), classes_.end(),
        [&](const SettingsFile::Class& former) { return former.clientClass.name == next.name; });
    if (ours == classes_.end()) {
      changes.taken.push_back(key);
      continue;
    }
    if (ours->clientClass.share != next.share) changes.taken.push_back(key + ".share");
    if (ours->clientClass.dedicatedWorkers != next.dedicatedWorkers) {
      changes.taken.push_back(key + ".dedicated_workers");
    }
    if (ours->clientClass.callTime != next.callTime) changes.taken.push_back(key + ".call_time");
  }
  classes_ = std::move(classes);
}

std::variant<Options, OptionsRefused> parseOptions(int argc, const char* const* argv) {
  auto parsed = Settings::parse(argc, argv);
  if (auto* refused = std::get_if<OptionsRefused>(&parsed)) return std::move(*refused);
  return std::get<Settings>(parsed).options();
}

}  // namespace isopool::supervisor
