// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <map>
#include <span>
#include <string_view>

#include "ipc/memory/memory_object.h"

namespace isopool::supervisor {

namespace {

constexpr const char* kDescription =
    "isopoold: supervisor of isopool's worker processes. Programs that use isopool start it "
    "themselves; it ends with them. What it does is set by ISOPOOL_* environment variables of the "
    "program, or by these flags, which win.";

std::string workerBesideUs() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string self(path, static_cast<size_t>(length > 0 ? length : 0));
  return self.substr(0, self.rfind('/') + 1) + "isopool-worker";
}

struct Unit {
  const char* name;
  uint64_t factor;
};

constexpr Unit kTimeUnits[] = {{"ms", 1}, {"s", 1000}, {"m", 60'000}};
constexpr Unit kSizeUnits[] = {{"KiB", 1u << 10}, {"MiB", 1u << 20}, {"GiB", 1u << 30}};

struct Quantity {
  const char* what;
  std::span<const Unit> units;
  uint64_t bareFactor;  ///< of a number without a unit
  uint64_t least;
  uint64_t most;
  const char* range;
};

constexpr Quantity kTime{"a TIME like 500ms, 30s or 2m", kTimeUnits, 1000, 1, 86'400'000,
                         "between 1ms and 1440m"};
constexpr Quantity kSize{
    "a SIZE like 512KiB, 8MiB or 1GiB", kSizeUnits, 1, 64u << 10, uint64_t{1} << 44,
    "between 64KiB and 16384GiB"};

// Replaces the text by the number that it means, or returns what is wrong with it.
std::string normalise(std::string& text, const Quantity& quantity) {
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [unit, error] = std::from_chars(text.data(), end, number);
  uint64_t factor = unit == end ? quantity.bareFactor : 0;
  for (const Unit& each : quantity.units) {
    if (std::string_view(unit, static_cast<size_t>(end - unit)) == each.name) factor = each.factor;
  }
  if (error != std::errc() || factor == 0) return "'" + text + "' is not " + quantity.what;
  if (number > quantity.most / factor || number * factor < quantity.least) {
    return "'" + text + "' is not " + quantity.range;
  }
  text = std::to_string(number * factor);
  return {};
}

CLI::Validator validator(const Quantity& quantity) {
  return CLI::Validator([&quantity](std::string& text) { return normalise(text, quantity); }, "");
}

class Parser {
 public:
  Parser() : app_(kDescription, "isopoold") {
    app_.get_formatter()->column_width(36);
    app_.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app_.add_flag("--private", options_.privatePool,
                  "Serve the one program that started us, over --control-fd");
    app_.add_option("--control-fd", options_.controlFd, "Our end of that program's control socket")
        ->check(CLI::Range(3, INT_MAX).description(""))
        ->capture_default_str();
    app_.add_option("--lifeline-fd", options_.lifelineFd,
                    "Read end of a pipe whose write end only that program holds: we die with it")
        ->check(CLI::Range(3, INT_MAX).description(""))
        ->capture_default_str();
    add("--worker", "ISOPOOL_WORKER", options_.worker,
        "The isopool-worker executable (default: beside isopoold)");
    add("--spares", "ISOPOOL_SPARES", options_.spares,
        "Workers kept ready to take over from one that dies; 0: replacements are forked on demand")
        ->check(CLI::Range(0, 64))
        ->capture_default_str();
    add("--restart-limit", "ISOPOOL_RESTART_LIMIT", options_.restart.deaths,
        "So many deaths of one slot's workers, each before it completed a call, ...")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    addTime("--restart-window", "ISOPOOL_RESTART_WINDOW", options_.restart.window,
            "... within this time quarantine the slot (default: 30s) ...");
    addTime("--quarantine", "ISOPOOL_QUARANTINE", options_.restart.quarantine,
            "... for this long (default: 30s); then comes one more try");
    addBytes("--output-arena", "ISOPOOL_OUTPUT_ARENA", options_.outputArena,
             "First shared memory of a worker for its results (default: 4MiB)");
    addBytes("--output-arena-limit", "ISOPOOL_OUTPUT_ARENA_LIMIT", options_.outputArenaLimit,
             "Shared memory that one worker may get for its results (default: 4GiB)");
    addTime("--zygote-timeout", "ISOPOOL_ZYGOTE_TIMEOUT", options_.zygoteTimeout,
            "How long Python and torch may take to start (default: 2m)");
    addTime("--fork-timeout", "ISOPOOL_FORK_TIMEOUT", options_.forkTimeout,
            "How long the zygote may take to fork one worker (default: 5s)");
    addTime("--worker-timeout", "ISOPOOL_WORKER_TIMEOUT", options_.workerTimeout,
            "How long a forked worker may take until it serves (default: 30s)");
    app_.add_flag("--no-kill", options_.noKill,
                  "For debuggers: nobody is killed or given up for being slow")
        ->envname("ISOPOOL_NO_KILL");
    variables_["--no-kill"] = "ISOPOOL_NO_KILL";
    app_.footer(
        "TIME is a whole number and ms, s or m; without a unit seconds. SIZE is a whole number "
        "and KiB, MiB or GiB; without a unit bytes.\nISOPOOL_LOG=debug|info|warning|error|off says "
        "how much isopoold writes to the error stream (default: warning).");
  }

  std::variant<Options, OptionsRefused> parse(int argc, const char* const* argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      return OptionsRefused{app_.help(), 0};
    } catch (const CLI::ParseError& error) {
      return OptionsRefused{"isopoold: " + blame(error.what(), argc, argv), 2};
    }
    if (options_.worker.empty()) options_.worker = workerBesideUs();
    if (options_.noKill) {
      constexpr std::chrono::hours kForEver(24 * 365);
      options_.zygoteTimeout = options_.forkTimeout = options_.workerTimeout = kForEver;
    }
    options_.outputArena = ipc::roundUpToPages(options_.outputArena);
    if (options_.outputArenaLimit < options_.outputArena) {
      return OptionsRefused{
          "isopoold: --output-arena-limit (ISOPOOL_OUTPUT_ARENA_LIMIT) is less than --output-arena",
          2};
    }
    return options_;
  }

 private:
  template <typename Value>
  CLI::Option* add(const std::string& flag, const char* variable, Value& value,
                   const std::string& description) {
    variables_[flag] = variable;
    return app_.add_option(flag, value, description)->envname(variable);
  }

  void addTime(const std::string& flag, const char* variable, std::chrono::milliseconds& value,
               const std::string& description) {
    variables_[flag] = variable;
    app_.add_option_function<int64_t>(
            flag, [&value](int64_t count) { value = std::chrono::milliseconds(count); },
            description)
        ->transform(validator(kTime))
        ->type_name("TIME")
        ->envname(variable);
  }

  void addBytes(const std::string& flag, const char* variable, uint64_t& value,
                const std::string& description) {
    variables_[flag] = variable;
    app_.add_option(flag, value, description)
        ->transform(validator(kSize))
        ->type_name("SIZE")
        ->envname(variable);
  }

  // A value that came from the environment is complained about under the name that the user knows.
  std::string blame(std::string text, int argc, const char* const* argv) const {
    for (const auto& [flag, variable] : variables_) {
      if (text.find(flag) == std::string::npos || std::getenv(variable) == nullptr) continue;
      bool given = false;
      for (int i = 1; i < argc; ++i) given = given || std::string(argv[i]).rfind(flag, 0) == 0;
      if (!given) return std::string(variable) + "=" + std::getenv(variable) + ": " + text;
    }
    return text;
  }

  CLI::App app_;
  Options options_;
  std::map<std::string, const char*> variables_;
};

}  // namespace

std::variant<Options, OptionsRefused> parseOptions(int argc, const char* const* argv) {
  return Parser().parse(argc, argv);
}

}  // namespace isopool::supervisor
