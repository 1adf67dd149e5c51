// SPDX-License-Identifier: BSD-3-Clause
// Runs a script, or the statements of a prompt, as __main__ in a worker.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "isopool/isopool.h"
#include "tools/line_reader.h"
#include "tools/script_worker.h"

namespace {

using tools::LineReader;
using tools::ScriptWorker;

constexpr int kFailed = 1;
constexpr int kSignalled = 128;  // plus the signal's number, as shells report it

struct Options {
  std::string pythonPath;
  std::string script;
  std::vector<std::string> arguments;
};

constexpr const char* kDescription =
    "Runs Python in an isopool worker as its __main__: a script, a program from stdin, or a prompt "
    "if stdin is a terminal.\n\n"
    "The worker has the same modules as models in a pool. So you can find out which torch they "
    "use, whether they can import a module, or whether a script crashes. The output of the script "
    "appears here. A crash ends the worker, not this program; the prompt continues in a new "
    "worker, without the names that were defined before.";

constexpr const char* kFooter =
    "Examples:\n"
    "  interactive_embedded_interpreter --pyscript train.py -- --epochs 3\n"
    "  interactive_embedded_interpreter --python_path /opt/models:/opt/more\n"
    "  echo 'import torch; print(torch.__version__)' | interactive_embedded_interpreter\n\n"
    "Exit code: the script's (sys.exit), 1 after an uncaught exception, 128 + signal if the worker "
    "was killed, 2 for wrong arguments. Ctrl-D ends the prompt, Ctrl-C interrupts a statement.";

/// Appends folders to sys.path. Relative ones are relative to this program's working folder.
class FoldersEnvironment : public isopool::Environment {
 public:
  explicit FoldersEnvironment(const std::string& folders) {
    std::istringstream words(folders);
    for (std::string folder; std::getline(words, folder, ':');) {
      if (!folder.empty()) {
        extraPythonPaths_.push_back(std::filesystem::absolute(folder).string());
      }
    }
  }
  void configureInterpreter(isopool::Interpreter* /*interp*/) override {}
};

/// Passes Ctrl-C during a statement to the worker, to which the terminal does not send it. At the
/// prompt, Ctrl-C only interrupts the wait for a line. At all other times it stays blocked.
class Interruption {
 public:
  /// Call it before any other thread is started: otherwise that thread would get the signal.
  static void prepare() {
    setBlocked(true);
    struct sigaction action {};
    action.sa_handler = [](int) {
      if (worker != 0) ::kill(worker, SIGINT);
    };
    ::sigaction(SIGINT, &action, nullptr);
  }
  explicit Interruption(int processId) {
    worker = processId;
    setBlocked(false);
  }
  ~Interruption() {
    setBlocked(true);
    worker = 0;
  }
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

 private:
  static void setBlocked(bool blocked) {
    sigset_t interrupt;
    ::sigemptyset(&interrupt);
    ::sigaddset(&interrupt, SIGINT);
    ::pthread_sigmask(blocked ? SIG_BLOCK : SIG_UNBLOCK, &interrupt, nullptr);
  }

  static volatile sig_atomic_t worker;
};
volatile sig_atomic_t Interruption::worker = 0;

int statusOf(const isopool::WorkerLost& death) {
  if (!death.causeKnown()) return kFailed;
  return death.signal() != 0 ? kSignalled + death.signal() : death.exitCode();
}

int runProgram(isopool::InterpreterManager& manager, const Options& options) {
  std::vector<std::string> argv{options.script.empty() ? "-" : options.script};
  argv.insert(argv.end(), options.arguments.begin(), options.arguments.end());
  const std::string text = options.script.empty() ? tools::readAll(STDIN_FILENO) : "";
  try {
    ScriptWorker worker(manager, argv);
    return options.script.empty() ? worker.runText(text) : worker.runFile(options.script);
  } catch (const isopool::WorkerLost& death) {
    std::cerr << death.what() << std::endl;
    return statusOf(death);
  }
}

class Prompt {
 public:
  Prompt(isopool::InterpreterManager& manager, const Options& options) : manager_(manager) {
    argv_.emplace_back();
    argv_.insert(argv_.end(), options.arguments.begin(), options.arguments.end());
  }

  int run() {
    LineReader lines(STDIN_FILENO);
    for (;;) {
      if (!worker_) begin();
      std::cout << (unfinished_ ? "... " : ">>> ") << std::flush;
      std::string line;
      switch (lines.next(line)) {
        case LineReader::Got::kEnd:
          std::cout << std::endl;
          return end(0);
        case LineReader::Got::kInterrupted:
          std::cout << "\nKeyboardInterrupt" << std::endl;
          forget();
          break;
        case LineReader::Got::kLine:
          if (const auto code = take(line)) return end(*code);
          break;
      }
    }
  }

 private:
  void begin() {
    worker_ = std::make_unique<ScriptWorker>(manager_, argv_);
    unfinished_ = false;
    std::cout << "Python in worker process " << worker_->processId() << ". Ctrl-D ends."
              << std::endl;
  }

  std::optional<int> take(const std::string& line) {
    return guarded([&]() -> std::optional<int> {
      const Interruption passedOn(worker_->processId());
      const ScriptWorker::Taken taken = worker_->take(line);
      unfinished_ = taken.unfinished;
      return taken.exitCode;
    });
  }

  void forget() {
    unfinished_ = false;
    guarded([&]() -> std::optional<int> {
      worker_->forget();
      return std::nullopt;
    });
  }

  int end(int code) {
    guarded([&]() -> std::optional<int> {
      const Interruption passedOn(worker_->processId());
      worker_->end();
      return std::nullopt;
    });
    return code;
  }

  /// Runs `step` and prints its error. If the worker is dead, releases it.
  template <typename Step>
  std::optional<int> guarded(const Step& step) {
    try {
      return step();
    } catch (const isopool::WorkerLost& death) {
      std::cerr << death.what() << "\nThe names that it had defined are lost." << std::endl;
      worker_.reset();
    } catch (const isopool::SupervisorLost&) {
      throw;
    } catch (const isopool::Error& error) {
      // For example, an interrupt after the end of its statement, or a line that is not UTF-8.
      std::cerr << error.what() << std::endl;
      unfinished_ = false;
    }
    return std::nullopt;
  }

  isopool::InterpreterManager& manager_;
  std::vector<std::string> argv_;
  std::unique_ptr<ScriptWorker> worker_;
  bool unfinished_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(kDescription, "interactive_embedded_interpreter");
  app.footer(kFooter);
  app.set_version_flag("--version", "interactive_embedded_interpreter of isopool " ISOPOOL_VERSION);
  Options options;
  app.add_option("--python_path", options.pythonPath,
                 "Folders for the end of sys.path, separated by colons");
  app.add_option("--pyscript", options.script,
                 "The script to run; also a folder or zip file with a __main__.py")
      ->check(CLI::ExistingPath);
  app.add_option("arguments", options.arguments,
                 "sys.argv[1:] of the script; after -- if one "
                 "begins with a dash");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const bool atPrompt = options.script.empty() && ::isatty(STDIN_FILENO) == 1;
  if (atPrompt) Interruption::prepare();
  try {
    isopool::InterpreterManager manager(1,
                                        std::make_shared<FoldersEnvironment>(options.pythonPath));
    if (atPrompt) return Prompt(manager, options).run();
    return runProgram(manager, options);
  } catch (const std::exception& error) {
    std::cerr << "interactive_embedded_interpreter: " << error.what() << std::endl;
    return kFailed;
  }
}
