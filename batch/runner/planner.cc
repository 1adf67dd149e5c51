// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/planner.h"

#include <algorithm>
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

Json knownJson(const KnownChunk& chunk) {
  return {{"number", chunk.number},
          {"done", chunk.done},
          {"ref", Json::parse(chunk.reference)},
          {"failed", chunk.failed}};
}

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

Json Planner::grow(const std::string& before, const std::vector<KnownChunk>& known,
                   PlanGrowth& growth) const {
  const Obj know = planner_.attr("know");
  for (size_t begin = 0; begin < known.size(); begin += kChunksPerAnswer) {
    const size_t end = std::min(known.size(), begin + kChunksPerAnswer);
    Json chunks = Json::array();
    for (size_t i = begin; i < end; ++i) chunks.push_back(knownJson(known[i]));
    const Obj none = know.call({at::IValue(base::jsonText(chunks))}, {}, patience());
  }
  Json answer = answerOf(planner_.attr("grow"), {at::IValue(before)});
  growth.dropped = answer.at("drop").get<std::vector<int64_t>>();
  growth.forgotten = answer.at("forget").get<std::vector<std::pair<int64_t, uint32_t>>>();
  for (const Json& each : answer.at("refs")) {
    growth.references.emplace_back(each.at(0), base::jsonText(each.at(1)));
  }
  return answer.at("inputs");
}

}  // namespace isopool::batch
