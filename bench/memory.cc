// SPDX-License-Identifier: BSD-3-Clause
// The memory of workers: private memory of each worker, and one large model's weights in all
// workers.
#include <ATen/ATen.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/latency.h"
#include "bench/process_tree.h"
#include "bench/row.h"
#include "bench/statistics.h"
#include "isopool/isopool.h"

namespace {

struct Options {
  std::string packages;
  std::string model;
  size_t workers = 8;
  size_t megabytes = 1000;
};

constexpr size_t kMegabytesPerLayer = 4;  // the same as in weights.py
constexpr size_t kLayersWritten = 25;

std::vector<pid_t> workersOf(isopool::InterpreterManager& manager) {
  std::vector<pid_t> workers;
  for (const isopool::Interpreter& interpreter : manager.allInstances()) {
    workers.push_back(interpreter.processId().value());
  }
  return workers;
}

/// Workers, zygote and spare: all processes with Python.
std::vector<pid_t> processesOf(isopool::InterpreterManager& manager) {
  return bench::childrenOf(bench::parentOf(workersOf(manager).front()));
}

void callOnEach(isopool::InterpreterManager& manager, const isopool::ReplicatedObj& model,
                const at::Tensor& input) {
  for (const isopool::Interpreter& interpreter : manager.allInstances()) {
    model.acquireSession(&interpreter).self({at::IValue(input)}).toIValue();
  }
}

void reportOwn(const char* subject, const std::vector<pid_t>& workers) {
  std::vector<double> own;
  for (const pid_t worker : workers) own.push_back(bench::memoryOf(worker).own);
  const bench::Summary summary = bench::summarize(own);
  bench::print(
      {"memory", "isopool", subject, "private", "MB", summary.median, summary.spread, "", {}});
}

/// Measures writes to weights that all workers map: the first write to a page copies the page for
/// the writing worker.
void measureWrites(isopool::InterpreterManager& manager, const isopool::ReplicatedObj& model) {
  constexpr double kMegabytes = kLayersWritten * kMegabytesPerLayer;
  std::vector<double> first, again, own;
  for (const isopool::Interpreter& interpreter : manager.allInstances()) {
    bench::announce("writes to weights of worker " + std::to_string(first.size()));
    const pid_t worker = interpreter.processId().value();
    const isopool::Obj write = model.acquireSession(&interpreter).self.attr("write");
    const double before = bench::memoryOf(worker).own;
    for (std::vector<double>* times : {&first, &again}) {
      times->push_back(bench::microsecondsOf(
                           [&] { write({at::IValue(static_cast<int64_t>(kLayersWritten))}); }) /
                       kMegabytes);
    }
    own.push_back((bench::memoryOf(worker).own - before) / kMegabytes);
  }
  const auto report = [](const char* subject, const char* metric, const char* unit,
                         const std::vector<double>& values) {
    const bench::Summary summary = bench::summarize(values);
    bench::print(
        {"memory", "isopool", subject, metric, unit, summary.median, summary.spread, "", {}});
  };
  report("first write to a weight", "private_per_MB", "MB", own);
  report("first write to a weight", "time_per_MB", "us", first);
  report("later writes to a weight", "time_per_MB", "us", again);
}

void measure(const Options& options) {
  const std::string calls = options.packages + "/calls.pt";
  const std::string weights =
      options.packages + "/weights-" + std::to_string(options.megabytes) + ".pt";
  const std::string pool = std::to_string(options.workers) + " workers, zygote and spare";
  const at::Tensor input = isopool::empty({16}).fill_(1.0f);

  bench::announce("pool of " + std::to_string(options.workers) + " with no model");
  isopool::InterpreterManager manager(options.workers);
  for (const auto& interpreter : manager.allInstances()) {
    interpreter.acquireSession().fromIValue(1).toIValue();
  }
  reportOwn("extra worker", workersOf(manager));
  auto small = manager.loadPackage(calls).loadPickle("model", "add_one.pkl");
  callOnEach(manager, small, input);
  reportOwn("extra worker with a small model", workersOf(manager));

  const double client = bench::memoryOf(::getpid()).proportional;
  const double without = bench::memoryOf(processesOf(manager)).proportional;
  bench::print({"memory", "isopool", pool + ", no model", "pss", "MB", without, {}, "", {}});

  bench::announce("the same with a model of " + std::to_string(options.megabytes) + " MB");
  auto large = options.model.empty()
                   ? manager.loadPackage(weights).loadPickle("model", "weights.pkl")
                   : manager.loadModel(options.model);
  callOnEach(manager, large, input);
  const double with = bench::memoryOf(processesOf(manager)).proportional;
  const double clientWith = bench::memoryOf(::getpid()).proportional;
  const double size = static_cast<double>(options.megabytes);
  const std::string held = ", " + std::to_string(options.megabytes) + " MB model";
  bench::print({"memory", "isopool", pool + held, "pss", "MB", with, {}, "", {}});
  bench::print({"memory",
                "isopool",
                pool + held,
                "pss_of_model",
                "MB",
                with - without,
                {},
                "weights",
                (with - without) / size});
  // The numbers above do not include the pages of the package that this program maps.
  bench::print({"memory",
                "isopool",
                pool + held + ", with the program itself",
                "pss_of_model",
                "MB",
                with - without + clientWith - client,
                {},
                "weights",
                (with - without + clientWith - client) / size});
  reportOwn("extra worker with a large model", workersOf(manager));
  if (options.model.empty()) measureWrites(manager, large);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Memory of a pool's processes, as /proc/PID/smaps_rollup tells it.");
  Options options;
  app.add_option("--packages", options.packages, "folder with calls.pt and weights-N.pt")
      ->required();
  app.add_option("--workers", options.workers, "workers of the pool")->capture_default_str();
  app.add_option("--megabytes", options.megabytes, "N of the large model")->capture_default_str();
  app.add_option(
      "--model", options.model,
      "a TorchScript file or a .pt2 with N megabytes of weights, called with 16 numbers, "
      "in place of weights-N.pt");
  CLI11_PARSE(app, argc, argv);
  try {
    measure(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "memory: %s\n", error.what());
    return 1;
  }
}
