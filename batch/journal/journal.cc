// SPDX-License-Identifier: BSD-3-Clause
#include "batch/journal/journal.h"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "batch/journal/crash_point.h"

namespace isopool::batch {

namespace {

constexpr const char* kTables =
    "CREATE TABLE IF NOT EXISTS job(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS chunks("
    " number INTEGER PRIMARY KEY, items INTEGER NOT NULL, reference TEXT NOT NULL,"
    " only_items TEXT NOT NULL, done INTEGER NOT NULL DEFAULT 0, rows INTEGER NOT NULL DEFAULT 0,"
    " bytes INTEGER NOT NULL DEFAULT 0);"
    "CREATE INDEX IF NOT EXISTS unfinished ON chunks(number) WHERE done = 0;"
    "CREATE TABLE IF NOT EXISTS quarantine("
    " chunk INTEGER NOT NULL, item INTEGER NOT NULL, id TEXT NOT NULL, reason INTEGER NOT NULL,"
    " phase TEXT NOT NULL, signal INTEGER NOT NULL, exit_code INTEGER NOT NULL,"
    " type TEXT NOT NULL, message TEXT NOT NULL, traceback TEXT NOT NULL,"
    " crash_log TEXT NOT NULL, attempts INTEGER NOT NULL, PRIMARY KEY(chunk, item));";

constexpr const char* kRemovedBelow = "removed_below";
constexpr const char* kDropped = "dropped";
constexpr const char* kInsertChunk =
    "INSERT INTO chunks(number, items, reference, only_items) VALUES(?, ?, ?, ?)";

void insertChunk(Statement& insert, const PlannedChunk& chunk) {
  insert.bind(chunk.number).bind(int64_t{chunk.items}).bind(chunk.reference).bind(chunk.onlyItems);
  insert.run();
}

void insertFact(Database& database, const std::string& key, const std::string& value) {
  Statement(database, "INSERT OR REPLACE INTO job VALUES(?, ?)").bind(key).bind(value).run();
}

std::string factOf(Database& database, const std::string& key, const char* otherwise) {
  Statement row(database, "SELECT value FROM job WHERE key = ?");
  row.bind(key);
  return row.step() ? row.text(0) : otherwise;
}

// -1: there are no chunks.
int64_t lastNumber(Database& database) {
  Statement last(database, "SELECT coalesce(max(number), -1) FROM chunks");
  last.step();
  return last.number(0);
}

QuarantinedItem itemOf(const Statement& row) {
  QuarantinedItem item;
  item.chunk = row.number(0);
  item.item = static_cast<uint32_t>(row.number(1));
  BatchFailure& failure = item.failure;
  item.id = row.text(2);
  failure.id = textOfId(item.id);
  failure.reason = static_cast<BatchReason>(row.number(3));
  failure.phase = row.text(4);
  failure.signal = static_cast<int>(row.number(5));
  failure.exitCode = static_cast<int>(row.number(6));
  failure.type = row.text(7);
  failure.message = row.text(8);
  failure.traceback = row.text(9);
  failure.crashLog = row.text(10);
  failure.attempts = static_cast<uint32_t>(row.number(11));
  return item;
}

std::vector<QuarantinedItem> quarantinedOf(Database& database, std::optional<int64_t> chunk) {
  Statement rows(database, std::string("SELECT * FROM quarantine") +
                               (chunk ? " WHERE chunk = ?" : "") + " ORDER BY chunk, item");
  if (chunk) rows.bind(*chunk);
  std::vector<QuarantinedItem> items;
  while (rows.step()) items.push_back(itemOf(rows));
  return items;
}

std::vector<int64_t> numbersOf(Database& database, const char* query) {
  Statement rows(database, query);
  std::vector<int64_t> numbers;
  while (rows.step()) numbers.push_back(rows.number(0));
  return numbers;
}

PlannedChunk chunkOf(Database& database, int64_t number) {
  Statement row(database, "SELECT items, reference, only_items FROM chunks WHERE number = ?");
  row.bind(number);
  if (!row.step())
    throw DatabaseError(database.path() + " has no chunk " + std::to_string(number), false);
  return {number, static_cast<uint32_t>(row.number(0)), row.text(1), row.text(2)};
}

}  // namespace

std::string textOfId(const std::string& id) {
  const base::Json value = base::Json::parse(id);
  return value.is_string() ? value.get<std::string>() : id;
}

Journal::Journal(Database database) : database_(std::move(database)) {}

Journal::Journal(const std::string& path) : database_(path) { database_.execute(kTables); }

Journal Journal::existing(const std::string& path) { return Journal(Database::existing(path)); }

std::string Journal::fact(const std::string& key) {
  const base::MutexLock lock(mutex_);
  return factOf(database_, key, "");
}

void Journal::setFact(const std::string& key, const std::string& value) {
  const base::MutexLock lock(mutex_);
  insertFact(database_, key, value);
}

void Journal::writePlan(const std::function<std::optional<PlannedChunk>()>& next,
                        const Facts& facts) {
  const base::MutexLock lock(mutex_);
  Transaction transaction(database_);
  database_.execute("DELETE FROM chunks; DELETE FROM quarantine;");
  Statement insert(database_, kInsertChunk);
  while (const auto chunk = next()) insertChunk(insert, *chunk);
  insertFact(database_, kRemovedBelow, "0");
  for (const auto& [key, value] : facts) insertFact(database_, key, value);
  crashPoint("before-plan-commit");
  transaction.commit();
  crashPoint("after-plan-commit");
}

void Journal::forgetPlan() {
  const base::MutexLock lock(mutex_);
  Transaction transaction(database_);
  const int64_t end = lastNumber(database_) + 1;
  database_.execute("DELETE FROM chunks; DELETE FROM quarantine; DELETE FROM job;");
  insertFact(database_, kRemovedBelow, std::to_string(end));
  crashPoint("before-forget-commit");
  transaction.commit();
  crashPoint("after-forget-commit");
}

int64_t Journal::removedBelow() {
  const std::string end = fact(kRemovedBelow);
  return end.empty() ? 0 : std::stoll(end);
}

void Journal::planQuarantineAgain(uint32_t shards, const Facts& facts) {
  const base::MutexLock lock(mutex_);
  Transaction transaction(database_);
  int64_t number = lastNumber(database_);
  const std::vector<QuarantinedItem> items = quarantinedOf(database_, {});
  Statement insert(database_, kInsertChunk);
  for (size_t begin = 0; begin < items.size();) {
    PlannedChunk chunk = chunkOf(database_, items[begin].chunk);
    base::Json only = base::Json::array();
    size_t end = begin;
    for (; end < items.size() && items[end].chunk == items[begin].chunk; ++end) {
      only.push_back(items[end].item);
    }
    // Numbers of a shard are equal modulo the number of shards.
    number += shards;
    chunk.number = number;
    chunk.onlyItems = base::jsonText(only);
    insertChunk(insert, chunk);
    begin = end;
  }
  database_.execute("DELETE FROM quarantine");
  for (const auto& [key, value] : facts) insertFact(database_, key, value);
  crashPoint("before-retry-commit");
  transaction.commit();
  crashPoint("after-retry-commit");
}

std::vector<KnownChunk> Journal::known() {
  const base::MutexLock lock(mutex_);
  std::map<int64_t, std::vector<uint32_t>> failed;
  Statement items(database_, "SELECT chunk, item FROM quarantine ORDER BY chunk, item");
  while (items.step()) failed[items.number(0)].push_back(static_cast<uint32_t>(items.number(1)));
  Statement rows(database_,
                 "SELECT number, done, rows, bytes, reference FROM chunks ORDER BY number");
  std::vector<KnownChunk> all;
  while (rows.step()) {
    all.push_back({rows.number(0), rows.number(1) != 0, static_cast<uint64_t>(rows.number(2)),
                   static_cast<uint64_t>(rows.number(3)), rows.text(4), failed[rows.number(0)]});
  }
  return all;
}

void Journal::grow(const PlanGrowth& growth,
                   const std::function<std::optional<PlannedChunk>()>& next, const Facts& facts) {
  const base::MutexLock lock(mutex_);
  Transaction transaction(database_);
  int64_t number = lastNumber(database_);
  base::Json dropped = base::Json::parse(factOf(database_, kDropped, "[]"));
  // Of a group of chunks with one reference, the first one counts the items.
  Statement fewer(database_,
                  "UPDATE chunks SET items = items - 1 WHERE only_items = '' AND reference ="
                  " (SELECT reference FROM chunks WHERE number = ?)");
  Statement aside(database_, "DELETE FROM quarantine WHERE chunk = ? AND item = ?");
  for (const auto& [chunk, item] : growth.forgotten) {
    fewer.bind(chunk).run();
    aside.bind(chunk).bind(int64_t{item}).run();
  }
  Statement ofChunk(database_, "DELETE FROM quarantine WHERE chunk = ?");
  Statement chunks(database_, "DELETE FROM chunks WHERE number = ?");
  for (const int64_t each : growth.dropped) {
    ofChunk.bind(each).run();
    chunks.bind(each).run();
    dropped.push_back(each);
  }
  Statement reference(database_, "UPDATE chunks SET reference = ? WHERE number = ?");
  for (const auto& [each, text] : growth.references) reference.bind(text).bind(each).run();
  Statement insert(database_, kInsertChunk);
  while (auto chunk = next()) {
    chunk->number = ++number;
    insertChunk(insert, *chunk);
  }
  insertFact(database_, kDropped, base::jsonText(dropped));
  for (const auto& [key, value] : facts) insertFact(database_, key, value);
  crashPoint("before-growth-commit");
  transaction.commit();
  crashPoint("after-growth-commit");
}

std::vector<int64_t> Journal::dropped() {
  const base::MutexLock lock(mutex_);
  return base::Json::parse(factOf(database_, kDropped, "[]")).get<std::vector<int64_t>>();
}

void Journal::forgetDropped() { setFact(kDropped, "[]"); }

std::vector<int64_t> Journal::chunks() {
  const base::MutexLock lock(mutex_);
  return numbersOf(database_, "SELECT number FROM chunks ORDER BY number");
}

std::vector<int64_t> Journal::unfinishedChunks() {
  const base::MutexLock lock(mutex_);
  return numbersOf(database_, "SELECT number FROM chunks WHERE done = 0 ORDER BY number");
}

PlannedChunk Journal::chunk(int64_t number) {
  const base::MutexLock lock(mutex_);
  return chunkOf(database_, number);
}

void Journal::finishChunk(int64_t number, uint64_t rows, uint64_t bytes) {
  const base::MutexLock lock(mutex_);
  crashPoint("before-chunk-commit");
  Statement(database_, "UPDATE chunks SET done = 1, rows = ?, bytes = ? WHERE number = ?")
      .bind(static_cast<int64_t>(rows))
      .bind(static_cast<int64_t>(bytes))
      .bind(number)
      .run();
  crashPoint("after-chunk-commit");
}

std::vector<DonePart> Journal::doneParts() {
  const base::MutexLock lock(mutex_);
  Statement rows(database_, "SELECT number, bytes FROM chunks WHERE done = 1 AND rows > 0");
  std::vector<DonePart> parts;
  while (rows.step()) parts.push_back({rows.number(0), static_cast<uint64_t>(rows.number(1))});
  return parts;
}

void Journal::redo(const std::vector<int64_t>& numbers) {
  const base::MutexLock lock(mutex_);
  Transaction transaction(database_);
  for (const int64_t number : numbers) {
    Statement(database_, "UPDATE chunks SET done = 0, rows = 0, bytes = 0 WHERE number = ?")
        .bind(number)
        .run();
  }
  transaction.commit();
}

void Journal::quarantine(const QuarantinedItem& item) {
  const base::MutexLock lock(mutex_);
  const BatchFailure& failure = item.failure;
  crashPoint("before-quarantine-commit");
  Statement(database_,
            "INSERT OR REPLACE INTO quarantine VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
      .bind(item.chunk)
      .bind(int64_t{item.item})
      .bind(item.id)
      .bind(int64_t{static_cast<int>(failure.reason)})
      .bind(failure.phase)
      .bind(int64_t{failure.signal})
      .bind(int64_t{failure.exitCode})
      .bind(failure.type)
      .bind(failure.message)
      .bind(failure.traceback)
      .bind(failure.crashLog)
      .bind(int64_t{failure.attempts})
      .run();
  crashPoint("after-quarantine-commit");
}

std::vector<QuarantinedItem> Journal::quarantined(std::optional<int64_t> chunk) {
  const base::MutexLock lock(mutex_);
  return quarantinedOf(database_, chunk);
}

JournalCounts Journal::counts() {
  const base::MutexLock lock(mutex_);
  Statement chunks(database_,
                   "SELECT coalesce(sum(CASE WHEN only_items = '' THEN items ELSE 0 END), 0),"
                   " count(*), coalesce(sum(done), 0), coalesce(sum(rows), 0) FROM chunks");
  chunks.step();
  JournalCounts counts;
  counts.items = static_cast<uint64_t>(chunks.number(0));
  counts.chunks = static_cast<uint64_t>(chunks.number(1));
  counts.chunksDone = static_cast<uint64_t>(chunks.number(2));
  counts.rows = static_cast<uint64_t>(chunks.number(3));
  chunks.step();
  Statement set(database_, "SELECT count(*) FROM quarantine");
  set.step();
  counts.quarantined = static_cast<uint64_t>(set.number(0));
  set.step();
  return counts;
}

}  // namespace isopool::batch
