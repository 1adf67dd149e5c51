// SPDX-License-Identifier: BSD-3-Clause

// C++ threads call a real classifier, written in Python, on isolated worker processes. Then the
// program kills one worker under load. Every number that it prints is measured in this run.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "examples/load.h"
#include "examples/picture_set.h"
#include "isopool/isopool.h"

namespace {

using examples::Guess;
using examples::Load;
using examples::LoadReport;
using examples::Picture;
using examples::PictureSet;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct Options {
  std::string folder;
  size_t workers = std::max(1u, std::thread::hardware_concurrency());
  size_t threads = 0;  // 0: two for each worker
  double seconds = 3;
  bool json = false;
};

/// A worker's death and its replacement, apart from the results of the callers.
struct Replacement {
  int victim = 0;
  int successor = 0;
  double ready = 0;        // milliseconds from the kill until the successor took calls
  double firstAnswer = 0;  // milliseconds from the kill until it answered a call
  uint64_t callsRerun = 0;
};

std::optional<Options> parse(int argc, char** argv, int& exitCode) {
  Options options;
  CLI::App app{
      "Classifies real pictures with EfficientNet-Lite0 (Python) from C++ threads, kills a worker "
      "process under load, and classifies again.\nExit code: 0 if every answer was right, 1 if "
      "not, "
      "2 if the pool failed."};
  app.add_option("folder", options.folder, "The folder that package_classifier.py --out wrote")
      ->required();
  app.add_option("--workers", options.workers, "Worker processes")->capture_default_str();
  app.add_option("--threads", options.threads, "Calling threads (default: two for each worker)");
  app.add_option("--seconds", options.seconds, "Duration of a measurement, in seconds")
      ->capture_default_str();
  app.add_flag("--json", options.json, "Print a summary as JSON on stdout, the report on stderr");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exitCode = app.exit(error) == 0 ? 0 : 2;
    return std::nullopt;
  }
  if (options.threads == 0) options.threads = 2 * options.workers;
  return options;
}

double millisecondsSince(steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(steady_clock::now() - start).count();
}

std::string plural(size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string indented(const std::string& text, const std::string& margin) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) result += margin + line + "\n";
  return result;
}

std::string pids(isopool::InterpreterManager& manager) {
  std::string list;
  for (const isopool::Interpreter& worker : manager.allInstances()) {
    if (!list.empty()) list += ", ";
    list += std::to_string(worker.processId().value_or(0));
  }
  return list;
}

/// Classifies all pictures at the same time, each on its own thread.
std::vector<Guess> classifyAll(const isopool::ReplicatedObj& model, const PictureSet& set) {
  std::vector<std::future<Guess>> answers;
  for (const Picture& picture : set.pictures()) {
    answers.push_back(std::async(std::launch::async, [&model, &set, &picture] {
      return set.guess(model({picture.pixels}).toTensor());
    }));
  }
  std::vector<Guess> guesses;
  for (std::future<Guess>& answer : answers) guesses.push_back(answer.get());
  return guesses;
}

/// Waits until the victim's slot has a new worker, and calls this worker once. Calls of other
/// threads may be answered before, so `firstAnswer` is an upper bound.
void awaitSuccessor(const isopool::ReplicatedObj& model, const Picture& picture,
                    const isopool::Interpreter& slot, steady_clock::time_point killed,
                    Replacement& replacement) {
  constexpr double kPatience = 30'000;
  // The slot has a new process ID as soon as the pool sends calls to it. A call would instead
  // measure when the worker has completed the calls of other threads.
  for (;;) {
    replacement.successor = slot.processId().value_or(replacement.victim);
    replacement.ready = millisecondsSince(killed);
    if (replacement.successor != replacement.victim) break;
    if (replacement.ready > kPatience)
      throw std::runtime_error("the worker was not replaced within 30 s");
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  isopool::InterpreterSession session = model.acquireSession(&slot);
  session.self({picture.pixels});
  replacement.firstAnswer = millisecondsSince(killed);
}

Replacement killAndWait(isopool::InterpreterManager& manager, const isopool::ReplicatedObj& model,
                        const Picture& picture) {
  const isopool::Interpreter& slot = manager.allInstances().front();
  const std::optional<int> victim = slot.processId();
  if (!victim) throw std::runtime_error("worker 0 has no process to kill");

  Replacement replacement;
  replacement.victim = *victim;
  const auto killed = steady_clock::now();
  if (::kill(*victim, SIGKILL) != 0) throw std::runtime_error("the worker can't be killed");
  awaitSuccessor(model, picture, slot, killed, replacement);
  return replacement;
}

/// Runs the steps, prints a report, and collects the figures of the summary.
class Demonstration {
 public:
  explicit Demonstration(const Options& options)
      : options_(options), out_(options.json ? stderr : stdout) {
    std::setvbuf(out_, nullptr, _IOLBF, 0);
  }

  /// True if every answer was right.
  bool run();

 private:
  void openPool();
  void classify(const char* heading);
  void measureLoad();
  void killWorkerUnderLoad();
  void tellWhatCallersSaw() const;
  void checkAnswers(const LoadReport& report);
  void printJson() const;
  bool killWentAsPromised() const;

  const Options options_;
  FILE* const out_;
  std::unique_ptr<isopool::InterpreterManager> manager_;
  isopool::ReplicatedObj model_;
  PictureSet set_;
  std::vector<Guess> guesses_;
  LoadReport load_;
  uint64_t bytesCopied_ = 0;
  LoadReport loadWithKill_;
  Replacement replacement_;
  double startSeconds_ = 0;
  bool allRight_ = true;
};

bool Demonstration::run() {
  openPool();
  classify("2. What do the pictures show?");
  measureLoad();
  killWorkerUnderLoad();
  classify("5. What do the pictures show now?");
  std::fprintf(out_, "\n%s\n",
               allRight_ ? "Every answer was right, before and after the kill."
                         : "NOT every answer was right: see above.");
  if (options_.json) printJson();
  return allRight_;
}

void Demonstration::openPool() {
  const std::string file = options_.folder + "/classifier.pt";
  std::fprintf(out_, "1. Opening %s with %s, each a process ...\n", file.c_str(),
               plural(options_.workers, "worker").c_str());
  const auto start = steady_clock::now();
  manager_ = std::make_unique<isopool::InterpreterManager>(options_.workers);
  startSeconds_ = millisecondsSince(start) / 1e3;
  isopool::Package package = manager_->loadPackage(file);
  model_ = package.loadPickle("model", "model.pkl");
  std::fprintf(out_, "   workers ready after %.2f s (pids %s), model after %.2f s\n", startSeconds_,
               pids(*manager_).c_str(), millisecondsSince(start) / 1e3);
  set_ = PictureSet::read(options_.folder);
  std::fprintf(out_, "   %s read into shared memory: %.1f MB of pixels\n",
               plural(set_.pictures().size(), "picture").c_str(), set_.payloadBytes() / 1e6);
}

void Demonstration::classify(const char* heading) {
  std::fprintf(out_, "\n%s\n", heading);
  guesses_ = classifyAll(model_, set_);
  for (size_t i = 0; i < guesses_.size(); ++i) {
    const Picture& picture = set_.pictures()[i];
    const Guess& guess = guesses_[i];
    const bool right = picture.isRight(guess);
    allRight_ = allRight_ && right;
    std::fprintf(out_, "   %-15s %-15s %5.1f %%   ", picture.name.c_str(), guess.label.c_str(),
                 100 * guess.confidence);
    std::fprintf(out_,
                 right ? "as in eager PyTorch\n" : "WRONG: eager PyTorch answers %s, %.1f %%\n",
                 picture.expected.label.c_str(), 100 * picture.expected.confidence);
  }
}

void Demonstration::measureLoad() {
  std::fprintf(out_, "\n3. %s in C++ calling for %g s, with no pause between calls ...\n",
               plural(options_.threads, "thread").c_str(), options_.seconds);
  const uint64_t copiedBefore = isopool::copyCounters().total();
  Load load(model_, set_, options_.threads);
  std::this_thread::sleep_for(std::chrono::duration<double>(options_.seconds));
  load_ = load.stop();
  bytesCopied_ = isopool::copyCounters().total() - copiedBefore;
  std::fprintf(out_, "   %.1f calls per second\n", load_.callsPerSecond());
  std::fprintf(out_, "   latency p50 %.1f ms, p99 %.1f ms, the wait for a free worker included\n",
               load_.latency(0.5), load_.latency(0.99));
  std::fprintf(out_,
               "   %.1f MB of pixels handed to Python, %.1f kB of payload copied on the way\n",
               load_.payloadBytes / 1e6, bytesCopied_ / 1e3);
  checkAnswers(load_);
}

void Demonstration::killWorkerUnderLoad() {
  std::fprintf(out_, "\n4. The same load, with a kill -9 of one worker ...\n");
  const uint64_t rerunBefore = manager_->callsRerun();
  Load load(model_, set_, options_.threads);
  std::this_thread::sleep_for(milliseconds(500));
  replacement_ = killAndWait(*manager_, model_, set_.pictures().front());
  std::this_thread::sleep_for(milliseconds(500));
  loadWithKill_ = load.stop();
  replacement_.callsRerun = manager_->callsRerun() - rerunBefore;
  tellWhatCallersSaw();
  checkAnswers(loadWithKill_);
  if (!killWentAsPromised()) allRight_ = false;
}

void Demonstration::tellWhatCallersSaw() const {
  const LoadReport& report = loadWithKill_;
  std::fprintf(out_, "   killed: pid %d\n   %s answered, the slowest after %.1f ms\n",
               replacement_.victim, plural(report.latencies.size(), "call").c_str(),
               report.slowest());
  std::fprintf(out_, "   %s retried on another worker, transparently for the caller\n",
               plural(replacement_.callsRerun, "waiting call").c_str());
  std::fprintf(out_, "   %s failed with isopool::WorkerLost%s\n",
               plural(report.lost.size(), "call").c_str(), report.lost.empty() ? "" : ":");
  for (const isopool::WorkerLost& lost : report.lost) {
    std::fputs(indented(lost.what(), "     | ").c_str(), out_);
  }
  std::fprintf(out_, "   replaced by pid %d: it took calls %.1f ms after the kill,\n",
               replacement_.successor, replacement_.ready);
  std::fprintf(out_, "   and answered its first call %.1f ms after the kill\n",
               replacement_.firstAnswer);
}

/// True if at most one call failed: the one that the victim was running, with an error that
/// names it.
bool Demonstration::killWentAsPromised() const {
  const std::vector<isopool::WorkerLost>& lost = loadWithKill_.lost;
  const bool promised = lost.empty() || (lost.size() == 1 && lost.front().started() &&
                                         lost.front().processId() == replacement_.victim);
  if (!promised)
    std::fprintf(out_, "   WRONG: only the call that pid %d was running may fail\n",
                 replacement_.victim);
  return promised;
}

void Demonstration::checkAnswers(const LoadReport& report) {
  if (report.wrongAnswers > 0) {
    std::fprintf(out_, "   WRONG: %s\n", plural(report.wrongAnswers, "answer").c_str());
    allRight_ = false;
  }
  for (const std::string& error : report.otherErrors) {
    std::fprintf(out_, "   WRONG: a call failed:\n%s", indented(error, "     | ").c_str());
    allRight_ = false;
  }
}

nlohmann::ordered_json jsonOf(const LoadReport& report) {
  return {{"calls", report.calls()},
          {"seconds", report.seconds},
          {"calls_per_second", report.callsPerSecond()},
          {"latency_p50_ms", report.latency(0.5)},
          {"latency_p99_ms", report.latency(0.99)},
          {"latency_max_ms", report.slowest()},
          {"wrong_answers", report.wrongAnswers},
          {"workers_lost_seen", report.lost.size()},
          {"other_errors", report.otherErrors.size()},
          {"payload_bytes", report.payloadBytes}};
}

void Demonstration::printJson() const {
  nlohmann::ordered_json json{{"workers", options_.workers},
                              {"threads", options_.threads},
                              {"workers_ready_s", startSeconds_},
                              {"load", jsonOf(load_)},
                              {"payload_bytes_copied", bytesCopied_},
                              {"load_with_kill", jsonOf(loadWithKill_)},
                              {"calls_rerun", replacement_.callsRerun},
                              {"replacement_ready_ms", replacement_.ready},
                              {"replacement_first_answer_ms", replacement_.firstAnswer}};
  for (size_t i = 0; i < guesses_.size(); ++i) {
    json["pictures"].push_back({{"picture", set_.pictures()[i].name},
                                {"label", guesses_[i].label},
                                {"confidence", guesses_[i].confidence}});
  }
  json["right"] = allRight_;
  std::printf("%s\n", json.dump(1).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  int exitCode = 0;
  const std::optional<Options> options = parse(argc, argv, exitCode);
  if (!options) return exitCode;
  try {
    return Demonstration(*options).run() ? 0 : 1;
  } catch (const c10::Error& error) {  // the package can't be opened
    std::fprintf(stderr, "classify_pictures: %s\n", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "classify_pictures: %s\n", error.what());
  }
  return 2;
}
