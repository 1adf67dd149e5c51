// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/system_call.h"
#include "batch/journal/crash_point.h"
#include "isopool/batch.h"

namespace isopool::batch {

namespace fs = std::filesystem;
using base::checkSystemCall;

namespace {

void sync(const fs::path& folder) {
  const base::Fd fd(checkSystemCall(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                                    "open", folder.native()));
  checkSystemCall(::fsync(fd.get()), "fsync", folder.native());
}

void writeAll(int fd, const std::string& text, const std::string& file) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    checkSystemCall(count < 0 ? -1 : 0, "write", file);
    done += static_cast<size_t>(count);
  }
}

constexpr const char* kJob = "__job__";
constexpr const char* kWork = "work";
constexpr const char* kSchema = "schema.json";
constexpr std::string_view kSchemaAside = ".schema.json.";
constexpr std::string_view kDatasetAside = ".dataset.json.";
constexpr std::string_view kAside = ".aside";

/// The number that `text` begins with, of at least six digits, which are removed.
std::optional<int64_t> takeNumber(std::string_view& text) {
  constexpr size_t kLeastDigits = 6;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto digits = static_cast<size_t>(end - text.data());
  if (error != std::errc() || digits < kLeastDigits || text.front() == '-') return std::nullopt;
  text.remove_prefix(digits);
  return number;
}

/// The chunk of a part: "part-000123.parquet", or, of one that is not complete, the same behind a
/// dot and before "ANYTHING.aside".
std::optional<int64_t> chunkOfPart(std::string_view name, bool complete) {
  constexpr std::string_view kPart = "part-";
  if (!complete) {
    if (!name.starts_with('.') || !name.ends_with(kAside)) return std::nullopt;
    name = name.substr(1, name.size() - 1 - kAside.size());
  }
  if (!name.starts_with(kPart)) return std::nullopt;
  name.remove_prefix(kPart.size());
  const auto number = takeNumber(name);
  for (const std::string_view ending : {".parquet", ".jsonl"}) {
    const bool whole = name == ending;
    const bool begun = !complete && name.starts_with(ending) && name[ending.size()] == '.';
    if (number && (whole || begun)) return number;
  }
  return std::nullopt;
}

/// The chunk of a spill: "000123.spill", also behind a dot.
std::optional<int64_t> chunkOfSpill(std::string_view name) {
  if (name.starts_with('.')) name.remove_prefix(1);
  const auto number = takeNumber(name);
  return number && name.starts_with(".spill") ? number : std::nullopt;
}

bool isJournal(const fs::path& file) {
  const std::string name = file.filename();
  return name.rfind("journal", 0) == 0 && file.extension() == ".sqlite";
}

}  // namespace

OutputFolder::OutputFolder(const std::string& path, uint32_t shard, uint32_t shards)
    : path_(fs::absolute(path).lexically_normal()),
      job_(path_ / kJob),
      shard_(shard),
      shards_(shards) {
  if (shards > 1) {
    suffix_.append("-").append(std::to_string(shard)).append("-of-");
    suffix_.append(std::to_string(shards));
  }
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) throw BatchRefused("output: " + path_.string() + ": " + error.message());
  if (!fs::is_directory(job_) && !fs::is_empty(path_)) {
    throw BatchRefused("output: " + path_.string() + " holds files, but no batch job (" + kJob +
                       "), or one of an earlier version: name an empty folder");
  }
  if (fs::create_directory(job_)) sync(path_);
  // Not the journal itself: SQLite loses its locks when another descriptor of its file is closed.
  const fs::path file = named("lock", "");
  lock_ = base::Fd(checkSystemCall(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666), "open",
                                   file.native()));
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) checkSystemCall(-1, "flock", file.native());
    throw BatchRefused("output: another run uses " + path_.string() +
                       ": wait for its end, or end it");
  }
}

std::vector<fs::path> OutputFolder::existingJournals(const std::string& path) {
  std::error_code error;
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(path) / kJob, error)) {
    if (isJournal(entry.path())) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (!files.empty()) return files;
  throw BatchRefused(path + " is not the folder of a batch job: it has no journal");
}

fs::path OutputFolder::named(const std::string& name, const std::string& ending) const {
  return job_ / (name + suffix_ + ending);
}

std::string OutputFolder::partName(int64_t chunk, bool parquet) {
  char name[32];
  std::snprintf(name, sizeof name, "part-%06lld", static_cast<long long>(chunk));
  return std::string(name) + (parquet ? ".parquet" : ".jsonl");
}

std::string OutputFolder::spill(const std::string& output, int64_t chunk) {
  char name[32];
  std::snprintf(name, sizeof name, "%06lld.spill", static_cast<long long>(chunk));
  return fs::path(output) / kJob / kWork / name;
}

void OutputFolder::write(const fs::path& file, const std::string& text) const {
  const fs::path aside =
      file.parent_path() / std::string(".").append(file.filename().native()).append(kAside);
  {
    const base::Fd fd(
        checkSystemCall(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666),
                        "open", aside.native()));
    writeAll(fd.get(), text, aside);
    crashPoint("file-write");
    checkSystemCall(::fsync(fd.get()), "fsync", aside.native());
    crashPoint("file-sync");
  }
  checkSystemCall(::rename(aside.c_str(), file.c_str()), "rename", file.native());
  crashPoint("file-rename");
  sync(file.parent_path());
  crashPoint("file-folder-sync");
}

void OutputFolder::remove(const fs::path& file) const {
  if (::unlink(file.c_str()) == 0) {
    sync(file.parent_path());
  } else if (errno != ENOENT) {
    checkSystemCall(-1, "unlink", file.native());
  }
}

std::vector<fs::path> OutputFolder::parts() const {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const auto chunk = chunkOfPart(entry.path().filename().native(), /*complete=*/true);
    if (chunk && isOwn(*chunk)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::optional<int64_t> OutputFolder::chunkOf(const fs::path& part) {
  return chunkOfPart(part.filename().native(), /*complete=*/true);
}

std::vector<fs::path> OutputFolder::results(int64_t end) const {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename();
    auto chunk = chunkOfPart(name, /*complete=*/true);
    if (!chunk) chunk = chunkOfPart(name, /*complete=*/false);
    if (chunk && isOwn(*chunk) && *chunk < end) files.push_back(entry.path());
  }
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(job_ / kWork, none)) {
    const auto chunk = chunkOfSpill(entry.path().filename().native());
    if (chunk && isOwn(*chunk) && *chunk < end) files.push_back(entry.path());
  }
  return files;
}

void OutputFolder::removeIncompleteParts() const {
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const auto chunk = chunkOfPart(entry.path().filename().native(), /*complete=*/false);
    if (chunk && isOwn(*chunk)) fs::remove(entry.path());
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(job_)) {
    const std::string name = entry.path().filename();
    const bool begun = name.starts_with(kSchemaAside) || name.starts_with(kDatasetAside);
    if (begun && name.ends_with(kAside)) fs::remove(entry.path());
  }
}

void OutputFolder::removeResults(int64_t end) const {
  for (const fs::path& file : results(end)) {
    fs::remove(file);
    crashPoint("result-removal");
  }
  removeWork();
  sync(path_);
}

void OutputFolder::removeResultsOf(int64_t chunk, bool parquet) const {
  remove(path_ / partName(chunk, parquet));
  remove(spill(path_, chunk));
  crashPoint("dropped-removal");
}

bool OutputFolder::hasSchema() const { return fs::exists(job_ / kSchema); }

void OutputFolder::removeSchemaOfOtherJob(const std::string& fingerprint) const {
  std::ifstream file(job_ / kSchema);
  if (!file) return;
  const base::Json json = base::Json::parse(file, nullptr, /*allow_exceptions=*/false);
  const auto job = json.is_object() ? json.find("job") : json.end();
  if (job != json.end() && *job == fingerprint) return;
  remove(job_ / kSchema);
}

void OutputFolder::removeWork() const {
  std::error_code error;
  if (suffix_.empty()) fs::remove_all(job_ / kWork, error);
  // Other shards may have theirs there: then it is not empty and stays.
  fs::remove(job_ / kWork, error);
}

}  // namespace isopool::batch
