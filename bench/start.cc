// SPDX-License-Identifier: BSD-3-Clause
// How long a pool takes to be ready, and a dead worker to be replaced.
#include <ATen/ATen.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <functional>
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

void report(const std::string& subject, const char* metric, const std::vector<double>& values) {
  const bench::Summary summary = bench::summarize(values);
  bench::print({"start", "isopool", subject, metric, "ms", summary.median, summary.spread, "", {}});
}

/// One call that does nothing, to every worker.
void touchAll(isopool::InterpreterManager& manager) {
  for (const auto& interpreter : manager.allInstances()) {
    interpreter.acquireSession().fromIValue(1).toIValue();
  }
}

void measurePools(const Options& options) {
  for (const size_t workers : {size_t{1}, size_t{8}}) {
    std::vector<double> first, further;
    for (int i = 0; i < (options.quick ? 2 : 5); ++i) {
      bench::announce("pool of " + std::to_string(workers) + " ready");
      auto begin = Clock::now();
      isopool::InterpreterManager manager(workers);
      touchAll(manager);
      first.push_back(millisecondsSince(begin));
      // The second one finds supervisor and zygote running.
      begin = Clock::now();
      isopool::InterpreterManager second(workers);
      touchAll(second);
      further.push_back(millisecondsSince(begin));
    }
    const std::string subject = "pool of " + std::to_string(workers);
    report(subject, "ready", first);
    report(subject + ", another one runs", "ready", further);
  }
}

class Replacement {
 public:
  explicit Replacement(const Options& options) : options_(options), manager_(2) {}

  void run() {
    auto calls = manager_.loadPackage(options_.packages + "/calls.pt");
    identity_ = calls.loadPickle("model", "identity.pkl");
    auto wait = calls.loadPickle("model", "wait.pkl");
    auto crash = calls.loadPickle("model", "crash.pkl");

    measureCrash(crash);
    measureTold(wait);
    measure("first empty call", [&] { slot().acquireSession().fromIValue(1).toIValue(); });
    measure("first model call", [&] { callModel(identity_, slot()); });
    auto weights = manager_
                       .loadPackage(options_.packages + "/weights-" +
                                    std::to_string(options_.megabytes) + ".pt")
                       .loadPickle("model", "weights.pkl");
    for (const auto& interpreter : manager_.allInstances()) callModel(weights, interpreter);
    measure("first call of a " + std::to_string(options_.megabytes) + " MB model",
            [&] { callModel(weights, slot()); });
    std::vector<double> warm;
    for (int i = 0; i < 5; ++i) {
      const auto begin = Clock::now();
      callModel(weights, slot());
      warm.push_back(millisecondsSince(begin));
    }
    report("the same model's later calls", "latency", warm);
  }

 private:
  const isopool::Interpreter& slot() { return manager_.allInstances()[0]; }

  void callModel(const isopool::ReplicatedObj& model, const isopool::Interpreter& where) const {
    model.acquireSession(&where).self({at::IValue(input_)}).toIValue();
  }

  /// From the kill to the answer of a call on the worker that replaces the dead one.
  void measure(const std::string& subject, const std::function<void()>& call) {
    bench::announce("kill to " + subject);
    std::vector<double> times;
    for (int i = 0; i < (options_.quick ? 5 : 20); ++i) {
      settle();
      const int victim = slot().processId().value();
      const auto begin = Clock::now();
      ::kill(victim, SIGKILL);
      for (bool answered = false; !answered;) {
        try {
          call();
          answered = slot().processId() != victim;
        } catch (const isopool::WorkerLost&) {
          // Its death was not yet seen when the call was sent.
        }
      }
      times.push_back(millisecondsSince(begin));
    }
    report("kill to " + subject, "latency", times);
  }

  /// From the worker's last instruction to the exception in the thread whose call was running.
  void measureCrash(isopool::ReplicatedObj& crash) {
    bench::announce("crash to WorkerLost");
    const at::Tensor died = isopool::empty({1}, at::kDouble);
    std::vector<double> times;
    for (int i = 0; i < (options_.quick ? 5 : 20); ++i) {
      settle();
      auto session = crash.acquireSession(&slot());
      try {
        session.self({at::IValue(died)});
      } catch (const isopool::WorkerLost&) {
        const auto now = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
        times.push_back((now - died.item<double>()) * 1e3);
      }
    }
    report("crash to WorkerLost", "latency", times);
  }

  /// From a kill to the exception in the thread whose call was running.
  void measureTold(isopool::ReplicatedObj& wait) {
    bench::announce("kill to WorkerLost");
    std::vector<double> times;
    for (int i = 0; i < (options_.quick ? 5 : 20); ++i) {
      settle();
      auto session = wait.acquireSession(&slot());
      const int victim = slot().processId().value();
      Clock::time_point begin;
      std::thread killer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        begin = Clock::now();
        ::kill(victim, SIGKILL);
      });
      double told = 0;
      try {
        session.self(at::ArrayRef<at::IValue>{});
      } catch (const isopool::WorkerLost&) {
        told = millisecondsSince(begin);
      }
      killer.join();
      times.push_back(told);
    }
    report("kill to WorkerLost", "latency", times);
  }

  /// The pool is whole, and its spare has had the time that a worker that lives a while gives it.
  void settle() {
    callModel(identity_, slot());
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }

  const Options options_;
  const at::Tensor input_ = isopool::empty({16}).fill_(1.0f);
  isopool::InterpreterManager manager_;
  isopool::ReplicatedObj identity_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("How fast a pool is ready and a dead worker is replaced.");
  Options options;
  app.add_option("--packages", options.packages, "folder with calls.pt and weights-N.pt")
      ->required();
  app.add_option("--megabytes", options.megabytes, "N of the large model")->capture_default_str();
  app.add_flag("--quick", options.quick, "fewer repetitions");
  CLI11_PARSE(app, argc, argv);
  try {
    measurePools(options);
    Replacement(options).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "start: %s\n", error.what());
    return 1;
  }
}
