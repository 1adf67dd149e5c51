// SPDX-License-Identifier: BSD-3-Clause
#include "batch/runner/inputs.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "batch/runner/paths.h"

namespace isopool::batch {

namespace {

namespace fs = std::filesystem;
using base::Json;

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

/// The kinds of input whose files have several items, by the endings of their names.
struct TableEnding {
  std::string_view ending;
  const char* kind;
  bool compressible;  ///< the name may have an ending of kCompressions, too
};
constexpr std::array<TableEnding, 8> kTables{{{".parquet", "parquet", false},
                                              {".pq", "parquet", false},
                                              {".jsonl", "jsonl", true},
                                              {".ndjson", "jsonl", true},
                                              {".json", "jsonl", true},
                                              {".csv", "csv", true},
                                              {".tsv", "csv", true},
                                              {".tar", "tar", false}}};
constexpr std::array<std::string_view, 4> kCompressions{".gz", ".zst", ".bz2", ".xz"};
/// Of tables that are not read.
constexpr std::array<std::string_view, 11> kOtherTables{
    ".gz", ".zst", ".bz2", ".xz", ".lz4", ".tgz", ".zip", ".arrow", ".orc", ".avro", ".feather"};

std::string inLowerCase(std::string text) {
  for (char& each : text) {
    if (each >= 'A' && each <= 'Z') each = static_cast<char>(each - 'A' + 'a');
  }
  return text;
}

/// "parquet", "jsonl", "csv", "tar"; empty: the file is one item.
std::string kindOf(const std::string& named) {
  const std::string path = inLowerCase(named);
  std::string name = path;
  for (const std::string_view each : kCompressions) {
    if (name.ends_with(each)) name.resize(name.size() - each.size());
  }
  for (const TableEnding& each : kTables) {
    if ((each.compressible ? name : path).ends_with(each.ending)) return each.kind;
  }
  return {};
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
      if (kindOf(name).empty()) return {};
      files.push_back(each->path());
    }
  }
  if (error) return {};
  std::sort(files.begin(), files.end());
  return files;
}

/// One of the inputs that are named. `partition`: those of its folders that are KEY=VALUE, columns
/// of the file's rows: "year=2026/month=11".
struct Named {
  std::string path;
  std::string partition = {};
};

std::string partitionOf(const std::string& file) {
  fs::path columns;
  for (const fs::path& folder : fs::path(absolutePath(file)).parent_path()) {
    if (folder.native().find('=') != std::string::npos) columns /= folder;
  }
  return columns;
}

/// Patterns and folders of tables as their files; all other inputs as they are.
std::vector<Named> withoutFoldersOfTables(const std::vector<std::string>& inputs) {
  std::vector<Named> all;
  std::error_code error;
  for (const std::string& input : inputs) {
    std::vector<std::string> files;
    if (fs::is_directory(input, error)) {
      files = tablesIn(input);
    } else if (!fs::exists(input, error) && input.find_first_of("*?[") != std::string::npos &&
               !kindOf(input).empty()) {
      files = matching(input);
    }
    if (files.empty()) files.push_back(input);
    for (const std::string& file : files) all.push_back({file, partitionOf(file)});
  }
  return all;
}

/// A model would get the path of a table as its only item.
void refuseTables(const std::vector<Named>& inputs) {
  for (const Named& input : inputs) {
    std::string why;
    if (!kindOf(input.path).empty()) {
      why = "is a table, and not all inputs are of its kind: give them in jobs of their own";
    } else if (std::any_of(kOtherTables.begin(), kOtherTables.end(), [&](std::string_view ending) {
                 return inLowerCase(input.path).ends_with(ending);
               })) {
      why = "is of a kind whose rows are not read: convert it to Parquet or JSON lines";
    }
    if (why.empty()) continue;
    throw BatchRefused("input: " + input.path + " " + why +
                       ", or give --files (BatchJob::files) to pass paths to the model");
  }
}

}  // namespace

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

Json inputJson(const BatchJob& job) {
  if (job.inputs.empty()) throw BatchRefused("a batch job needs an input");
  std::vector<Named> inputs;
  if (job.files) {
    for (const std::string& input : job.inputs) inputs.push_back({input});
  } else {
    inputs = withoutFoldersOfTables(job.inputs);
  }
  if (inputs.size() == 1) {
    if (const auto parts = pythonName(inputs.front().path)) {
      return {{"kind", "dataset"},
              {"path", existingFile(parts->first, "input")},
              {"name", parts->second}};
    }
    if (inputs.front().path.ends_with(".pkl")) {
      return {{"kind", "dataset"}, {"pickle", existingFile(inputs.front().path, "input")}};
    }
  }
  std::string kind = job.files ? "" : kindOf(inputs.front().path);
  if (!std::all_of(inputs.begin(), inputs.end(),
                   [&](const Named& each) { return job.files || kindOf(each.path) == kind; })) {
    kind.clear();
  }
  if (kind.empty() && !job.files) refuseTables(inputs);
  std::vector<std::string> paths;
  std::vector<std::string> partitions;
  for (const Named& input : inputs) {
    paths.push_back(kind.empty() ? absolutePath(input.path) : existingFile(input.path, "input"));
    partitions.push_back(input.partition);
  }
  if (kind.empty()) {
    return {{"kind", "files"}, {"paths", paths}, {"root", rootOf(paths)}, {"tables", job.files}};
  }
  Json json{{"kind", kind}, {"paths", paths}};
  if (std::any_of(partitions.begin(), partitions.end(),
                  [](const std::string& each) { return !each.empty(); })) {
    json["partitions"] = partitions;
  }
  return json;
}

}  // namespace isopool::batch
