// SPDX-License-Identifier: BSD-3-Clause
#include "client/control/pool_settings.h"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/processors.h"
#include "base/settings/environment.h"
#include "base/settings/setting_default.h"
#include "base/settings/setting_text.h"
#include "base/unix_address.h"
#include "isopool/errors.h"

namespace isopool::client {

namespace {

using base::Setting;
using base::SettingValue;

[[noreturn]] void refuseField(const std::string& field, const std::string& problem) {
  throw Error("PoolOptions::" + field + ": " + problem);
}

// `value` in its shortest text. Throws Error unless that text is a valid value of the setting.
std::string textOf(const std::string& field, const Setting& setting, const SettingValue& value) {
  for (const std::string& item : value.items) {
    if (item.empty() || item.find(setting.separator) != item.npos) {
      refuseField(field, "'" + item + "' is empty or contains '" + setting.separator + "'");
    }
  }
  std::string text = base::spellSetting(setting, value);
  const auto parsed = base::parseSetting(setting, text);
  if (const auto* problem = std::get_if<std::string>(&parsed)) refuseField(field, *problem);
  return text;
}

SettingValue number(uint64_t value) { return {value, {}, {}}; }
SettingValue time(const std::string& field, std::chrono::milliseconds value) {
  if (value.count() < 0) refuseField(field, "a time can't be negative");
  return number(static_cast<uint64_t>(value.count()));
}
SettingValue text(std::string value) { return {0, std::move(value), {}}; }
SettingValue list(std::vector<std::string> items) { return {0, {}, std::move(items)}; }

const char* nameOf(SandboxLevel level) {
  switch (level) {
    case SandboxLevel::kNone:
      return "none";
    case SandboxLevel::kDefault:
      return "default";
    case SandboxLevel::kStrict:
      return "strict";
  }
  refuseField("sandbox", "is not a SandboxLevel");
}

// Without empty ones.
std::vector<std::string> absolute(const std::string& field,
                                  const std::vector<std::string>& folders) {
  std::vector<std::string> all;
  for (const std::string& folder : folders) {
    if (folder.empty()) continue;
    std::error_code error;
    const auto path = std::filesystem::absolute(folder, error);
    if (error) refuseField(field, "the working folder can't be read: " + error.message());
    all.push_back(path.lexically_normal());
  }
  return all;
}

// A relative path is that of the working folder now: the manager attaches again later. It stays if
// no socket can have so long a path as the absolute one.
std::string independentOfFolder(const std::string& address) {
  if (address.empty() || address.front() == '/') return address;
  std::error_code error;
  const auto path = std::filesystem::absolute(address, error);
  return !error && base::UnixAddress::ofPath(path.native()) ? path.native() : address;
}

// One for each processor that this process may run on, if the options name no number.
uint32_t workersOf(const PoolOptions& options) {
  if (options.workers > kMostWorkers) {
    refuseField("workers", std::to_string(options.workers) + " is not a number from 0 to " +
                               std::to_string(kMostWorkers));
  }
  if (options.workers != 0) return static_cast<uint32_t>(options.workers);
  return static_cast<uint32_t>(base::usableProcessors());
}

SettingValue inEnvironment(const char* variable) {
  try {
    return base::settingInEnvironment(variable);
  } catch (const base::SettingError& error) {
    throw Error(error.what());
  }
}

class Resolver {
 public:
  explicit Resolver(const PoolOptions& options) : options_(options) {}

  PoolSettings resolve() {
    settings_.workers = workersOf(options_);
    chooseSupervisor();
    forSupervisor();
    checkVariables();
    forThisProcess();
    return std::move(settings_);
  }

 private:
  void chooseSupervisor() {
    // A program that names a supervisor means that one, so the variable does not override it.
    settings_.address = isShared()
                            ? options_.sharedSupervisor
                            : own("sharedSupervisor", "ISOPOOL_SOCKET", text(""), Report::kNo).text;
    settings_.address = independentOfFolder(settings_.address);
    settings_.programName =
        own("programName", "ISOPOOL_PROGRAM", text(options_.programName), Report::kNo).text;
    if (settings_.programName.empty()) settings_.programName = program_invocation_short_name;
    settings_.supervisorProgram = own("supervisorProgram", "ISOPOOL_SUPERVISOR",
                                      text(options_.supervisorProgram), Report::kNo)
                                      .text;
    if (isShared() && !options_.supervisorProgram.empty()) refuseIfShared("supervisorProgram");
  }

  void forSupervisor() {
    const PoolOptions& o = options_;
    ask("python", "python", text(o.python));
    ask("preloadModules", "preload_modules", list(o.preloadModules));
    ask("preloadLibraries", "preload_libs", list(o.preloadLibraries));
    ask("workerPreloadLibraries", "worker_preload_libs", list(o.workerPreloadLibraries));
    ask("threadsPerWorker", "threads", number(o.threadsPerWorker));
    ask("gpus", "gpus", list(o.gpus));
    ask("spares", "spares", number(o.spares));
    ask("restartLimit", "restart_limit", number(o.restartLimit));
    askTime("restartWindow", "restart_window", o.restartWindow);
    askTime("quarantine", "quarantine", o.quarantine);
    ask("recycle.calls", "recycle.calls", number(o.recycle.calls));
    askTime("recycle.age", "recycle.age", o.recycle.age);
    ask("recycle.memoryGrowth", "recycle.memory_growth", number(o.recycle.memoryGrowth));
    ask("recycle.jitterPercent", "recycle.jitter", number(o.recycle.jitterPercent));
    askTime("recycle.patience", "recycle.patience", o.recycle.patience);
    askTime("zygoteTimeout", "zygote_timeout", o.zygoteTimeout);
    askTime("forkTimeout", "fork_timeout", o.forkTimeout);
    askTime("workerTimeout", "worker_timeout", o.workerTimeout);
    askTime("stoppedTimeout", "stopped_timeout", o.stoppedTimeout);
    ask("outputArena", "output_arena", number(o.outputArena));
    ask("outputArenaLimit", "output_arena_limit", number(o.outputArenaLimit));
    ask("workerMemory", "sandbox.memory", number(o.workerMemory));
    ask("sandbox", "sandbox.level", text(nameOf(o.sandbox)));
    ask("sandboxRead", "sandbox.read", list(absolute("sandboxRead", o.sandboxRead)));
    ask("sandboxWrite", "sandbox.write", list(absolute("sandboxWrite", o.sandboxWrite)));
    ask("sandboxNetwork", "sandbox.network", number(o.sandboxNetwork ? 1 : 0));
    ask("workerFiles", "sandbox.files", number(o.workerFiles));
    ask("workerProcesses", "sandbox.processes", number(o.workerProcesses));
    ask("supervisorLogLevel", "log_level", text(o.supervisorLogLevel));
    ask("supervisorLogFormat", "log_format", text(o.supervisorLogFormat));
    ask("coreDumps", "core_dumps", number(o.coreDumps ? 1 : 0));
    ask("noKill", "no_kill", number(o.noKill ? 1 : 0));
    ask("workerProgram", "worker_program", text(o.workerProgram));
  }

  void checkVariables() {
    for (const auto& [name, value] : options_.variables) {
      const std::string field = "variables[\"" + name + "\"]";
      if (name.empty() || name.find_first_of(std::string("=\0", 2)) != name.npos ||
          value.find('\0') != value.npos) {
        refuseField(field, "is not the name of a variable, or its value contains a NUL");
      }
      if (name.starts_with("ISOPOOL_")) refuseField(field, "isopool's settings are fields");
      if (isShared()) refuseIfShared(field);
    }
    if (settings_.address.empty()) settings_.variables = options_.variables;
  }

  void forThisProcess() {
    settings_.pythonPaths = absolute("pythonPaths", options_.pythonPaths);
    const bool noKill = options_.noKill && settings_.address.empty();
    settings_.noKill =
        own("noKill", "ISOPOOL_NO_KILL", number(noKill ? 1 : 0), Report::kNo).number != 0;
    const SettingValue cleanup = own("cleanupTimeout", "ISOPOOL_CLEANUP_TIMEOUT",
                                     time("cleanupTimeout", options_.cleanupTimeout));
    settings_.cleanupTimeout = std::chrono::milliseconds(settings_.noKill ? 0 : cleanup.number);
    const SettingValue reconnect =
        own("reconnect", "ISOPOOL_RECONNECT", time("reconnect", options_.reconnect),
            settings_.address.empty() ? Report::kNo : Report::kYes);
    settings_.reconnect =
        std::chrono::milliseconds(settings_.address.empty() ? 0 : reconnect.number);
    settings_.allowOtherPython = own("allowOtherPython", "ISOPOOL_ALLOW_OTHER_PYTHON",
                                     number(options_.allowOtherPython ? 1 : 0))
                                     .number != 0;
  }

  bool isShared() const { return !options_.sharedSupervisor.empty(); }

  [[noreturn]] void refuseIfShared(const std::string& field) const {
    refuseField(field, "the operator of the shared supervisor " + options_.sharedSupervisor +
                           " decides this; leave the field at its default");
  }

  // A value for the supervisor, unless it is the setting's default.
  void ask(const std::string& field, std::string_view key, const SettingValue& value) {
    const Setting& setting = *base::findSetting(key);
    if (value == base::writtenDefault(setting)) return;
    const std::string spelled = textOf(field, setting, value);
    if (isShared()) refuseIfShared(field);
    if (!settings_.address.empty()) return;
    settings_.supervisorDefaults.push_back(std::string(key) + "=" + spelled);
  }
  void askTime(const std::string& field, std::string_view key, std::chrono::milliseconds value) {
    ask(field, key, time(field, value));
  }

  enum class Report { kYes, kNo };

  // A value that this process uses itself.
  SettingValue own(const std::string& field, const char* variable, const SettingValue& value,
                   Report report = Report::kYes) {
    const Setting& setting = base::settingOfVariable(variable);
    const SettingValue fallback = base::writtenDefault(setting);
    if (!(value == fallback)) textOf(field, setting, value);
    SettingValue chosen = value;
    std::string source = value == fallback ? "default" : "program";
    if (base::textInEnvironment(setting) != nullptr) {
      chosen = inEnvironment(variable);
      source = std::string("environment ") + variable;
    }
    if (report == Report::kYes) {
      settings_.own.push_back({setting.key.empty() ? variable : std::string(setting.key),
                               base::spellSetting(setting, chosen), source});
    }
    return chosen;
  }

  const PoolOptions& options_;
  PoolSettings settings_;
};

}  // namespace

std::string PoolSettings::identity() const {
  std::string all = supervisorProgram + '\0';
  for (const std::string& each : supervisorDefaults) all += each + '\0';
  all += '\0';
  for (const auto& [name, value] : variables) all += name + '=' + value + '\0';
  all += '\0';
  for (const std::string& each : pythonPaths) all += each + '\0';
  return all + std::to_string(cleanupTimeout.count()) + (noKill ? " no kill" : "");
}

bool allowsOtherPython(const PoolSettings& settings) {
  constexpr const char* kVariable = "ISOPOOL_ALLOW_OTHER_PYTHON";
  if (base::textInEnvironment(base::settingOfVariable(kVariable)) == nullptr) {
    return settings.allowOtherPython;
  }
  return inEnvironment(kVariable).number != 0;
}

PoolSettings settingsOf(const PoolOptions& options) { return Resolver(options).resolve(); }

}  // namespace isopool::client
