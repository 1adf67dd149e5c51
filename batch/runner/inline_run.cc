// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/inline_run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/system_call.h"
#include "batch/journal/journal.h"
#include "batch/runner/job_text.h"
#include "batch/runner/output_folder.h"
#include "batch/runner/planned_jobs.h"
#include "batch/runner/planner.h"
#include "batch/runner/worker_modules.h"

namespace isopool::batch {

namespace {

namespace fs = std::filesystem;

/// A new folder with the package isopool_batch. isopool_batch.inline_run removes it.
fs::path writeModules() {
  std::string folder = fs::temp_directory_path() / "isopool-batch-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) base::checkSystemCall(-1, "mkdtemp", folder);
  const fs::path package = fs::path(folder) / "isopool_batch";
  fs::create_directory(package);
  for (const EmbeddedModule& module : embeddedModules()) {
    std::ofstream(package / (std::string(module.name) + ".py")) << module.text;
  }
  return folder;
}

/// The job of workers with the inputs that the plan's references are to: they may be others now.
/// `input`: the journal's fact; empty: of an earlier version.
std::string withPlannedInput(const std::string& job, const std::string& input) {
  if (input.empty()) return job;
  base::Json json = base::Json::parse(job);
  json["input"] = base::Json::parse(input);
  return base::jsonText(json);
}

/// Replaces this process by the interpreter that runs isopool_batch.`module` with the folder and
/// these arguments.
[[noreturn]] void runModule(const std::string& module, const BatchJob& job,
                            const std::string& python, const std::string& folder,
                            const std::vector<std::string>& arguments) {
  std::string path = folder;
  for (const std::string& each : job.pool.pythonPaths) path += ":" + each;
  if (const char* known = std::getenv("PYTHONPATH"); known != nullptr && *known != '\0') {
    path += std::string(":") + known;
  }
  ::setenv("PYTHONPATH", path.c_str(), 1);
  std::vector<std::string> words{python, "-m", "isopool_batch." + module, folder};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execvp(python.c_str(), pointers.data());
  base::checkSystemCall(-1, "execve", python);
  std::abort();
}

}  // namespace

void runInline(const std::string& output, const std::string& id, const std::string& python) {
  BatchJob job;
  // Where the item is, if it was set aside; else the program looks for it.
  base::Json chunk;
  base::Json item;
  std::string input;
  for (const auto& [file, text] : plannedJobs(output)) {
    auto journal = Journal::existing(file);
    job = jobOf(text);
    const auto items = journal.quarantined();
    const auto found = std::find_if(items.begin(), items.end(), [&id](const QuarantinedItem& each) {
      return each.failure.id == id;
    });
    if (found == items.end()) continue;
    const PlannedChunk planned = journal.chunk(found->chunk);
    chunk = {{"number", planned.number},
             {"part", ""},
             {"skip", base::Json::array()},
             {"ref", base::Json::parse(planned.reference)}};
    item = found->item;
    input = journal.fact(kInputFact);
  }
  job.output = output;
  const std::string text = withPlannedInput(workerJob(job), input);
  const std::string place = base::jsonText({{"id", id}, {"chunk", chunk}, {"item", item}});
  runModule("inline_run", job, python, writeModules(), {text, place});
}

void verify(const std::string& output, const std::string& python) {
  const std::vector<PlannedJob> planned = plannedJobs(output);
  BatchJob job = jobOf(planned.front().job);
  job.output = output;
  const std::string text = workerJob(job);
  const bool parquet = isParquet(text);
  base::Json chunks = base::Json::array();
  base::Json problems = base::Json::array();
  std::string input;
  for (const PlannedJob& shard : planned) {
    auto journal = Journal::existing(shard.journal);
    input = journal.fact(kInputFact);
    for (const KnownChunk& each : journal.known()) {
      base::Json chunk = knownJson(each);
      chunk["part"] = OutputFolder::partName(each.number, parquet);
      chunk["rows"] = each.rows;
      chunk["bytes"] = each.bytes;
      chunks.push_back(std::move(chunk));
    }
  }
  if (planned.size() != job.shards) {
    problems.push_back(std::to_string(job.shards - planned.size()) + " of " +
                       std::to_string(job.shards) + " shards have not begun");
  }
  const std::string folder = writeModules();
  const std::string state = folder + "/state.json";
  std::ofstream(state) << base::jsonText({{"chunks", chunks}, {"problems", problems}});
  runModule("verify", job, python, folder, {text, withPlannedInput(text, input), state});
}

}  // namespace isopool::batch
