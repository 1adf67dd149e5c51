// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/config/command_line.h"

#include <CLI/CLI.hpp>
#include <climits>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "base/settings/setting_text.h"
#include "supervisor/config/settings_report.h"

namespace isopool::supervisor {

namespace {

constexpr const char* kDescription =
    "isopoold: supervisor of isopool's worker processes. A program that uses isopool starts its "
    "own\n"
    "private supervisor (--private), which ends with the program. A supervisor with --listen is\n"
    "shared by all programs whose ISOPOOL_SOCKET is that path, and runs until SIGTERM; SIGHUP "
    "makes\n"
    "it read its settings file again.\n"
    "\n"
    "Settings come from flags, environment variables and a TOML file: a flag overrides its\n"
    "variable, and the variable overrides the file; of a flag that is given twice the last one\n"
    "counts. In the file a setting has its flag's name "
    "with _\n"
    "for -, except in the tables [limits] (--client-*), [recycle] and [sandbox]. The file may "
    "also\n"
    "have [environment], variables for the workers, and [class.NAME], settings for a class of\n"
    "clients.\n";

constexpr const char* kFooter =
    "TIME is a whole number with the unit ms, s, m or h; without a unit, seconds. SIZE is a whole\n"
    "number with the unit KiB, MiB or GiB; without a unit, bytes. In the file both are texts in\n"
    "quotes, lists are arrays of texts, and switches are true or false.";

constexpr size_t kNamesColumn = 38;
constexpr size_t kLineWidth = 100;

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kNamesColumn); }

  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: isopoold --listen PATH [--config FILE] [OPTIONS]\n"
           "       isopoold --check | --show-settings [--json] [OPTIONS]\n"
           "       isopoold --version\n";
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::istringstream words(option->get_description());
    std::string text;
    std::string word;
    for (size_t column = 0; words >> word; column += word.size() + 1) {
      if (column > 0 && kNamesColumn + column + word.size() > kLineWidth) {
        text += '\n';
        column = 0;
      } else if (column > 0) {
        text += ' ';
      }
      text += word;
    }
    return text;
  }
};

std::string placeholder(const base::Setting& setting) {
  switch (setting.kind) {
    case base::SettingKind::kCount:
      return "N";
    case base::SettingKind::kSize:
      return "SIZE";
    case base::SettingKind::kTime:
      return "TIME";
    case base::SettingKind::kPath:
      return "PATH";
    case base::SettingKind::kList:
      return setting.separator == ':' ? "FOLDER:FOLDER" : "NAME,NAME";
    case base::SettingKind::kChoice:
      return std::string(setting.choices);
    default:
      return "NAME";
  }
}

std::string helpText(const base::Setting& setting) {
  std::string text = std::string(setting.description) + " (";
  if (setting.kind != base::SettingKind::kSwitch) text += describeDefault(setting) + "; ";
  return text + std::string(setting.variable) + ")";
}

class Parser {
 public:
  Parser() : app_(kDescription, "isopoold") {
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.set_help_flag("-h,--help", "This text");
    app_.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    addActions();
    addSettings();
    addPrivatePool();
    app_.footer(kFooter);
  }

  std::variant<CommandLineRequest, OptionsRefused> parse(int argc, const char* const* argv) {
    app_.allow_extras();
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      return OptionsRefused{app_.help(), 0};
    } catch (const CLI::ParseError& error) {
      return mistake(error.what());
    }
    if (!app_.remaining().empty()) return mistake(unknown(app_.remaining().front()));
    if (version_) return OptionsRefused{"isopoold " ISOPOOL_VERSION, 0};
    if (markdown_) return OptionsRefused{settingsAsMarkdown(), 0};
    if (exampleFile_) return OptionsRefused{exampleSettingsFile(), 0};
    return request();
  }

 private:
  static OptionsRefused mistake(const std::string& text) { return {"isopoold: " + text, 2}; }

  void addActions() {
    app_.add_option("--config", request_.commandLine.file,
                    "Read settings from this TOML file (ISOPOOL_CONFIG)")
        ->type_name("FILE");
    app_.add_flag("--check", check_,
                  "Check the settings and exit: with code 0 if they are valid, else with the error "
                  "and code 2");
    app_.add_flag("--show-settings", show_,
                  "Print the value of every setting and its source (flag, variable or line of the "
                  "file), and exit");
    app_.add_flag("--json", json_, "Print the output of --show-settings as JSON");
    app_.add_flag("--version", version_, "Print the version, and exit");
    app_.add_flag("--settings-example", exampleFile_,
                  "Print a file with every setting, its meaning and its default, and exit");
    app_.add_flag("--settings-markdown", markdown_)->group("");
  }

  void addSettings() {
    for (int group = 0; group <= static_cast<int>(base::SettingGroup::kLooking); ++group) {
      for (const base::Setting& setting : base::settingTable()) {
        if (setting.group == base::SettingGroup(group) && !setting.flag.empty()) add(setting);
      }
    }
  }

  void add(const base::Setting& setting) {
    const std::string flag(setting.flag);
    CLI::Option* option = setting.kind == base::SettingKind::kSwitch
                              ? app_.add_flag(flag, unused_, helpText(setting))
                              : app_.add_option(flag, unused_, helpText(setting));
    if (setting.kind != base::SettingKind::kSwitch) option->type_name(placeholder(setting));
    option->group(std::string(base::titleOf(setting.group)));
    options_.emplace_back(&setting, option);
  }

  void addPrivatePool() {
    CommandLine& words = request_.commandLine;
    app_.add_flag("--private", words.privatePool,
                  "Serve only the program that started this process, over --control-fd")
        ->group(kPrivateGroup);
    app_.add_flag("--collect-output", words.collectOutput,
                  "Write the log as JSON, also what workers write to their standard streams")
        ->group(kPrivateGroup);
    app_.add_option("--control-fd", words.controlFd,
                    "The supervisor's end of that program's control socket (default: 3)")
        ->check(CLI::Range(3, INT_MAX).description(""))
        ->type_name("N")
        ->group(kPrivateGroup);
    app_.add_option("--lifeline-fd", words.lifelineFd,
                    "Read end of a pipe whose write end only that program holds: the supervisor is "
                    "killed when that program ends (default: 4)")
        ->check(CLI::Range(3, INT_MAX).description(""))
        ->type_name("N")
        ->group(kPrivateGroup);
    defaults_ = app_.add_option("--default", unusedList_,
                                "The value of a setting that neither a flag nor a variable nor the "
                                "file sets: that program's PoolOptions")
                    ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
                    ->expected(1)
                    ->allow_extra_args(false)
                    ->type_name("KEY=VALUE")
                    ->group(kPrivateGroup);
  }

  /// Returns the refusal of a wrong --default.
  std::optional<OptionsRefused> takeDefaults() {
    CommandLine& words = request_.commandLine;
    for (const std::string& word : defaults_->results()) {
      const size_t equals = word.find('=');
      const std::string key = word.substr(0, equals);
      const base::Setting* setting = base::findSetting(key);
      if (equals == word.npos) return mistake("--default " + word + ": is not KEY=VALUE");
      if (setting == nullptr) return mistake("--default " + key + ": is not a setting");
      if (words.privatePool && setting->scope == base::Scope::kShared) {
        return mistake("--default " + key +
                       ": is for a shared supervisor, not for one with --private");
      }
      words.defaults[setting] = word.substr(equals + 1);
    }
    return std::nullopt;
  }

  std::variant<CommandLineRequest, OptionsRefused> request() {
    CommandLine& words = request_.commandLine;
    for (const auto& [setting, option] : options_) {
      if (option->count() == 0) continue;
      if (words.privatePool && setting->scope == base::Scope::kShared) {
        return mistake(std::string(setting->flag) +
                       " is for a shared supervisor, not for one with --private");
      }
      words.flags[setting] = option->results().back();
    }
    if (auto refused = takeDefaults()) return *std::move(refused);
    if (json_ && !show_) return mistake("--json requires --show-settings");
    if (check_ && show_) return mistake("--check and --show-settings exclude each other");
    if (check_) request_.answer = Answer::kCheck;
    if (show_) request_.answer = json_ ? Answer::kShowJson : Answer::kShow;
    const char* file = std::getenv("ISOPOOL_CONFIG");
    if (words.file.empty() && file != nullptr) words.file = file;
    return request_;
  }

  std::string unknown(const std::string& word) const {
    if (!word.starts_with("-")) return "'" + word + "' is not a flag; see --help";
    std::vector<std::string> flags{"--config", "--check",   "--show-settings",
                                   "--json",   "--version", "--private"};
    for (const auto& [setting, option] : options_) flags.emplace_back(setting->flag);
    const std::string name = word.substr(0, word.find('='));
    return name + " is not a flag; the nearest is " + base::nearestOf(name, flags);
  }

  static constexpr const char* kPrivateGroup = "For programs that start their own";

  CLI::App app_;
  CommandLineRequest request_;
  bool check_ = false;
  bool show_ = false;
  bool json_ = false;
  bool markdown_ = false;
  bool version_ = false;
  bool exampleFile_ = false;
  std::string unused_;  // request() reads the texts from the CLI::Option objects
  std::vector<std::string> unusedList_;
  CLI::Option* defaults_ = nullptr;
  std::vector<std::pair<const base::Setting*, CLI::Option*>> options_;
};

}  // namespace

std::variant<CommandLineRequest, OptionsRefused> parseCommandLine(int argc,
                                                                  const char* const* argv) {
  return Parser().parse(argc, argv);
}

}  // namespace isopool::supervisor
