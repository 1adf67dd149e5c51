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

}  // namespace isopool::batch
