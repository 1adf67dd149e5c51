// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/planner.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace isopool::batch {

namespace {

using base::Json;

/// Chunks that the planner names in one answer.
constexpr int64_t kChunksPerAnswer = 500;
// The planner reads a line of text in a microsecond: this is for slow disks.
constexpr auto kPatience = std::chrono::hours(24);

Json answerOf(const Obj& method, const std::vector<at::IValue>& arguments) {
  return Json::parse(method.call(arguments, {}, Planner::patience()).toIValue().toStringRef());
}

}  // namespace

CallOptions Planner::patience() {
  CallOptions options;
  options.deadline = kPatience;
  return options;
}

Planner::Planner(InterpreterSession& session, const std::string& workerJob)
    : planner_(session.global("isopool_batch.calls", "planner")
                   .call({at::IValue(workerJob)}, {}, patience())) {}

Json Planner::summary() const { return answerOf(planner_.attr("summary"), {}); }

Planner::Chunks::Chunks(const Planner& planner, uint32_t rows)
    : method_(planner.planner_.attr("chunks")), rows_(rows) {}

std::optional<Json> Planner::Chunks::next() {
  if (answer_.empty()) {
    for (Json& each : answerOf(method_, {int64_t{rows_}, asked_, kChunksPerAnswer})) {
      answer_.push_back(std::move(each));
    }
    asked_ += kChunksPerAnswer;
    if (answer_.empty()) return std::nullopt;
  }
  Json chunk = std::move(answer_.front());
  answer_.pop_front();
  return chunk;
}

}  // namespace isopool::batch
