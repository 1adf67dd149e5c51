// SPDX-License-Identifier: BSD-3-Clause
// How much longer a pool takes to be ready than Python takes to import torch; how fast a death is
// reported to the caller, and a dead worker replaced.
#include <ATen/ATen.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/row.h"
#include "bench/statistics.h"
#include "isopool/isopool.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string packages;
  size_t megabytes = 500;
  bool quick = false;
};

double millisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

void reportMedian(const std::string& subject, const char* metric, const std::vector<double>& values,
                  const char* route = "isopool") {
  const bench::Summary summary = bench::summarize(values);
  bench::print({"start", route, subject, metric, "ms", summary.median, summary.spread, "", {}});
}

void reportLatency(const std::string& subject, const std::vector<double>& values) {
  reportMedian(subject, "p50", values);
  bench::print(
      {"start", "isopool", subject, "p99", "ms", bench::quantile(values, 0.99), {}, "", {}});
}

/// Makes one empty call to every worker.
void touchAll(isopool::InterpreterManager& manager) {
  for (const auto& interpreter : manager.allInstances()) {
    interpreter.acquireSession().fromIValue(1).toIValue();
  }
}

// ---- pools ------------------------------------------------------------------------------------

/// The time from the start of a Python process until it has imported torch, in milliseconds.
double importTime() {
  const auto begin = Clock::now();
  const pid_t python = ::fork();
  if (python == 0) {
    ::execl(ISOPOOL_BENCH_PYTHON, ISOPOOL_BENCH_PYTHON, "-c",
            "import os, torch; os.kill(os.getpid(), 9)", nullptr);
    ::_exit(127);
  }
  // Python kills itself: so the time does not include the interpreter's shutdown, only the kernel's
  // release of the process's memory.
  siginfo_t end{};
  if (python < 0 || ::waitid(P_PID, static_cast<id_t>(python), &end, WEXITED) != 0 ||
      end.si_status != SIGKILL) {
    throw std::runtime_error("Python can't import torch");
  }
  return millisecondsSince(begin);
}

void measurePools(const Options& options) {
  constexpr std::array<size_t, 4> kSizes{1, 2, 8, 32};
  std::vector<double> imports;
  std::array<std::vector<double>, kSizes.size()> ready, beyond, further;
  const int rounds = options.quick ? 2 : 7;
  for (int round = 0; round < rounds; ++round) {
    bench::announce("pools ready, round " + std::to_string(round + 1) + " of " +
                    std::to_string(rounds));
    imports.push_back(importTime());
    for (size_t i = 0; i < kSizes.size(); ++i) {
      auto begin = Clock::now();
      isopool::InterpreterManager manager(kSizes[i]);
      touchAll(manager);
      ready[i].push_back(millisecondsSince(begin));
      beyond[i].push_back((ready[i].back() - imports.back()) / static_cast<double>(kSizes[i]));
      // The supervisor and the zygote of the second pool run already.
      begin = Clock::now();
      isopool::InterpreterManager second(kSizes[i]);
      touchAll(second);
      further[i].push_back(millisecondsSince(begin));
    }
  }
  reportMedian("import torch", "time", imports, "python");
  for (size_t i = 0; i < kSizes.size(); ++i) {
    const std::string subject = "pool of " + std::to_string(kSizes[i]);
    const bench::Summary summary = bench::summarize(ready[i]);
    bench::print({"start", "isopool", subject, "ready", "ms", summary.median, summary.spread,
                  "import torch", summary.median / bench::summarize(imports).median});
    reportMedian(subject, "beyond_import_per_worker", beyond[i]);
    reportMedian(subject + ", another one runs", "ready", further[i]);
  }
}

// ---- deaths -----------------------------------------------------------------------------------

/// A pool of two workers, one of which dies repeatedly.
class Mortal {
 public:
  /// `spares` workers wait to replace a dead one. 0: a fork replaces it.
  Mortal(const Options& options, int spares) : options_(options), spares_(spares) {
    ::setenv("ISOPOOL_SPARES", std::to_string(spares).c_str(), 1);
    manager_ = std::make_unique<isopool::InterpreterManager>(2);
    calls_ = std::make_unique<isopool::Package>(manager_->loadPackage(file("calls.pt")));
    identity_ = calls_->loadPickle("model", "identity.pkl");
  }

  void measureReplacement() {
    const std::string by = spares_ > 0 ? ", from a spare" : ", by fork";
    replace("kill to first call" + by, [this] { slot().acquireSession().fromIValue(1); });
    replace("kill to first model answer" + by, [this] { callModel(identity_); });
    if (spares_ == 0) return;
    auto weights =
        manager_->loadPackage(file("weights-" + std::to_string(options_.megabytes) + ".pt"))
            .loadPickle("model", "weights.pkl");
    weights.callOnAll({input_});
    const std::string large = std::to_string(options_.megabytes) + " MB model";
    replace("kill to first answer of a " + large, [&] { callModel(weights); });
    std::vector<double> warm;
    for (int i = 0; i < 5; ++i) {
      const auto begin = Clock::now();
      callModel(weights);
      warm.push_back(millisecondsSince(begin));
    }
    reportMedian("the " + large + "'s later calls", "p50", warm);
    weights.warmUp({input_});
    replace("kill to first answer of a " + large + ", warm spare", [&] { callModel(weights); });
  }

  /// Measures the time from the last instruction of a worker with so much private memory to the
  /// exception in the thread whose call was running.
  void measureTelling(const char* cause, int64_t megabytes, int repetitions) {
    char size[32];
    std::snprintf(size, sizeof size, "%.1f GB", static_cast<double>(megabytes) / 1000);
    const std::string subject = std::string(cause) + " to the caller's error, " + size;
    bench::announce(subject);
    auto crash = calls_->loadPickle("model", "crash.pkl");
    const at::Tensor died = isopool::empty({1}, at::kDouble);
    std::vector<double> times;
    for (int i = 0; i < repetitions; ++i) {
      settle();
      auto session = crash.acquireSession(&slot());
      const int victim = slot().processId().value();
      session.self.attr("hold")({at::IValue(megabytes)});
      try {
        session.self({at::IValue(died), at::IValue(cause)});
        throw std::runtime_error("a worker did not die");
      } catch (const isopool::WorkerLost&) {
        const auto now = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
        times.push_back((now - died.item<double>()) * 1e3);
      }
      waitForEnd(victim);
    }
    reportLatency(subject, times);
  }

 private:
  std::string file(const std::string& name) const { return options_.packages + "/" + name; }
  const isopool::Interpreter& slot() { return manager_->allInstances()[0]; }

  void callModel(const isopool::ReplicatedObj& model) {
    model.acquireSession(&slot()).self({at::IValue(input_)}).toIValue();
  }

  /// Measures the time from the kill to the answer of a call on the replacement.
  void replace(const std::string& subject, const std::function<void()>& call) {
    bench::announce(subject);
    std::vector<double> times;
    for (int i = 0; i < (options_.quick ? 5 : 100); ++i) {
      settle();
      const int victim = slot().processId().value();
      const auto begin = Clock::now();
      ::kill(victim, SIGKILL);
      for (bool answered = false; !answered;) {
        try {
          call();
          answered = slot().processId() != victim;
        } catch (const isopool::WorkerLost&) {
          // The death was not yet noticed when the call was sent.
        }
      }
      times.push_back(millisecondsSince(begin));
    }
    reportLatency(subject, times);
  }

  /// Waits until the pool is complete, and then long enough for a new spare.
  void settle() {
    callModel(identity_);
    std::this_thread::sleep_for(std::chrono::milliseconds(spares_ > 0 ? 600 : 50));
  }

  /// Waits for the end of a process: for a large one this takes time and a processor.
  static void waitForEnd(int process) {
    const auto late = Clock::now() + std::chrono::seconds(30);
    while (::kill(process, 0) == 0) {
      if (Clock::now() > late) throw std::runtime_error("a dead worker does not go");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  const Options options_;
  const int spares_;
  const at::Tensor input_ = isopool::empty({16}).fill_(1.0f);
  std::unique_ptr<isopool::InterpreterManager> manager_;
  std::unique_ptr<isopool::Package> calls_;
  isopool::ReplicatedObj identity_;
};

void measure(const Options& options) {
  measurePools(options);
  Mortal(options, 0).measureReplacement();
  Mortal withSpare(options, 1);
  withSpare.measureReplacement();
  for (const char* cause : {"SIGKILL", "SIGSEGV"}) {
    withSpare.measureTelling(cause, 200, options.quick ? 5 : 100);
    if (!options.quick) withSpare.measureTelling(cause, 4000, 20);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("How fast a pool is ready, a death is reported, and a dead worker is replaced.");
  Options options;
  app.add_option("--packages", options.packages, "folder with calls.pt and weights-N.pt")
      ->required();
  app.add_option("--megabytes", options.megabytes, "N of the large model")->capture_default_str();
  app.add_flag("--quick", options.quick, "fewer repetitions, and no worker of 4 GB");
  CLI11_PARSE(app, argc, argv);
  try {
    measure(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "start: %s\n", error.what());
    return 1;
  }
}
