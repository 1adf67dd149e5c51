// SPDX-License-Identifier: BSD-3-Clause
#include "examples/load.h"

#include <algorithm>
#include <exception>

namespace examples {
namespace {

using Clock = std::chrono::steady_clock;

template <typename T>
void append(std::vector<T>& all, const std::vector<T>& some) {
  all.insert(all.end(), some.begin(), some.end());
}

void add(LoadReport& all, const LoadReport& one) {
  append(all.latencies, one.latencies);
  append(all.lost, one.lost);
  append(all.otherErrors, one.otherErrors);
  all.wrongAnswers += one.wrongAnswers;
  all.payloadBytes += one.payloadBytes;
}

}  // namespace

double LoadReport::latency(double share) const {
  if (latencies.empty()) return 0;
  return latencies[static_cast<size_t>(share * (latencies.size() - 1))];
}

Load::Load(const isopool::ReplicatedObj& model, const PictureSet& set, size_t threads)
    : model_(model), set_(set), start_(Clock::now()), reports_(threads) {
  for (size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this, i] { callRepeatedly(i, reports_[i]); });
  }
}

Load::~Load() { join(); }

LoadReport Load::stop() {
  join();
  LoadReport all;
  all.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  for (const LoadReport& report : reports_) add(all, report);
  std::sort(all.latencies.begin(), all.latencies.end());
  return all;
}

void Load::join() {
  stopping_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Load::callRepeatedly(size_t firstPicture, LoadReport& report) {
  const std::vector<Picture>& pictures = set_.pictures();
  for (size_t i = firstPicture; !stopping_ && report.otherErrors.empty(); ++i) {
    callOnce(pictures[i % pictures.size()], report);
  }
}

void Load::callOnce(const Picture& picture, LoadReport& report) {
  const auto start = Clock::now();
  try {
    const Guess guess = set_.guess(model_({picture.pixels}).toTensor());
    const std::chrono::duration<double, std::milli> latency = Clock::now() - start;
    report.latencies.push_back(latency.count());
    report.payloadBytes += picture.pixels.nbytes();
    if (!picture.isRight(guess)) ++report.wrongAnswers;
  } catch (const isopool::WorkerLost& error) {
    report.lost.push_back(error);
  } catch (const std::exception& error) {
    report.otherErrors.emplace_back(error.what());
  }
}

}  // namespace examples
