// SPDX-License-Identifier: BSD-3-Clause
// isopool_chaos_program: a user's program under attack. Its callers call without end. It reads
// commands from its standard input, one per line:
//
//   rest    all callers stop; answered by "resting" once they have
//   books   answered by "books WORKERS SERVING INPUT-BYTES-IN-USE OUTPUT-BYTES-LENT WAITING"
//   go      the callers continue
//   end     the program ends in order, as at the end of its input
#include <ATen/ATen.h>
#include <execinfo.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "chaos/program/attachment.h"
#include "chaos/program/caller.h"
#include "chaos/program/interruption.h"
#include "chaos/program/rest.h"

namespace {

struct Options {
  uint64_t number = 1;
  uint64_t seed = 1;
  size_t workers = 2;
  int callers = 2;
  std::string package;
  std::string history;
  std::string effects;
  std::string fault;
  bool plain = false;
  bool moreManagers = false;
  bool reconnects = false;
};

/// The next line of the standard input, also if signals interrupt the read; nothing at its end.
std::optional<std::string> nextLine() {
  std::string line;
  for (char byte = 0;;) {
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got == 0 || (got < 0 && errno != EINTR)) return std::nullopt;
    if (got < 0) continue;
    if (byte == '\n') return line;
    line += byte;
  }
}

class Program {
 public:
  explicit Program(const Options& options)
      : history_(options.history),
        nonces_(options.number),
        attachment_(options.workers, options.package, options.reconnects, history_, nonces_),
        rest_(options.callers) {
    for (int i = 0; i < options.callers; ++i) {
      chaos::CallerSettings settings{options.effects, options.plain, i == 0 && options.moreManagers,
                                     i == 0 ? options.fault : std::string(),
                                     options.seed * 64 + static_cast<uint64_t>(i)};
      callers_.push_back(
          std::make_unique<chaos::Caller>(settings, attachment_, history_, nonces_, rest_));
    }
    // Torch's thread_local objects are made before the first attack: glibc ends a program that has
    // no memory for them.
    std::latch prepared(options.callers);
    for (const auto& caller : callers_) {
      threads_.emplace_back([&prepared, caller = caller.get()] {
        (void)at::empty({1}, at::kLong);
        prepared.count_down();
        caller->run();
      });
    }
    prepared.wait();
  }
  ~Program() {
    rest_.endProgram();
    for (std::thread& thread : threads_) thread.join();
    attachment_.end();
  }

  void serve() {
    while (const std::optional<std::string> line = nextLine()) {
      if (*line == "end") return;
      if (*line == "rest") {
        rest_.begin();
        while (!rest_.waitUntilAllRest(std::chrono::minutes(1))) {
        }
        say("resting");
      } else if (*line == "books") {
        sayBooks();
      } else if (*line == "go") {
        rest_.end();
      }
    }
  }

 private:
  static void say(const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

  void sayBooks() {
    const std::shared_ptr<chaos::Pool> pool = attachment_.pool();
    const std::string none = "books 0 0 0 0 0";
    if (!pool) return say(none);
    isopool::PoolStatistics statistics;
    try {
      statistics = pool->manager().statistics();
    } catch (const isopool::SupervisorLost&) {
      // No call has noticed it: all callers rest. The next question finds a new pool.
      attachment_.lost(pool);
      return say(none);
    }
    uint64_t serving = 0;
    uint64_t lent = 0;
    for (const isopool::WorkerStatistics& worker : statistics.workers) {
      serving += worker.state == isopool::WorkerStatistics::State::kServing ? 1 : 0;
      lent += worker.outputBytesLent;
    }
    say("books " + std::to_string(statistics.workers.size()) + " " + std::to_string(serving) + " " +
        std::to_string(statistics.inputBytesInUse) + " " + std::to_string(lent) + " " +
        std::to_string(statistics.callersWaiting + statistics.asyncCallsQueued));
  }

  chaos::HistoryWriter history_;
  chaos::Nonces nonces_;
  chaos::Attachment attachment_;
  chaos::Rest rest_;
  std::vector<std::unique_ptr<chaos::Caller>> callers_;
  std::vector<std::thread> threads_;
};

// Prints where an uncaught exception was thrown.
void explainTermination() {
  std::array<void*, 40> frames;
  ::backtrace(frames.data(), 1);  // loads its library while there is memory
  std::set_terminate([] {
    try {
      if (std::current_exception()) std::rethrow_exception(std::current_exception());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "isopool_chaos_program: uncaught exception: %s\n", error.what());
    } catch (...) {
      std::fprintf(stderr,
                   "isopool_chaos_program: uncaught exception that is not a std::exception\n");
    }
    std::array<void*, 40> all;
    ::backtrace_symbols_fd(all.data(), ::backtrace(all.data(), all.size()), STDERR_FILENO);
    std::abort();
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A program under attack; scripts/chaos starts it");
  Options options;
  app.add_option("--number", options.number, "the program's, in every nonce")->required();
  app.add_option("--seed", options.seed, "of its calls")->required();
  app.add_option("--workers", options.workers, "of its pool")->capture_default_str();
  app.add_option("--callers", options.callers, "threads that call")->capture_default_str();
  app.add_option("--package", options.package, "the packaged model")->required();
  app.add_option("--history", options.history, "file for its calls and outcomes")->required();
  app.add_option("--effects", options.effects, "file for the models' effects")->required();
  app.add_option("--fault", options.fault, "commit this fault");
  app.add_flag("--plain", options.plain, "the workers are without torch");
  app.add_flag("--more-managers", options.moreManagers,
               "make managers besides the one for all calls, and close them");
  app.add_flag("--reconnects", options.reconnects,
               "keep the manager when its supervisor is lost: it attaches again");
  CLI11_PARSE(app, argc, argv);
  explainTermination();
  try {
    Program program(options);
    chaos::handleInterruptions();
    program.serve();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "isopool_chaos_program: %s\n", error.what());
    return 1;
  }
  return 0;
}
