// SPDX-License-Identifier: BSD-3-Clause
// A hundred million calls of mixed sizes from three programs on one supervisor with two workers,
// while workers are killed and stopped and the third program is killed and started again. Is each
// answer right? Do memory, descriptors and shared memory grow from the first calls to the last?
#include <ATen/ATen.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <stdexcept>
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

constexpr size_t kPrograms = 3;
constexpr size_t kKilled = 2;  // the program that is killed; the others live from start to end
constexpr size_t kThreads = 2;

struct Options {
  std::string packages;
  std::string counts;
  std::string supervisor = ISOPOOL_BENCH_SUPERVISOR;
  size_t role = kPrograms;
  uint64_t calls = 100'000'000;
  uint32_t seed = 1;
  bool quick = false;
};

/// What a program has done, in a file that all map: it survives the program's death.
struct Counts {
  std::atomic<uint64_t> answered;
  std::atomic<uint64_t> wrong;
  std::atomic<uint64_t> lost;    ///< calls whose worker died while it ran them (WorkerLost)
  std::atomic<uint64_t> failed;  ///< calls that failed in another way
};
using AllCounts = std::array<Counts, kPrograms>;

AllCounts& mapCounts(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(AllCounts)) != 0) {
    throw std::runtime_error("can't make " + path);
  }
  void* memory = ::mmap(nullptr, sizeof(AllCounts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) throw std::runtime_error("can't map " + path);
  return *static_cast<AllCounts*>(memory);
}

// ---- the programs ----------------------------------------------------------------------------

std::atomic<bool> asked{false};

/// A kind of call: how many floats it sends, and how many of 1,000 calls are of this kind.
struct Size {
  int64_t elements;
  int share;
};
constexpr std::array<Size, 4> kSizes{{{16, 900}, {1024, 80}, {16 * 1024, 19}, {256 * 1024, 1}}};

/// One thread's calls: each to one of two models, with an input of its own size.
class Caller {
 public:
  Caller(isopool::ReplicatedObj identity, isopool::ReplicatedObj addOne, uint32_t seed,
         Counts& counts)
      : identity_(std::move(identity)), addOne_(std::move(addOne)), random_(seed), counts_(counts) {
    for (const Size& size : kSizes) inputs_.push_back(isopool::empty({size.elements}));
  }

  void run() {
    while (!asked) call();
  }

 private:
  void call() {
    const at::Tensor& input = inputs_[pick()];
    const int64_t last = input.numel() - 1;
    value_ = value_ >= 1000 ? 0 : value_ + 1;
    input.data_ptr<float>()[0] = value_;
    input.data_ptr<float>()[last] = value_;
    const bool adds = static_cast<int>(value_) % 2 != 0;
    try {
      const at::Tensor result = (adds ? addOne_ : identity_)({input}).toTensor();
      const float expected = adds ? value_ + 1 : value_;
      const auto* data = result.data_ptr<float>();
      const bool right =
          result.numel() == last + 1 && data[0] == expected && data[last] == expected;
      (right ? counts_.answered : counts_.wrong).fetch_add(1, std::memory_order_relaxed);
    } catch (const isopool::WorkerLost&) {
      counts_.lost.fetch_add(1, std::memory_order_relaxed);
    } catch (const isopool::Error& error) {
      counts_.failed.fetch_add(1, std::memory_order_relaxed);
      std::fprintf(stderr, "endurance: %s\n", error.what());
    }
  }

  size_t pick() {
    int left = static_cast<int>(random_() % 1000);
    size_t kind = 0;
    while (left >= kSizes[kind].share) left -= kSizes[kind++].share;
    return kind;
  }

  isopool::ReplicatedObj identity_, addOne_;
  std::minstd_rand random_;
  Counts& counts_;
  std::vector<at::Tensor> inputs_;
  float value_ = 0;
};

int beProgram(const Options& options) {
  ::signal(SIGTERM, [](int) { asked = true; });
  Counts& counts = mapCounts(options.counts).at(options.role);
  isopool::InterpreterManager manager(2);
  isopool::Package package = manager.loadPackage(options.packages + "/calls.pt");
  const isopool::ReplicatedObj identity = package.loadPickle("model", "identity.pkl");
  const isopool::ReplicatedObj addOne = package.loadPickle("model", "add_one.pkl");
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, seed = options.seed + static_cast<uint32_t>(i)] {
      Caller(identity, addOne, seed, counts).run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}

// ---- the parent of the programs --------------------------------------------------------------

/// What the supervisor, its processes and the two programs that live throughout use at one time.
struct Sample {
  uint64_t calls = 0;
  double residentMegabytes = 0;
  double descriptors = 0;
  double sharedMegabytes = 0;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), random_(options.seed), supervisor_(options.supervisor) {
    counts_ = &mapCounts(supervisor_.folder() + "/counts");
  }

  int run() {
    const uint64_t wanted =
        options_.quick ? std::min<uint64_t>(options_.calls, 1'000'000) : options_.calls;
    const auto begin = Clock::now();
    for (size_t role = 0; role < kPrograms; ++role) start(role);
    std::vector<Sample> samples;
    uint64_t attacks = 0;
    uint64_t calls = 0;
    auto nextAttack = begin + milliseconds(5000);
    auto moved = begin;
    while (calls < wanted) {
      std::this_thread::sleep_for(milliseconds(100));
      const uint64_t now = callsMade();
      if (now != calls) moved = Clock::now();
      if (Clock::now() - moved > std::chrono::minutes(1)) {
        throw std::runtime_error("no call has ended for a minute");
      }
      calls = now;
      // A hundred samples between the first and the last call.
      if (calls >= wanted / 100 * (samples.size() + 1)) {
        samples.push_back(sample(calls));
        bench::announce(std::to_string(calls / 1000) + " of " + std::to_string(wanted / 1000) +
                        " thousand calls");
      }
      if (Clock::now() < nextAttack) continue;
      attack();
      ++attacks;
      nextAttack = Clock::now() + milliseconds(pick(1000, 4000));
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    for (size_t role = 0; role < kPrograms; ++role) {
      if (!programs_[role]->runs()) throw std::runtime_error("a program has ended by itself");
      programs_[role]->end(SIGTERM);
    }
    if (!supervisor_.process().runs())
      throw std::runtime_error("the supervisor has ended by itself");

    count("calls answered right", sum(&Counts::answered));
    count("wrong answers", sum(&Counts::wrong));
    count("calls lost with their worker", sum(&Counts::lost));
    count("other failures", sum(&Counts::failed));
    count("kills and stops", attacks);
    print("time", "s", seconds);
    print("calls per second", "", static_cast<double>(calls) / seconds);
    drift(samples, "resident memory", "MB", &Sample::residentMegabytes);
    drift(samples, "descriptors", "", &Sample::descriptors);
    drift(samples, "shared memory of the system", "MB", &Sample::sharedMegabytes);
    return 0;
  }

 private:
  void start(size_t role) {
    programs_[role].reset();
    programs_[role] = std::make_unique<bench::ChildProcess>(
        std::vector<std::string>{std::filesystem::read_symlink("/proc/self/exe"), "--packages",
                                 options_.packages, "--counts", supervisor_.folder() + "/counts",
                                 "--seed", std::to_string(random_() % 1'000'000), "--role",
                                 std::to_string(role)},
        supervisor_.folder() + "/program-" + std::to_string(role));
  }

  void attack() {
    const int kind = pick(0, 4);
    if (kind == 0) {
      programs_[kKilled]->end(SIGKILL);
      return start(kKilled);
    }
    const std::vector<pid_t> workers = workersOfSlots();
    if (workers.empty()) return;
    const pid_t worker = workers[static_cast<size_t>(pick(0, 1'000'000)) % workers.size()];
    if (kind <= 2) {
      ::kill(worker, SIGKILL);
      return;
    }
    const auto stop = [&](int number) {
      kind == 3 ? (void)::kill(worker, number) : programs_[kKilled]->signal(number);
    };
    stop(SIGSTOP);
    std::this_thread::sleep_for(milliseconds(pick(1, 300)));
    stop(SIGCONT);
  }

  // The workers that have a slot: their title is "isopool-worker: worker SLOT of ...".
  std::vector<pid_t> workersOfSlots() const {
    std::vector<pid_t> workers;
    for (const pid_t pid : bench::descendantsOf(supervisor_.pid())) {
      std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
      const std::string title(std::istreambuf_iterator<char>(file), {});
      if (title.find(": worker ") != std::string::npos) workers.push_back(pid);
    }
    return workers;
  }

  Sample sample(uint64_t calls) const {
    Sample sample{calls, 0, 0, static_cast<double>(bench::systemSharedBytes()) / 1e6};
    std::vector<pid_t> processes = bench::descendantsOf(supervisor_.pid());
    processes.push_back(supervisor_.pid());
    for (size_t role = 0; role < kPrograms; ++role) {
      if (role != kKilled) processes.push_back(programs_[role]->pid());
    }
    for (const pid_t pid : processes) {
      sample.residentMegabytes += static_cast<double>(bench::residentBytesOf(pid)) / 1e6;
      sample.descriptors += static_cast<double>(bench::descriptorsOf(pid));
    }
    return sample;
  }

  uint64_t sum(std::atomic<uint64_t> Counts::*field) const {
    uint64_t all = 0;
    for (const Counts& counts : *counts_) all += (counts.*field).load(std::memory_order_relaxed);
    return all;
  }
  uint64_t callsMade() const {
    return sum(&Counts::answered) + sum(&Counts::wrong) + sum(&Counts::lost) + sum(&Counts::failed);
  }

  // Compares the last tenth of the samples with the second one: in the first tenth, memory for
  // results and inputs still grows to the size that the load needs.
  void drift(const std::vector<Sample>& samples, const std::string& what, const char* unit,
             double Sample::*field) const {
    const size_t tenth = samples.size() / 10;
    const auto median = [&](size_t from) {
      std::vector<double> values;
      for (size_t i = from; i < from + tenth; ++i) values.push_back(samples[i].*field);
      return bench::quantile(values, 0.5);
    };
    const double early = median(tenth);
    const double late = median(samples.size() - tenth);
    print(what + ", second tenth", unit, early);
    bench::print({"endurance",
                  "isopool",
                  "three programs",
                  what + ", last tenth",
                  unit,
                  late,
                  {},
                  "the second tenth",
                  late / early});
  }

  static void print(const std::string& metric, const char* unit, double value) {
    bench::print({"endurance", "isopool", "three programs", metric, unit, value, {}, "", {}});
  }
  static void count(const std::string& metric, uint64_t value) {
    print(metric, "", static_cast<double>(value));
  }
  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }

  const Options options_;
  std::mt19937 random_;
  AllCounts* counts_ = nullptr;
  bench::SharedSupervisor supervisor_;
  std::array<std::unique_ptr<bench::ChildProcess>, kPrograms> programs_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Many calls from three programs under attack: does anything grow?");
  Options options;
  app.add_option("--packages", options.packages, "folder with calls.pt")->required();
  app.add_option("--calls", options.calls, "how many calls in all (at least 1000)")
      ->check(CLI::Range(uint64_t{1000}, uint64_t{1} << 60))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of kills, stops and sizes")->capture_default_str();
  app.add_option("--role", options.role, "be one of the programs (used by this one)");
  app.add_option("--counts", options.counts, "the file of counts (used by this one)");
  app.add_flag("--quick", options.quick, "at most a million calls");
  CLI11_PARSE(app, argc, argv);
  try {
    return options.role < kPrograms ? beProgram(options) : Bench(options).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "endurance: %s\n", error.what());
    return 1;
  }
}
