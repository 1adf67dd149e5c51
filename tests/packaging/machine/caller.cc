// SPDX-License-Identifier: BSD-3-Clause
// A program of a user: calls a model of the shared supervisor until SIGTERM, from several threads,
// and prints each second what became of the calls, as one line of JSON.
#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "isopool/isopool.h"

namespace {

using Clock = std::chrono::steady_clock;

/// What became of all calls so far.
class Outcomes {
 public:
  void answered(bool right, Clock::duration time) {
    const std::lock_guard lock(mutex_);
    ++counts_[right ? "right" : "wrong"];
    longest_ = std::max(longest_, time);
  }
  void failed(const std::string& how, const std::string& text) {
    const std::lock_guard lock(mutex_);
    ++counts_[how];
    std::cerr << how << ": " << text << std::endl;
  }
  std::string json() {
    const std::lock_guard lock(mutex_);
    std::string line = "{";
    for (const auto& [name, count] : counts_)
      line += "\"" + name + "\": " + std::to_string(count) + ", ";
    const std::chrono::duration<double> seconds = longest_;
    return line + "\"longest_s\": " + std::to_string(seconds.count()) + "}";
  }

 private:
  std::mutex mutex_;
  std::map<std::string, uint64_t> counts_{{"right", 0},        {"wrong", 0},
                                          {"worker_lost", 0},  {"started_lost", 0},
                                          {"waiting_lost", 0}, {"other", 0}};
  Clock::duration longest_{};
};

void call(const isopool::ReplicatedObj& model, double number, double seconds, Outcomes& outcomes) {
  const Clock::time_point begin = Clock::now();
  try {
    const at::Tensor x = at::full({16}, number);
    const at::Tensor doubled = model({x, seconds}).toTensor();
    outcomes.answered(at::equal(doubled, x * 2.0), Clock::now() - begin);
  } catch (const isopool::WorkerLost& error) {
    outcomes.failed("worker_lost", error.what());
  } catch (const isopool::SupervisorLost& error) {
    outcomes.failed(error.started() ? "started_lost" : "waiting_lost", error.what());
  } catch (const std::exception& error) {
    outcomes.failed("other", error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: caller PACKAGE THREADS SECONDS   (SECONDS: how long each call takes)\n";
    return 2;
  }
  const int threadCount = std::stoi(argv[2]);
  const double secondsPerCall = std::stod(argv[3]);
  // Before any other thread exists, so that each inherits it.
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);

  Outcomes outcomes;
  isopool::InterpreterManager pool(2);
  isopool::Package package = pool.loadPackage(argv[1]);
  const isopool::ReplicatedObj model = package.loadPickle("model", "model.pkl");
  std::atomic<bool> ended = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < threadCount; ++i)
    threads.emplace_back([&, i] {
      for (double number = i; !ended; number += 1) call(model, number, secondsPerCall, outcomes);
    });
  constexpr timespec kSecond{1, 0};
  do std::cout << outcomes.json() << std::endl;
  while (sigtimedwait(&ending, nullptr, &kSecond) != SIGTERM);
  ended = true;
  for (std::thread& thread : threads) thread.join();
  std::cout << outcomes.json() << std::endl;
}
