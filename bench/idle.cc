// SPDX-License-Identifier: BSD-3-Clause
// What an idle pool costs: the processor time of all its processes, and how often they wake.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "bench/process_tree.h"
#include "bench/row.h"
#include "isopool/isopool.h"

namespace {

using Clock = std::chrono::steady_clock;

void measure(size_t workers, std::chrono::seconds duration) {
  const std::string name = "pool of " + std::to_string(workers);
  bench::announce(name);
  isopool::InterpreterManager manager(workers);
  for (const auto& interpreter : manager.allInstances()) {
    interpreter.acquireSession().fromIValue(1).toIValue();
  }
  const int worker = manager.allInstances()[0].processId().value();
  const pid_t supervisor = bench::parentOf(worker);
  // The first spare is made after the pool is ready.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  std::vector<pid_t> processes = bench::descendantsOf(supervisor);
  processes.push_back(supervisor);
  // Excludes this thread, which sleeps itself.
  const auto activity = [&] {
    bench::Activity all = bench::activityOf(processes);
    all += bench::activityOf({::getpid()});
    all -= bench::activityOfThread(::getpid());
    return all;
  };
  // Waits until the pool has finished the work of its start, which takes longer on a busy machine.
  const auto late = Clock::now() + std::chrono::seconds(20);
  for (uint64_t seen = 0, now = 1; seen != now && Clock::now() < late;) {
    seen = activity().voluntarySwitches;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    now = activity().voluntarySwitches;
  }
  const bench::Activity before = activity();
  const auto begin = Clock::now();
  std::this_thread::sleep_for(duration);
  bench::Activity during = activity();
  const std::chrono::duration<double> took = Clock::now() - begin;
  during -= before;
  const double seconds = took.count();
  bench::print({"idle",
                "isopool",
                name,
                "core_share",
                "%",
                during.processorSeconds / seconds * 100,
                {},
                "",
                {}});
  bench::print({"idle",
                "isopool",
                name,
                "context_switches",
                "1/s",
                static_cast<double>(during.voluntarySwitches) / seconds,
                {},
                "",
                {}});
  bench::print({"idle",
                "isopool",
                name,
                "processes",
                "",
                static_cast<double>(processes.size()),
                {},
                "",
                {}});
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What an idle pool costs.");
  bool quick = false;
  app.add_flag("--quick", quick, "shorter");
  CLI11_PARSE(app, argc, argv);
  try {
    for (const size_t workers : {1, 8, 32}) {
      measure(workers, std::chrono::seconds(quick ? 2 : 10));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "idle: %s\n", error.what());
    return 1;
  }
  return 0;
}
