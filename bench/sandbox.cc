// SPDX-License-Identifier: BSD-3-Clause
// What the levels of a worker's sandbox cost: the same calls to one worker of each level. The
// levels take turns, round by round, so that all see the same load of the machine.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/row.h"
#include "bench/statistics.h"
#include "isopool/isopool.h"

namespace {

using Clock = std::chrono::steady_clock;

/// A pool of one worker. Each level has another environment, so no two levels share a supervisor.
class Level {
 public:
  Level(const char* name, const std::string& file) : name_(name) {
    ::setenv("ISOPOOL_SANDBOX", name, 1);
    manager_ = std::make_unique<isopool::InterpreterManager>(1);
    package_ = std::make_unique<isopool::Package>(manager_->loadPackage(file));
  }
  const char* name() const { return name_; }
  isopool::ReplicatedObj load(const char* pickle) { return package_->loadPickle("model", pickle); }
  /// The microseconds of one Python statement.
  double timeStatement(const char* statement, const char* preparation) {
    constexpr int64_t kTimes = 20'000;
    isopool::InterpreterSession session = manager_->acquireOne();
    const isopool::Obj timed =
        session.global("timeit", "timeit")
            .callKwargs({statement, preparation}, {{"number", at::IValue(kTimes)}});
    return timed.toIValue().toDouble() / kTimes * 1e6;
  }

 private:
  const char* name_;
  std::unique_ptr<isopool::InterpreterManager> manager_;
  std::unique_ptr<isopool::Package> package_;
};

struct Case {
  std::string name;
  std::function<double(Level&)> measure;  ///< measures one round, in microseconds
};

double medianCall(const isopool::ReplicatedObj& model, const at::Tensor& input, size_t calls) {
  std::vector<double> times;
  for (size_t i = 0; i < calls; ++i) {
    const auto begin = Clock::now();
    if (model({at::IValue(input)}).toTensor().numel() != input.numel()) {
      throw std::runtime_error("a call gave a wrong result");
    }
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  return bench::quantile(times, 0.5);
}

void run(const std::string& folder, bool quick) {
  std::vector<std::unique_ptr<Level>> levels;
  for (const char* name : {"none", "default", "strict"}) {
    levels.push_back(std::make_unique<Level>(name, folder + "/calls.pt"));
  }
  const size_t rounds = quick ? 5 : 15;
  const size_t calls = quick ? 500 : 3000;
  std::vector<Case> cases;
  for (const auto& [name, pickle] :
       {std::pair{"identity 64 B shared", "identity.pkl"}, {"made 64 B shared", "add_one.pkl"}}) {
    std::vector<isopool::ReplicatedObj> models;
    for (auto& level : levels) models.push_back(level->load(pickle));
    const at::Tensor input = isopool::empty({16}).fill_(1.5f);
    cases.push_back({name, [models, input, calls, &levels](Level& level) {
                       for (size_t i = 0; i < levels.size(); ++i) {
                         if (levels[i].get() == &level) return medianCall(models[i], input, calls);
                       }
                       return 0.0;
                     }});
  }
  for (const auto& [name, statement] :
       {std::pair{"system call that no rule names (getppid)", "os.getppid()"},
        {"system call with a rule for its arguments (fcntl)", "fcntl.fcntl(0, fcntl.F_GETFD)"},
        {"open and close /dev/null", "os.close(os.open('/dev/null', 0))"}}) {
    cases.push_back({name, [statement](Level& level) {
                       return level.timeStatement(statement, "import os, fcntl");
                     }});
  }
  for (const Case& each : cases) {
    bench::announce(each.name);
    std::vector<std::vector<double>> times(levels.size());
    for (auto& level : levels) each.measure(*level);
    for (size_t round = 0; round < rounds; ++round) {
      for (size_t i = 0; i < levels.size(); ++i) times[i].push_back(each.measure(*levels[i]));
    }
    const double yardstick = bench::summarize(times[0]).median;
    for (size_t i = 0; i < levels.size(); ++i) {
      const bench::Summary summary = bench::summarize(times[i]);
      bench::print({"sandbox", levels[i]->name(), each.name, "p50", "us", summary.median,
                    summary.spread, "none", summary.median / yardstick});
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What the levels of a worker's sandbox cost.");
  std::string packages;
  bool quick = false;
  app.add_option("--packages", packages, "folder with calls.pt")->required();
  app.add_flag("--quick", quick, "fewer repetitions");
  CLI11_PARSE(app, argc, argv);
  try {
    run(packages, quick);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sandbox: %s\n", error.what());
    return 1;
  }
  return 0;
}
