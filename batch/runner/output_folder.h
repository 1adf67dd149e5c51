// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace isopool::batch {

/// The folder of a job's results, held by one run of a shard at a time.
///
///   part-000123.parquet         the results of chunk 123; appears whole
///   __job__/quarantine.jsonl    the items that were set aside
///   __job__/journal.sqlite      the plan and what is done
///   __job__/summary.json        how the last run ended
///   __job__/schema.json         the types of the columns, of all shards: isopool_batch/schema.py
///   __job__/dataset.json        items of a dataset, for comparison: dataset_source.py
///   __job__/work/               results of chunks that are not done; removed at the end
///
/// Readers of tables that are given the folder pass over names that begin with two underscores.
/// With several shards, the first three of __job__ have the shard in their names:
/// journal-0-of-4.sqlite.
class OutputFolder {
 public:
  /// Makes the folder if it is missing, and locks it until the end of this object. Throws
  /// BatchRefused if it holds files and no job, or if another run uses it, and SystemCallError.
  OutputFolder(const std::string& path, uint32_t shard, uint32_t shards);
  /// The journals of a folder, one for each shard. Throws BatchRefused if there is none.
  static std::vector<std::filesystem::path> existingJournals(const std::string& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path journal() const { return named("journal", ".sqlite"); }
  /// `name` with the shard and this ending, in __job__: quarantine.jsonl.
  std::filesystem::path named(const std::string& name, const std::string& ending) const;
  static std::string partName(int64_t chunk, bool parquet);
  /// Where workers keep the results of a chunk that is not done.
  static std::string spill(const std::string& output, int64_t chunk);

  /// Writes a file that appears whole and is on the disk afterwards. Throws SystemCallError.
  void write(const std::filesystem::path& file, const std::string& text) const;
  void remove(const std::filesystem::path& file) const;
  /// The parts of the shard, by their names: a file that is only named alike is none.
  std::vector<std::filesystem::path> parts() const;
  /// The chunk of one of them.
  static std::optional<int64_t> chunkOf(const std::filesystem::path& part);
  /// Whether there are any, or results of unfinished chunks.
  bool hasResults() const { return !results(kAllChunks).empty(); }
  /// Removes those of chunks below this number. For a run that starts anew.
  void removeResults(int64_t end) const;
  /// Removes those of one chunk.
  void removeResultsOf(int64_t chunk, bool parquet) const;
  /// Whether the types of the columns are known.
  bool hasSchema() const;
  /// Makes them unknown if they are those of a job with another fingerprint.
  void removeSchemaOfOtherJob(const std::string& fingerprint) const;
  /// Removes what is left of files of workers that were not completed.
  void removeIncompleteParts() const;
  /// Removes results of unfinished chunks, if they can't belong to another shard. For a run that
  /// has none.
  void removeWork() const;

 private:
  static constexpr int64_t kAllChunks = INT64_MAX;

  /// Of this shard's chunks below that number.
  std::vector<std::filesystem::path> results(int64_t end) const;
  bool isOwn(int64_t chunk) const { return chunk % shards_ == shard_; }

  std::filesystem::path path_;
  std::filesystem::path job_;  ///< __job__ in it
  const uint32_t shard_;
  const uint32_t shards_;
  std::string suffix_;
  base::Fd lock_;
};

}  // namespace isopool::batch
