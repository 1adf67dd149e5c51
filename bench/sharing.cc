// SPDX-License-Identifier: BSD-3-Clause
// Three programs on one supervisor with two workers: the first calls with large tensors without a
// pause, from two threads; the second makes a small call every 10 ms; the third is killed, stopped
// and started again at random. How much larger is the second one's 99th percentile than the length
// of the call that runs at that time plus its own cost? And what is left when all have ended?
#include <ATen/ATen.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/child_process.h"
#include "bench/process_tree.h"
#include "bench/row.h"
#include "bench/shared_supervisor.h"
#include "bench/statistics.h"
#include "isopool/isopool.h"

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct Options {
  std::string packages;
  std::string role;
  std::string supervisor = ISOPOOL_BENCH_SUPERVISOR;
  uint32_t seed = 1;
  double seconds = 20;
  bool quick = false;
};

double microsecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// ---- the programs ----------------------------------------------------------------------------

std::atomic<bool> told{false};

/// The result of a program: a line that it prints for its parent when it is asked to end.
struct Tally {
  uint64_t wrong = 0;
  uint64_t failed = 0;
  std::vector<double> times;  ///< the times of calls, in microseconds
};

void call(isopool::ReplicatedObj& model, const at::Tensor& input, float expected, Tally& tally) {
  const auto begin = Clock::now();
  try {
    const at::Tensor result = model({input}).toTensor();
    tally.times.push_back(microsecondsSince(begin));
    const auto* data = result.data_ptr<float>();
    if (result.numel() != input.numel() || data[0] != expected ||
        data[result.numel() - 1] != expected) {
      ++tally.wrong;
    }
  } catch (const isopool::Error& error) {
    ++tally.failed;
    std::fprintf(stderr, "sharing: %s\n", error.what());
  }
}

Tally callAgainAndAgain(isopool::InterpreterManager& manager, const Options& options,
                        const char* object, float added, int64_t elements, milliseconds pause) {
  isopool::ReplicatedObj model = manager.loadPackage(options.packages + "/calls.pt")
                                     .loadPickle("model", std::string(object) + ".pkl");
  Tally tally;
  const at::Tensor input = isopool::empty({elements});
  float value = 0;
  while (!told) {
    value = value >= 1000 ? 0 : value + 1;
    input.data_ptr<float>()[0] = value;
    input.data_ptr<float>()[elements - 1] = value;
    call(model, input, value + added, tally);
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
  }
  return tally;
}

int beProgram(const Options& options) {
  ::signal(SIGTERM, [](int) { told = true; });
  isopool::InterpreterManager manager(2);
  std::vector<Tally> tallies(1);
  if (options.role == "sparse") {
    tallies[0] = callAgainAndAgain(manager, options, "identity", 0, 16, milliseconds(10));
  } else if (options.role == "greedy") {
    tallies.resize(2);
    std::vector<std::thread> threads;
    for (Tally& tally : tallies) {
      threads.emplace_back(
          [&] { tally = callAgainAndAgain(manager, options, "add_one", 1, 25'000'000 / 4, {}); });
    }
    for (std::thread& thread : threads) thread.join();
  } else {
    tallies[0] = callAgainAndAgain(manager, options, "add_one", 1, 250'000, {});
  }
  Tally all;
  for (const Tally& each : tallies) {
    all.wrong += each.wrong;
    all.failed += each.failed;
    all.times.insert(all.times.end(), each.times.begin(), each.times.end());
  }
  std::printf("%llu %llu", static_cast<unsigned long long>(all.wrong),
              static_cast<unsigned long long>(all.failed));
  for (const double time : all.times) std::printf(" %.1f", time);
  std::printf("\n");
  return 0;
}

// ---- the parent of the programs --------------------------------------------------------------

/// One of the three programs. It prints its tally when it is asked to end.
class Program {
 public:
  Program(const std::vector<std::string>& words, const std::string& output)
      : output_(output), process_(words, output) {}

  void signal(int number) const { process_.signal(number); }
  void end(int number) { process_.end(number); }
  Tally tally() {
    end(SIGTERM);
    Tally tally;
    std::ifstream file(output_);
    if (!(file >> tally.wrong >> tally.failed))
      throw std::runtime_error("a program printed no result");
    for (double time = 0; file >> time;) tally.times.push_back(time);
    return tally;
  }

 private:
  const std::string output_;
  bench::ChildProcess process_;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), random_(options.seed), supervisor_(options.supervisor) {}

  int run() {
    const milliseconds alone(options_.quick ? 2000 : 5000);
    bench::announce("a sparse program alone");
    auto sparse = program("sparse");
    std::this_thread::sleep_for(alone);
    const Tally own = sparse->tally();
    bench::announce("a greedy program alone");
    auto greedy = program("greedy");
    std::this_thread::sleep_for(alone);
    const Tally running = greedy->tally();

    settle();
    const size_t descriptors = descriptorsOfAll();
    const uint64_t shared = bench::systemSharedBytes();

    bench::announce("three programs");
    sparse = program("sparse");
    greedy = program("greedy");
    const int blows = harass(std::chrono::duration_cast<milliseconds>(
        std::chrono::duration<double>(options_.quick ? 6 : options_.seconds)));
    const Tally shares = sparse->tally();
    const Tally greeds = greedy->tally();
    settle();

    const double cost = bench::quantile(own.times, 0.99);
    print("sparse, alone", "p50", bench::quantile(own.times, 0.5));
    print("sparse, alone", "p99", cost);
    print("greedy call of 25 MB, alone, 2 threads", "p50", bench::quantile(running.times, 0.5));
    print("greedy call of 25 MB, alone, 2 threads", "p99", bench::quantile(running.times, 0.99));
    print("sparse, with the other two", "p50", bench::quantile(shares.times, 0.5));
    const double p99 = bench::quantile(shares.times, 0.99);
    const double calls = bench::quantile(greeds.times, 0.99);
    bench::print({"sharing",
                  "isopool",
                  "sparse, with the other two",
                  "p99",
                  "us",
                  p99,
                  {},
                  "a greedy call there (p99) + sparse alone (p99)",
                  p99 / (calls + cost)});
    print("greedy call of 25 MB, with the other two", "p50", bench::quantile(greeds.times, 0.5));
    print("greedy call of 25 MB, with the other two", "p99", calls);
    count("sparse, with the other two", "calls", shares.times.size());
    count("greedy, with the other two", "calls", greeds.times.size());
    count("all", "wrong answers", own.wrong + running.wrong + shares.wrong + greeds.wrong);
    count("sparse and greedy", "failed calls",
          own.failed + running.failed + shares.failed + greeds.failed);
    count("victim", "kills and stops", static_cast<uint64_t>(blows));
    const size_t after = descriptorsOfAll();
    count("all", "leaked descriptors", after > descriptors ? after - descriptors : 0);
    const uint64_t sharedAfter = bench::systemSharedBytes();
    count("all", "leaked shared memory MB",
          sharedAfter > shared ? (sharedAfter - shared) >> 20 : 0);
    return 0;
  }

 private:
  std::unique_ptr<Program> program(const std::string& role) {
    return std::make_unique<Program>(
        std::vector<std::string>{std::filesystem::read_symlink("/proc/self/exe"), "--packages",
                                 options_.packages, "--role", role},
        supervisor_.folder() + "/" + role);
  }

  // Kills and stops the third program until the time is over.
  int harass(milliseconds time) {
    const auto end = Clock::now() + time;
    int blows = 0;
    auto victim = program("victim");
    while (Clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(pick(100, 900)));
      ++blows;
      if (pick(0, 1) == 0) {
        victim->end(SIGKILL);
        victim = program("victim");
        continue;
      }
      victim->signal(SIGSTOP);
      std::this_thread::sleep_for(milliseconds(pick(10, 1000)));
      victim->signal(SIGCONT);
    }
    return blows;
  }

  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }

  // The remains of a dead program must be gone within a second.
  void settle() const { std::this_thread::sleep_for(milliseconds(1500)); }

  size_t descriptorsOfAll() const {
    size_t all = 0;
    for (const pid_t pid : bench::descendantsOf(supervisor_.pid())) {
      all += bench::descriptorsOf(pid);
    }
    return all;
  }

  static void print(const char* subject, const char* metric, double value) {
    bench::print({"sharing", "isopool", subject, metric, "us", value, {}, "", {}});
  }
  static void count(const char* subject, const char* metric, uint64_t value) {
    bench::print(
        {"sharing", "isopool", subject, metric, "", static_cast<double>(value), {}, "", {}});
  }

  const Options options_;
  std::mt19937 random_;
  bench::SharedSupervisor supervisor_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Three programs on one supervisor: what does one's greed cost another?");
  Options options;
  app.add_option("--packages", options.packages, "folder with calls.pt")->required();
  app.add_option("--seconds", options.seconds, "how long the three run together")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of kills and stops")->capture_default_str();
  app.add_option("--role", options.role, "be one of the programs (used by this one)");
  app.add_flag("--quick", options.quick, "shorter");
  CLI11_PARSE(app, argc, argv);
  try {
    return options.role.empty() ? Bench(options).run() : beProgram(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sharing: %s\n", error.what());
    return 1;
  }
}
