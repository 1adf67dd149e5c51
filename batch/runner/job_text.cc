// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/job_text.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "batch/runner/inputs.h"
#include "batch/runner/paths.h"
#include "batch/runner/pool_text.h"

namespace isopool::batch {

namespace {

namespace fs = std::filesystem;
using base::Json;

constexpr uint32_t kMostItemsOfCall = 1'000'000;
constexpr std::array<std::pair<BatchCollation, const char*>, 4> kCollations{
    {{BatchCollation::kList, "list"},
     {BatchCollation::kStack, "stack"},
     {BatchCollation::kPad, "pad"},
     {BatchCollation::kBucket, "bucket"}}};
constexpr std::array<std::pair<BatchFormat, const char*>, 3> kFormats{
    {{BatchFormat::kAsInput, ""},
     {BatchFormat::kParquet, "parquet"},
     {BatchFormat::kJsonLines, "jsonl"}}};

template <typename Names, typename Value>
const char* nameOf(const Names& names, Value value) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [value](const auto& each) { return each.first == value; });
  if (found == names.end()) throw BatchRefused("the job has an enumeration's value that is none");
  return found->second;
}

template <typename Names>
auto valueOf(const Names& names, const std::string& name) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&name](const auto& each) { return name == each.second; });
  if (found == names.end()) throw BatchRefused("the journal's job has the unknown word " + name);
  return found->first;
}

std::string pythonFunction(const std::string& text, const std::string& member) {
  if (text.empty()) return text;
  const auto parts = pythonName(text);
  if (!parts || parts->second.empty()) {
    throw BatchRefused(member + " is FILE.py:FUNCTION, not " + text);
  }
  return existingFile(parts->first, member) + ":" + parts->second;
}

std::string schemaSource(const std::string& text) {
  if (text.empty()) return text;
  return pythonName(text) ? pythonFunction(text, "schema") : existingFile(text, "schema");
}

Json modelJson(const ModelSource& model) {
  switch (model.kind) {
    case ModelSource::Kind::kFile:
      return {{"kind", "file"}, {"path", model.path}, {"name", model.name}};
    case ModelSource::Kind::kPickle:
      return {{"kind", "pickle"}, {"path", model.path}};
    case ModelSource::Kind::kStored:
      return {{"kind", "object"}, {"file", model.path}, {"name", model.name}};
  }
  throw BatchRefused("model: unknown kind");
}

}  // namespace

ModelSource modelSource(const std::string& text) {
  if (const auto parts = pythonName(text)) {
    if (parts->second.empty()) throw BatchRefused("model: no name after the colon of " + text);
    return {ModelSource::Kind::kFile, existingFile(parts->first, "model"), parts->second};
  }
  if (text.ends_with(".pkl") && text.find(':') == std::string::npos) {
    return {ModelSource::Kind::kPickle, existingFile(text, "model"), {}};
  }
  std::error_code error;
  if (fs::is_regular_file(text, error)) {
    if (text.ends_with(".py")) {
      throw BatchRefused("model: name the function or class of " + text + ", as in " + text +
                         ":embed");
    }
    return {ModelSource::Kind::kStored, absolutePath(text), {}};
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) throw BatchRefused("model: there is no file " + text);
  const std::string name = text.substr(colon + 1);
  if (name.find('/') == std::string::npos) {
    throw BatchRefused("model: an object of a package is FILE:MODULE/RESOURCE, not " + text);
  }
  return {ModelSource::Kind::kStored, existingFile(text.substr(0, colon), "model"), name};
}

bool isParquet(const std::string& workerJob) {
  return Json::parse(workerJob).at("format") == nameOf(kFormats, BatchFormat::kParquet);
}

std::string workerJob(const BatchJob& job) {
  if (job.output.empty()) throw BatchRefused("output: name the folder for the results");
  if (job.shards == 0 || job.shard >= job.shards) {
    throw BatchRefused("shard " + std::to_string(job.shard) + " of " + std::to_string(job.shards) +
                       ": the first is 0, the last is one less than their number");
  }
  if (job.collation != BatchCollation::kList && job.batchSize == 0) {
    throw BatchRefused("batchSize: to combine items, choose how many make one call");
  }
  if (job.batchSize > kMostItemsOfCall) {
    throw BatchRefused("batchSize: " + std::to_string(job.batchSize) + " is more than " +
                       std::to_string(kMostItemsOfCall));
  }
  refuseOutputWithin(job);
  if (job.update && job.force) {
    throw BatchRefused("update and force exclude each other: force removes the results");
  }
  if (job.update && job.shards > 1) {
    throw BatchRefused(
        "update is not for shards, which would see different inputs: leave the shards out");
  }
  if (job.timeout && job.timeout->count() <= 0) throw BatchRefused("timeout: must be above zero");
  if (job.startTimeout.count() <= 0) throw BatchRefused("startTimeout: must be above zero");
  if (job.maxFailureShare && (*job.maxFailureShare < 0 || *job.maxFailureShare > 1)) {
    throw BatchRefused("maxFailureShare: must be between 0 and 1");
  }
  const Json input = inputJson(job);
  const BatchFormat asInput =
      input["kind"] == "jsonl" ? BatchFormat::kJsonLines : BatchFormat::kParquet;
  const BatchFormat format = job.format == BatchFormat::kAsInput ? asInput : job.format;
  return base::jsonText({{"model", modelJson(modelSource(job.model))},
                         {"input", input},
                         {"preprocess", pythonFunction(job.preprocess, "preprocess")},
                         {"postprocess", pythonFunction(job.postprocess, "postprocess")},
                         {"column", job.column},
                         {"batch_size", job.batchSize},
                         {"collate", nameOf(kCollations, job.collation)},
                         {"output", absolutePath(job.output)},
                         {"format", nameOf(kFormats, format)},
                         {"schema", schemaSource(job.schema)},
                         {"driver", ::getpid()}});
}

Json storedJob(const BatchJob& job) {
  const ModelSource model = modelSource(job.model);
  std::vector<std::string> inputs;
  for (const std::string& input : job.inputs) inputs.push_back(absolutePath(input));
  Json json{{"model", model.path + (model.name.empty() ? "" : ":" + model.name)},
            {"inputs", inputs},
            {"files", job.files},
            {"preprocess", pythonFunction(job.preprocess, "preprocess")},
            {"postprocess", pythonFunction(job.postprocess, "postprocess")},
            {"column", job.column},
            {"batch_size", job.batchSize},
            {"collate", nameOf(kCollations, job.collation)},
            {"format", nameOf(kFormats, job.format)},
            {"schema", schemaSource(job.schema)},
            {"timeout_ms", job.timeout ? Json(job.timeout->count()) : Json()},
            {"start_timeout_ms", job.startTimeout.count()},
            {"retries", job.retries},
            {"max_failures", job.maxFailures ? Json(*job.maxFailures) : Json()},
            {"max_failure_share", job.maxFailureShare ? Json(*job.maxFailureShare) : Json()},
            {"shard", job.shard},
            {"shards", job.shards},
            {"pool", storedPool(job.pool)}};
  return json;
}

BatchJob jobOf(const std::string& text, const PoolOptions* retry) {
  try {
    const Json json = Json::parse(text);
    BatchJob job;
    job.model = json.at("model");
    job.inputs = json.at("inputs");
    job.files = json.value("files", false);
    job.preprocess = json.at("preprocess");
    job.postprocess = json.at("postprocess");
    job.column = json.at("column");
    job.batchSize = json.at("batch_size");
    job.collation = valueOf(kCollations, json.at("collate").get<std::string>());
    job.format = valueOf(kFormats, json.at("format").get<std::string>());
    job.schema = json.value("schema", "");
    if (!json.at("timeout_ms").is_null()) {
      job.timeout = std::chrono::milliseconds(json.at("timeout_ms").get<int64_t>());
    }
    job.startTimeout = std::chrono::milliseconds(
        json.value("start_timeout_ms", int64_t{job.startTimeout.count()}));
    job.retries = json.at("retries");
    if (!json.at("max_failures").is_null()) job.maxFailures = json.at("max_failures");
    if (!json.at("max_failure_share").is_null()) {
      job.maxFailureShare = json.at("max_failure_share");
    }
    job.shard = json.at("shard");
    job.shards = json.at("shards");
    // Without "pool" it is of an older version, which kept three of the options, with these names.
    const Json& pool = json.contains("pool") ? json["pool"] : json;
    if (retry != nullptr) requireVariables(pool, *retry);
    job.pool = poolOf(pool, retry != nullptr ? *retry : PoolOptions());
    return job;
  } catch (const Json::exception& error) {
    throw BatchRefused(std::string("the journal holds no job of this version: ") + error.what());
  }
}

}  // namespace isopool::batch
