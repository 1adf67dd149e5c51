// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/job_text.h"

#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

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

bool endsWith(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string absolutePath(const std::string& path) { return fs::absolute(path).lexically_normal(); }

std::string existingFile(const std::string& path, const std::string& member) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw BatchRefused(member + ": there is no file " + path);
  }
  return absolutePath(path);
}

/// "app.py:name" as a path and a name, if it has that form.
std::optional<std::pair<std::string, std::string>> pythonName(const std::string& text) {
  const size_t colon = text.rfind(":");
  if (colon == std::string::npos || !endsWith(text.substr(0, colon), ".py")) return std::nullopt;
  return {{text.substr(0, colon), text.substr(colon + 1)}};
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

/// The folder that names of files are relative to: the only input if it is a folder, else the
/// longest folder that all inputs have in common. A glob pattern counts up to its first wildcard.
std::string rootOf(const std::vector<std::string>& paths) {
  std::error_code error;
  if (paths.size() == 1 && fs::is_directory(paths.front(), error)) return paths.front();
  fs::path root;
  for (size_t i = 0; i < paths.size(); ++i) {
    const fs::path parent =
        fs::path(paths[i].substr(0, paths[i].find_first_of("*?["))).parent_path();
    if (i == 0) {
      root = parent;
      continue;
    }
    const auto [own, other] = std::mismatch(root.begin(), root.end(), parent.begin(), parent.end());
    fs::path common;
    for (auto part = root.begin(); part != own; ++part) common /= *part;
    root = common;
  }
  return root;
}

constexpr std::array<std::string_view, 2> kParquet{".parquet", ".pq"};
constexpr std::array<std::string_view, 2> kLines{".jsonl", ".ndjson"};
/// Of tables that are not read.
constexpr std::array<std::string_view, 13> kOtherTables{
    ".csv", ".tsv", ".json",  ".gz",  ".zst",  ".bz2",    ".xz",
    ".tar", ".zip", ".arrow", ".orc", ".avro", ".feather"};

template <typename Ends>
bool endsWithAny(const std::string& text, const Ends& ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [&text](std::string_view end) { return endsWith(text, end); });
}

/// The files that a pattern matches.
std::vector<std::string> matching(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> files;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  if (files.empty()) throw BatchRefused("input: " + pattern + " matches no files");
  return files;
}

/// The files of a folder in order, with those of its folders; without names that begin with a dot
/// or, as those of programs that write tables, with an underscore. Nothing if one is no table, or
/// if the folder can't be read: then its files are looked for as items, which gives the reason.
std::vector<std::string> tablesIn(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  auto each = fs::recursive_directory_iterator(
      folder, fs::directory_options::follow_directory_symlink, error);
  for (; !error && each != fs::recursive_directory_iterator(); each.increment(error)) {
    const std::string name = each->path().filename();
    if (name.starts_with('.') || name.starts_with('_')) {
      each.disable_recursion_pending();
    } else if (!each->is_directory(error)) {
      if (!endsWithAny(name, kParquet) && !endsWithAny(name, kLines)) return {};
      files.push_back(each->path());
    }
  }
  if (error) return {};
  std::sort(files.begin(), files.end());
  return files;
}

/// Columns that only names of folders have would be lost.
void refusePartitions(const std::vector<std::string>& files, const fs::path& top) {
  for (const std::string& file : files) {
    const fs::path folder = fs::path(file).parent_path().lexically_relative(top);
    for (const fs::path& part : folder) {
      if (part.native().find('=') == std::string::npos) continue;
      throw BatchRefused("input: " + file + " is in the partition " + part.string() +
                         ", whose column is not read: write the tables anew with all columns, or "
                         "name the files one by one, to go without it");
    }
  }
}

/// Patterns and folders of tables as their files; all other inputs as they are.
std::vector<std::string> withoutFoldersOfTables(const std::vector<std::string>& inputs) {
  std::vector<std::string> all;
  std::error_code error;
  for (const std::string& input : inputs) {
    std::vector<std::string> files;
    if (fs::is_directory(input, error)) {
      files = tablesIn(input);
      refusePartitions(files, fs::path(input));
    } else if (!fs::exists(input, error) && input.find_first_of("*?[") != std::string::npos &&
               (endsWithAny(input, kParquet) || endsWithAny(input, kLines))) {
      files = matching(input);
      refusePartitions(files, fs::path(input.substr(0, input.find_first_of("*?["))).parent_path());
    }
    if (files.empty()) files.push_back(input);
    all.insert(all.end(), files.begin(), files.end());
  }
  return all;
}

/// The folder of the results in that of the inputs would be an input, too.
void refuseOutputWithin(const BatchJob& job) {
  std::error_code error;
  const fs::path output = fs::weakly_canonical(fs::absolute(job.output), error);
  for (const std::string& input : job.inputs) {
    if (!fs::is_directory(input, error)) continue;
    const fs::path folder = fs::weakly_canonical(fs::absolute(input), error);
    const auto [end, other] =
        std::mismatch(folder.begin(), folder.end(), output.begin(), output.end());
    if (end != folder.end()) continue;
    throw BatchRefused("output: " + job.output + " lies in the input folder " + input +
                       ": name another folder");
  }
}

/// A model would get the path of a table as its only item.
void refuseTables(const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    std::string why;
    if (endsWithAny(input, kParquet) || endsWithAny(input, kLines)) {
      why = "is a table, and not all inputs are of its kind: give them in jobs of their own";
    } else if (endsWithAny(input, kOtherTables)) {
      why = "is of a kind whose rows are not read: convert it to Parquet or JSON lines";
    }
    if (why.empty()) continue;
    throw BatchRefused("input: " + input + " " + why +
                       ", or give --files (BatchJob::files) to pass paths to the model");
  }
}

Json inputJson(const BatchJob& job) {
  if (job.inputs.empty()) throw BatchRefused("a batch job needs an input");
  const std::vector<std::string> inputs =
      job.files ? job.inputs : withoutFoldersOfTables(job.inputs);
  if (inputs.size() == 1) {
    if (const auto parts = pythonName(inputs.front())) {
      return {{"kind", "dataset"},
              {"path", existingFile(parts->first, "input")},
              {"name", parts->second}};
    }
    if (endsWith(inputs.front(), ".pkl")) {
      return {{"kind", "dataset"}, {"pickle", existingFile(inputs.front(), "input")}};
    }
  }
  const auto all = [&](const auto& ends) {
    return !job.files && std::all_of(inputs.begin(), inputs.end(), [&](const std::string& input) {
      return endsWithAny(input, ends);
    });
  };
  const bool parquet = all(kParquet);
  const bool lines = all(kLines);
  if (!parquet && !lines && !job.files) refuseTables(inputs);
  std::vector<std::string> paths;
  for (const std::string& input : inputs) {
    paths.push_back(parquet || lines ? existingFile(input, "input") : absolutePath(input));
  }
  Json json{{"kind", parquet ? "parquet" : lines ? "jsonl" : "files"}, {"paths", paths}};
  if (!parquet && !lines) {
    json["root"] = rootOf(paths);
    json["tables"] = job.files;
  }
  return json;
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
  if (endsWith(text, ".pkl") && text.find(':') == std::string::npos) {
    return {ModelSource::Kind::kPickle, existingFile(text, "model"), {}};
  }
  std::error_code error;
  if (fs::is_regular_file(text, error)) {
    if (endsWith(text, ".py")) {
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

BatchFormat formatOf(const BatchJob& job) {
  if (job.format != BatchFormat::kAsInput) return job.format;
  return inputJson(job)["kind"] == "jsonl" ? BatchFormat::kJsonLines : BatchFormat::kParquet;
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
  if (job.timeout && job.timeout->count() <= 0) throw BatchRefused("timeout: must be above zero");
  if (job.startTimeout.count() <= 0) throw BatchRefused("startTimeout: must be above zero");
  if (job.maxFailureShare && (*job.maxFailureShare < 0 || *job.maxFailureShare > 1)) {
    throw BatchRefused("maxFailureShare: must be between 0 and 1");
  }
  return base::jsonText({{"model", modelJson(modelSource(job.model))},
                         {"input", inputJson(job)},
                         {"preprocess", pythonFunction(job.preprocess, "preprocess")},
                         {"postprocess", pythonFunction(job.postprocess, "postprocess")},
                         {"column", job.column},
                         {"batch_size", job.batchSize},
                         {"collate", nameOf(kCollations, job.collation)},
                         {"output", absolutePath(job.output)},
                         {"format", nameOf(kFormats, formatOf(job))},
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
