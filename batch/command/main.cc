// SPDX-License-Identifier: BSD-3-Clause
// `isopool batch`: see docs/batch.md. The command `isopool` starts this program.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/terminal_text.h"
#include "base/units.h"
#include "batch/command/progress_view.h"
#include "batch/command/report.h"
#include "batch/runner/inline_run.h"
#include "isopool/batch.h"

namespace {

using namespace isopool;

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;
constexpr int kQuarantine = 3;
constexpr int kStopped = 4;
constexpr int kInterrupted = 130;
/// Whole numbers up to this one are exact as double.
constexpr double kMostFailures = 9e15;

constexpr const char* kDescription =
    "Runs a model over many inputs on all cores, whatever the inputs do to it. An input that\n"
    "crashes its worker, hangs or raises is set aside with its reason; all others get their\n"
    "result. The same line again goes on where a run ended, however it ended.";

constexpr const char* kExamples =
    "\nExamples:\n"
    "  isopool batch app.py:embed texts.parquet -o out          a function of app.py, per row\n"
    "  isopool batch app.py:Scorer pictures/ -o out             a class, made once per worker;\n"
    "                                                           it gets the files' paths\n"
    "  isopool batch app.py:embed texts.jsonl -o out --column text --batch-size 32 --timeout 10s\n"
    "  isopool batch model.pt:model/model.pkl app.py:data -o out --batch-size 8 --collate stack\n"
    "  isopool batch app.py:embed texts.parquet -o out --shard 0/4    one of four machines\n"
    "  isopool batch app.py:embed pictures/ -o out --update     what is new since the last run\n"
    "  isopool batch report out                                 what was set aside, and why\n"
    "  isopool batch verify out                                 is each input's answer there?\n"
    "  isopool batch retry out                                  again, after a correction\n"
    "  isopool batch -o out --only pictures/7.png --inline      one input alone: under gdb, pdb\n"
    "\n"
    "In the folder OUT: part-*.parquet (or .jsonl) with the results, and __job__ with the\n"
    "inputs that were set aside (quarantine.jsonl), summary.json and journal.sqlite.\n"
    "\n"
    "Ctrl-C ends the run after the inputs in flight; twice, at once. Nothing done is lost.\n"
    "\n"
    "Exit code 0: each input has a result; 3: the others were set aside; 4: stopped by\n"
    "--max-failures or a full disk; 130: interrupted; 1: it can't run, and one line on stderr\n"
    "says why; 2: wrong usage. The last line of stdout says the same in words.\n";

struct Options {
  BatchJob job;
  bool json = false;
  bool inlineRun = false;
  std::string only;
  std::string timeout;
  std::string startTimeout;
  std::string memory;
  std::string shard;
  std::string maxFailures;
  std::string collate = "list";
  std::string format;
  std::string folder;  ///< of report and retry
};

/// 1 once the user has asked for the end.
volatile std::sig_atomic_t stops = 0;

void onStop(int) {
  // The second time at once: what is done lies in the folder, and the kernel ends the workers.
  if (stops > 0) ::_exit(kInterrupted);
  stops = 1;
}

[[noreturn]] void refuse(const std::string& text) {
  std::fprintf(stderr, "isopool batch: %s\n", text.c_str());
  std::exit(kWrongUsage);
}

uint64_t quantity(const std::string& option, const std::string& text,
                  std::span<const base::Unit> units, uint64_t bare, const char* example) {
  const auto value = base::parseQuantity(text, units, bare);
  if (!value || *value == 0) refuse(option + " " + text + ": write it as in " + example);
  return *value;
}

void parseShard(Options& options) {
  if (options.shard.empty()) return;
  unsigned index = 0;
  unsigned count = 0;
  char rest = 0;
  // sscanf() would take "-1" for a large number.
  const bool wrong = options.shard.find('-') != std::string::npos ||
                     std::sscanf(options.shard.c_str(), "%u/%u%c", &index, &count, &rest) != 2 ||
                     index >= count;
  if (wrong) {
    refuse("--shard " + options.shard + ": write 0/4 for the first of four, 3/4 for the last");
  }
  options.job.shard = index;
  options.job.shards = count;
}

void parseMaxFailures(Options& options) {
  std::string text = options.maxFailures;
  if (text.empty()) return;
  const bool share = text.back() == '%';
  if (share) text.pop_back();
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0 && value <= (share ? 100 : kMostFailures))) {
    refuse("--max-failures " + options.maxFailures + ": write a number, as 100, or a share, as 5%");
  }
  if (share) {
    options.job.maxFailureShare = value / 100;
  } else {
    options.job.maxFailures = static_cast<uint64_t>(value);
  }
}

void complete(Options& options) {
  if (!options.timeout.empty()) {
    options.job.timeout = std::chrono::milliseconds(
        quantity("--timeout", options.timeout, base::kTimeUnits, 1000, "10s, 500ms or 2m"));
  }
  if (!options.startTimeout.empty()) {
    options.job.startTimeout = std::chrono::milliseconds(
        quantity("--start-timeout", options.startTimeout, base::kTimeUnits, 1000, "10s or 5m"));
  }
  if (!options.memory.empty()) {
    options.job.pool.workerMemory =
        quantity("--memory", options.memory, base::kSizeUnits, 1, "2GiB or 800MiB");
  }
  parseShard(options);
  parseMaxFailures(options);
  const std::string& collate = options.collate;
  options.job.collation = collate == "stack"    ? BatchCollation::kStack
                          : collate == "pad"    ? BatchCollation::kPad
                          : collate == "bucket" ? BatchCollation::kBucket
                                                : BatchCollation::kList;
  options.job.format = options.format == "parquet" ? BatchFormat::kParquet
                       : options.format == "jsonl" ? BatchFormat::kJsonLines
                                                   : BatchFormat::kAsInput;
}

std::unique_ptr<batch::ProgressView> viewFor(const Options& options) {
  if (options.json) return batch::jsonView();
  return ::isatty(STDERR_FILENO) == 1 ? batch::terminalView() : batch::plainView();
}

std::string lastLine(const BatchSummary& summary, const std::string& output) {
  const BatchProgress& progress = summary.progress;
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f s", progress.elapsed.count());
  std::string line = std::string(toString(summary.end)) + ": " + batch::grouped(progress.done) +
                     " of " + batch::grouped(progress.items) + " items have a result, " +
                     batch::grouped(progress.failed) + " set aside, in " + seconds;
  if (!summary.message.empty()) line += ". " + summary.message;
  if (summary.end == BatchEnd::kQuarantine) line += ". Look at: isopool batch report " + output;
  if (summary.end > BatchEnd::kQuarantine) line += ". The same command goes on from here";
  return line;
}

int exitCode(BatchEnd end) {
  switch (end) {
    case BatchEnd::kAllRight:
      return 0;
    case BatchEnd::kQuarantine:
      return kQuarantine;
    case BatchEnd::kInterrupted:
      return kInterrupted;
    case BatchEnd::kFailures:
    case BatchEnd::kDiskFull:
      return kStopped;
  }
  return kFailed;
}

int run(Options& options, bool again) {
  // What the supervisor would say of each death, the failures say with the item.
  options.job.pool.supervisorLogLevel = "error";
  std::signal(SIGINT, onStop);
  std::signal(SIGTERM, onStop);
  const auto view = viewFor(options);
  // What models print, and errors; not what the pool says of itself.
  options.job.pool.logger = [&view](LogLevel level, std::string_view text) {
    const bool printed = level == LogLevel::kInfo && text.starts_with("worker ");
    if (printed || level == LogLevel::kError) view->line(std::string(text));
  };
  BatchControl control;
  control.progress = [&view](const BatchProgress& progress) { view->progress(progress); };
  control.failure = [&view](const BatchFailure& failure) { view->failure(failure); };
  control.interrupted = [] { return stops > 0; };
  const std::string output = again ? options.folder : options.job.output;
  const BatchSummary summary =
      again ? retryBatch(output, control, options.job.pool) : runBatch(options.job, control);
  view->end(summary, lastLine(summary, output));
  return exitCode(summary.end);
}

std::string pythonProgram() {
  const char* named = std::getenv("ISOPOOL_PYTHON_EXECUTABLE");
  return named != nullptr && *named != '\0' ? named : ISOPOOL_WORKER_PYTHON;
}

void addPoolOptions(CLI::App& app, Options& options) {
  app.add_option("--workers", options.job.pool.workers,
                 "worker processes (default: one per processor)")
      ->type_name("N");
  app.add_option("--memory", options.memory,
                 "private memory that one worker may have: 2GiB (default: no limit)")
      ->type_name("SIZE");
  app.add_flag("--json", options.json, "events, one JSON object per line");
}

int batchCommand(int argc, char** argv) {
  Options options;
  BatchJob& job = options.job;
  CLI::App app(kDescription, "isopool batch");
  app.footer(kExamples);
  app.set_version_flag("--version", std::string("isopool batch ") + ISOPOOL_VERSION);
  app.add_option("MODEL", job.model,
                 "FILE.py:NAME, or a model's file (torch.package as FILE:MODULE/RESOURCE)");
  app.add_option(
      "INPUT", job.inputs,
      "Parquet, JSON, CSV or tar files; other files, folders, globs; or FILE.py:DATASET");
  app.add_flag("--files", job.files, "the items are files, also tables: the model gets paths");
  app.add_option("-o,--output", job.output, "folder for the results")->type_name("OUT");
  app.add_option("--column", job.column, "the model gets this column of each row")
      ->type_name("NAME");
  app.add_option("--batch-size", job.batchSize, "the model gets a list of up to N items")
      ->type_name("N");
  app.add_option("--collate", options.collate,
                 "how a batch's tensors are combined: list, stack, pad, bucket (by length)")
      ->check(CLI::IsMember({"list", "stack", "pad", "bucket"}));
  app.add_option("--preprocess", job.preprocess, "FILE.py:NAME, called in the worker per item");
  app.add_option("--postprocess", job.postprocess, "FILE.py:NAME, called in the worker per result");
  app.add_option("--format", options.format, "of the results (default: that of the input)")
      ->check(CLI::IsMember({"parquet", "jsonl"}));
  app.add_option("--schema", job.schema,
                 "types of the columns: a Parquet file, or FILE.py:NAME, a pyarrow.Schema "
                 "(default: those of the first results)")
      ->type_name("SCHEMA");
  app.add_option("--timeout", options.timeout, "of one item: 10s, 500ms (default: none)")
      ->type_name("TIME");
  app.add_option("--start-timeout", options.startTimeout,
                 "of making the model in a worker: 5m (default: 60m)")
      ->type_name("TIME");
  app.add_option("--retries", job.retries, "further tries of an item that failed alone")
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--max-failures", options.maxFailures,
                 "end the run when more items fail: 100, or 5%")
      ->type_name("N");
  app.add_option("--chunk-size", job.chunkItems, "items of one part file")->type_name("N");
  app.add_option("--shard", options.shard, "do only one part of the chunks: I/N, from 0")
      ->type_name("I/N");
  app.add_flag("--update", job.update, "where OUT holds this job: do new and changed inputs");
  app.add_flag("--force", job.force, "start anew where OUT holds another job's results");
  app.add_option("--only", options.only, "with --inline: this item")->type_name("ID");
  app.add_flag("--inline", options.inlineRun,
               "run the item of --only in one process, for gdb and pdb");
  addPoolOptions(app, options);
  CLI::App* report = app.add_subcommand("report", "the items that were set aside, by cause");
  report->add_option("OUT", options.folder, "folder of the results")->required();
  report->add_flag("--json", options.json, "as JSON");
  CLI::App* retry = app.add_subcommand("retry", "run the items that were set aside again");
  retry->add_option("OUT", options.folder, "folder of the results")->required();
  addPoolOptions(*retry, options);
  CLI::App* verify =
      app.add_subcommand("verify", "compare the results with the plan and the inputs");
  verify->add_option("OUT", options.folder, "folder of the results")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  complete(options);
  if (report->parsed()) {
    std::fputs(batch::report(options.folder, options.json).c_str(), stdout);
    return 0;
  }
  if (retry->parsed()) return run(options, true);
  if (verify->parsed()) batch::verify(options.folder, pythonProgram());
  if (job.output.empty()) refuse("name the folder for the results: -o OUT");
  if (options.inlineRun != !options.only.empty()) refuse("--only and --inline belong together");
  if (options.inlineRun) batch::runInline(job.output, options.only, pythonProgram());
  if (job.model.empty()) refuse("name a model and an input; --help shows examples");
  return run(options, false);
}

}  // namespace

int main(int argc, char** argv) {
  // Which characters are shown. Under the locale C, as of cron, a report names files as they are,
  // too.
  std::setlocale(LC_CTYPE, "");
  if (!base::localeIsUtf8()) std::setlocale(LC_CTYPE, "C.UTF-8");
  try {
    return batchCommand(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "isopool batch: %s\n", error.what());
    return kFailed;
  }
}
