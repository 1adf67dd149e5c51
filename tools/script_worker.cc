// SPDX-License-Identifier: BSD-3-Clause
#include "tools/script_worker.h"

#include <ATen/core/List.h>

#include <filesystem>

#include "script_runner_source.h"

namespace tools {

namespace {

const at::ArrayRef<isopool::Obj> kNothing;

}  // namespace

ScriptWorker::ScriptWorker(isopool::InterpreterManager& manager,
                           const std::vector<std::string>& arguments)
    : session_(manager.acquireOne()),
      processId_(static_cast<int>(session_.global("os", "getpid")(kNothing).toIValue().toInt())),
      runner_(session_, "script_runner", kScriptRunnerSource) {
  c10::List<std::string> argv;
  for (const std::string& each : arguments) argv.push_back(each);
  runner_.get("set_up")({std::filesystem::current_path().string(), argv});
}

int ScriptWorker::runFile(const std::string& path) {
  const std::string absolute = std::filesystem::absolute(path).string();
  return static_cast<int>(runner_.get("run_file")({absolute}).toIValue().toInt());
}

int ScriptWorker::runText(const std::string& text) {
  return static_cast<int>(runner_.get("run_text")({text}).toIValue().toInt());
}

const isopool::Obj& ScriptWorker::prompt() {
  if (!prompt_) prompt_ = runner_.get("Prompt")(kNothing);
  return *prompt_;
}

ScriptWorker::Taken ScriptWorker::take(const std::string& line) {
  const at::IValue answer = prompt().attr("take")({line}).toIValue();
  const auto& fields = answer.toTupleRef().elements();
  Taken taken;
  taken.unfinished = fields[0].toBool();
  if (const int64_t code = fields[1].toInt(); code >= 0) taken.exitCode = static_cast<int>(code);
  return taken;
}

void ScriptWorker::forget() {
  if (prompt_) prompt_->attr("forget")(kNothing);
}

void ScriptWorker::end() { runner_.get("end")(kNothing); }

}  // namespace tools
