// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/inline_run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/system_call.h"
#include "batch/journal/journal.h"
#include "batch/runner/job_text.h"
#include "batch/runner/planned_jobs.h"
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

}  // namespace

void runInline(const std::string& output, const std::string& id, const std::string& python) {
  BatchJob job;
  // Where the item is, if it was set aside; else the program looks for it.
  base::Json chunk;
  base::Json item;
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
  }
  job.output = output;
  const std::string text = workerJob(job);
  const std::string place = base::jsonText({{"id", id}, {"chunk", chunk}, {"item", item}});
  const std::string folder = writeModules();
  std::string path = folder;
  for (const std::string& each : job.pool.pythonPaths) path += ":" + each;
  if (const char* known = std::getenv("PYTHONPATH"); known != nullptr && *known != '\0') {
    path += std::string(":") + known;
  }
  ::setenv("PYTHONPATH", path.c_str(), 1);
  ::execlp(python.c_str(), python.c_str(), "-m", "isopool_batch.inline_run", folder.c_str(),
           text.c_str(), place.c_str(), nullptr);
  base::checkSystemCall(-1, "execve", python);
  std::abort();
}

}  // namespace isopool::batch
