// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "batch/journal/database.h"
#include "isopool/batch.h"

namespace isopool::batch {

/// A chunk as it was planned. `reference` is JSON that only the source understands: where its items
/// are. `onlyItems` is a JSON list of the items to do, or empty: all.
struct PlannedChunk {
  int64_t number = 0;
  uint32_t items = 0;
  std::string reference;
  std::string onlyItems;
};

/// An item that was set aside, and where it is in the plan. `id` is the item's ID as JSON: a
/// number, or the text that is failure.id.
struct QuarantinedItem {
  int64_t chunk = 0;
  uint32_t item = 0;
  std::string id;
  BatchFailure failure;
};

/// What failure.id is for an item with this ID, as JSON.
std::string textOfId(const std::string& id);

/// The part of a chunk that is done.
struct DonePart {
  int64_t chunk = 0;
  uint64_t bytes = 0;
};

/// A chunk of the plan and what became of it, for comparison with the present inputs.
struct KnownChunk {
  int64_t number = 0;
  bool done = false;
  uint64_t rows = 0;
  uint64_t bytes = 0;
  std::string reference;
  std::vector<uint32_t> failed;  ///< its items that were set aside
};

/// What becomes of a plan whose inputs have changed.
struct PlanGrowth {
  std::vector<int64_t> dropped;                         ///< chunks whose results are of no worth
  std::vector<std::pair<int64_t, uint32_t>> forgotten;  ///< items that are set aside no more
  std::vector<std::pair<int64_t, std::string>> references;  ///< new ones, of chunks that stay
};

/// What the journal says of a shard's chunks.
struct JournalCounts {
  uint64_t items = 0;
  uint64_t chunks = 0;
  uint64_t chunksDone = 0;
  uint64_t rows = 0;  ///< with a result, in chunks that are done
  uint64_t quarantined = 0;
};

/// Keys and values.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// The memory of a batch job: its plan, what is done, which items were set aside and why. A SQLite
/// file in the output folder; each change is on the disk when the member returns. What the journal
/// calls done has its part file on the disk: the caller writes that first.
///
///   job(key, value)   facts about the whole: the job, fingerprints, whether the plan is complete
///   chunks            number, items, reference, only_items, done, rows, bytes
///   quarantine        chunk, item, and the fields of BatchFailure
///
/// Thread-safe. Members throw DatabaseError.
class Journal {
 public:
  explicit Journal(const std::string& path);
  /// Throws DatabaseError if the file is missing or no journal.
  static Journal existing(const std::string& path);

  std::string fact(const std::string& key);  ///< empty if it is not there
  void setFact(const std::string& key, const std::string& value);

  /// Replaces the plan. `next` gives one chunk after the other, and none at the end. One
  /// transaction, together with these facts.
  void writePlan(const std::function<std::optional<PlannedChunk>()>& next, const Facts& facts);
  /// Forgets plan, quarantine and facts: what lies in the folder of the planned chunks is of no
  /// worth from now on. Until the next plan, removedBelow() is the end of their numbers.
  void forgetPlan();
  /// 0: nothing is to be removed.
  int64_t removedBelow();
  /// Plans the quarantined items of the shard again, as new chunks, and empties the quarantine. The
  /// numbers of the new chunks differ from those of all shards, of which there are `shards`. One
  /// transaction, together with these facts.
  void planQuarantineAgain(uint32_t shards, const Facts& facts);

  std::vector<KnownChunk> known();
  /// Changes the plan, and adds the chunks that `next` gives, whose numbers are set here. One
  /// transaction, together with these facts. What lies in the folder of dropped chunks is to be
  /// removed: see dropped().
  void grow(const PlanGrowth& growth, const std::function<std::optional<PlannedChunk>()>& next,
            const Facts& facts);
  /// The chunks that were dropped and whose results may still be there.
  std::vector<int64_t> dropped();
  void forgetDropped();

  /// The numbers of the shard's chunks, in order.
  std::vector<int64_t> chunks();
  /// Of those that are not done.
  std::vector<int64_t> unfinishedChunks();
  PlannedChunk chunk(int64_t number);
  void finishChunk(int64_t number, uint64_t rows, uint64_t bytes);
  /// The parts of the chunks that are done, without those that have no row and so no file.
  std::vector<DonePart> doneParts();
  /// These chunks are to be done again.
  void redo(const std::vector<int64_t>& numbers);

  void quarantine(const QuarantinedItem& item);
  /// In order of chunks and items. With a number: of this chunk.
  std::vector<QuarantinedItem> quarantined(std::optional<int64_t> chunk = {});
  JournalCounts counts();

 private:
  explicit Journal(Database database);

  base::Mutex mutex_;
  Database database_ ISOPOOL_GUARDED_BY(mutex_);
};

}  // namespace isopool::batch
