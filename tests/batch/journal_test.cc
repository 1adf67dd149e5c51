// SPDX-License-Identifier: BSD-3-Clause
#include "batch/journal/journal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace isopool::batch {
namespace {

namespace fs = std::filesystem;

class JournalTest : public ::testing::Test {
 protected:
  JournalTest() {
    std::string name = fs::temp_directory_path() / "isopool-test-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~JournalTest() override { fs::remove_all(folder_); }
  JournalTest(const JournalTest&) = delete;
  JournalTest& operator=(const JournalTest&) = delete;

  std::string path() const { return folder_ / "journal.sqlite"; }

  /// Chunks with these numbers, of ten items each.
  static void plan(Journal& journal, std::vector<int64_t> numbers, const Facts& facts = {}) {
    size_t place = 0;
    journal.writePlan(
        [&]() -> std::optional<PlannedChunk> {
          if (place == numbers.size()) return std::nullopt;
          const int64_t number = numbers[place++];
          return PlannedChunk{number, 10, "{\"place\":" + std::to_string(number) + "}", {}};
        },
        facts);
  }

  static QuarantinedItem item(int64_t chunk, uint32_t index) {
    QuarantinedItem made;
    made.chunk = chunk;
    made.item = index;
    made.failure.id = "item " + std::to_string(chunk) + "-" + std::to_string(index);
    made.id = "\"" + made.failure.id + "\"";
    made.failure.reason = BatchReason::kRaised;
    return made;
  }

  static std::vector<std::string> quarantinedIds(Journal& journal) {
    std::vector<std::string> ids;
    for (const QuarantinedItem& each : journal.quarantined()) ids.push_back(each.failure.id);
    return ids;
  }

  fs::path folder_;
};

using Ids = std::vector<std::string>;
using Numbers = std::vector<int64_t>;

TEST_F(JournalTest, IsEmptyAtFirst) {
  Journal journal(path());
  EXPECT_EQ(journal.fact("job"), "");
  EXPECT_EQ(journal.unfinishedChunks(), Numbers{});
  EXPECT_EQ(journal.quarantined().size(), 0u);
  const JournalCounts counts = journal.counts();
  EXPECT_EQ(counts.items + counts.chunks + counts.chunksDone + counts.rows + counts.quarantined,
            0u);
}

TEST_F(JournalTest, KeepsThePlanAndItsFacts) {
  {
    Journal journal(path());
    plan(journal, {0, 1, 2}, {{"job", "{}"}, {"fingerprint", "abc"}});
    journal.setFact("fingerprint", "def");
  }
  Journal journal = Journal::existing(path());
  EXPECT_EQ(journal.fact("job"), "{}");
  EXPECT_EQ(journal.fact("fingerprint"), "def");
  EXPECT_EQ(journal.unfinishedChunks(), (Numbers{0, 1, 2}));
  const PlannedChunk chunk = journal.chunk(1);
  EXPECT_EQ(chunk.number, 1);
  EXPECT_EQ(chunk.items, 10u);
  EXPECT_EQ(chunk.reference, "{\"place\":1}");
  EXPECT_EQ(chunk.onlyItems, "");
  EXPECT_THROW(journal.chunk(3), DatabaseError);
}

TEST_F(JournalTest, APlanThatFailsChangesNothing) {
  Journal journal(path());
  plan(journal, {0, 1}, {{"fingerprint", "first"}});
  journal.quarantine(item(0, 3));
  int asked = 0;
  const auto next = [&]() -> std::optional<PlannedChunk> {
    if (++asked == 3) throw std::runtime_error("the input is gone");
    return PlannedChunk{asked, 1, "{}", {}};
  };
  EXPECT_THROW(journal.writePlan(next, {{"fingerprint", "second"}}), std::runtime_error);
  EXPECT_EQ(journal.fact("fingerprint"), "first");
  EXPECT_EQ(journal.unfinishedChunks(), (Numbers{0, 1}));
  EXPECT_EQ(quarantinedIds(journal), Ids{"item 0-3"});
}

TEST_F(JournalTest, ANewPlanReplacesTheOldOne) {
  Journal journal(path());
  plan(journal, {0, 1, 2});
  journal.finishChunk(0, 9, 100);
  journal.quarantine(item(0, 3));
  plan(journal, {0, 1});
  EXPECT_EQ(journal.unfinishedChunks(), (Numbers{0, 1}));
  EXPECT_EQ(quarantinedIds(journal), Ids{});
}

TEST_F(JournalTest, CountsWhatIsFinished) {
  {
    Journal journal(path());
    plan(journal, {0, 2, 4});
    journal.finishChunk(2, 9, 1234);
    journal.quarantine(item(2, 7));
  }
  Journal journal(path());
  EXPECT_EQ(journal.unfinishedChunks(), (Numbers{0, 4}));
  const JournalCounts counts = journal.counts();
  EXPECT_EQ(counts.items, 30u);
  EXPECT_EQ(counts.chunks, 3u);
  EXPECT_EQ(counts.chunksDone, 1u);
  EXPECT_EQ(counts.rows, 9u);
  EXPECT_EQ(counts.quarantined, 1u);
}

TEST_F(JournalTest, KeepsEachFieldOfAFailure) {
  QuarantinedItem whole = item(1, 5);
  BatchFailure& failure = whole.failure;
  failure = {"an 'id' ; DROP TABLE chunks",
             BatchReason::kTimeout,
             "model",
             11,
             7,
             "a.Type",
             "größer",
             "trace\nback",
             "log",
             3};
  whole.id = "\"an 'id' ; DROP TABLE chunks\"";
  {
    Journal journal(path());
    plan(journal, {0, 1});
    journal.quarantine(whole);
  }
  Journal journal(path());
  const auto found = journal.quarantined();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].chunk, 1);
  EXPECT_EQ(found[0].item, 5u);
  const BatchFailure& kept = found[0].failure;
  EXPECT_EQ(kept.id, failure.id);
  EXPECT_EQ(kept.reason, BatchReason::kTimeout);
  EXPECT_EQ(kept.phase, "model");
  EXPECT_EQ(kept.signal, 11);
  EXPECT_EQ(kept.exitCode, 7);
  EXPECT_EQ(kept.type, "a.Type");
  EXPECT_EQ(kept.message, "größer");
  EXPECT_EQ(kept.traceback, "trace\nback");
  EXPECT_EQ(kept.crashLog, "log");
  EXPECT_EQ(kept.attempts, 3u);
}

TEST_F(JournalTest, KeepsAnIdThatIsANumber) {
  QuarantinedItem whole = item(1, 5);
  whole.id = "17";
  Journal journal(path());
  plan(journal, {1});
  journal.quarantine(whole);
  EXPECT_EQ(journal.quarantined().at(0).id, "17");
  EXPECT_EQ(quarantinedIds(journal), Ids{"17"});
}

TEST_F(JournalTest, NamesTheQuarantinedInOrderAndEachOnce) {
  Journal journal(path());
  plan(journal, {0, 1, 2});
  for (const auto& [chunk, index] :
       std::vector<std::pair<int64_t, uint32_t>>{{2, 0}, {0, 9}, {0, 1}, {1, 4}, {0, 9}}) {
    journal.quarantine(item(chunk, index));
  }
  EXPECT_EQ(quarantinedIds(journal), (Ids{"item 0-1", "item 0-9", "item 1-4", "item 2-0"}));
  EXPECT_EQ(journal.quarantined(0).size(), 2u);
  EXPECT_EQ(journal.quarantined(3).size(), 0u);
}

TEST_F(JournalTest, PlansTheQuarantineAgain) {
  Journal journal(path());
  plan(journal, {0, 1, 2}, {{"fingerprint", "before"}});
  for (const int64_t chunk : {0, 1, 2}) journal.finishChunk(chunk, 8, 100);
  for (const auto& each : {item(0, 1), item(0, 9), item(2, 4)}) journal.quarantine(each);
  journal.planQuarantineAgain(1, {{"fingerprint", "after"}});
  EXPECT_EQ(journal.fact("fingerprint"), "after");
  EXPECT_EQ(quarantinedIds(journal), Ids{});
  EXPECT_EQ(journal.unfinishedChunks(), (Numbers{3, 4}));
  EXPECT_EQ(journal.chunk(3).onlyItems, "[1,9]");
  EXPECT_EQ(journal.chunk(3).reference, journal.chunk(0).reference);
  EXPECT_EQ(journal.chunk(4).onlyItems, "[4]");
  EXPECT_EQ(journal.chunk(4).reference, journal.chunk(2).reference);
  EXPECT_EQ(journal.counts().items, 30u) << "they are no further items";

  // The chunk of a retry may have failures again.
  journal.finishChunk(3, 1, 50);
  journal.quarantine(item(3, 9));
  EXPECT_EQ(journal.counts().rows, 25u);
  journal.planQuarantineAgain(1, {});
  EXPECT_EQ(journal.unfinishedChunks(), (Numbers{4, 5}));
  EXPECT_EQ(journal.chunk(5).onlyItems, "[9]");
  EXPECT_EQ(journal.chunk(5).reference, journal.chunk(0).reference);
}

TEST_F(JournalTest, PlansAnEmptyQuarantineAgain) {
  Journal journal(path());
  plan(journal, {0});
  journal.planQuarantineAgain(1, {});
  EXPECT_EQ(journal.unfinishedChunks(), Numbers{0});
}

TEST_F(JournalTest, NewChunksOfAShardHaveNumbersOfThisShard) {
  Journal journal(path());
  plan(journal, {1, 4, 7});
  journal.quarantine(item(1, 0));
  journal.quarantine(item(4, 0));
  journal.planQuarantineAgain(3, {});
  EXPECT_EQ(journal.unfinishedChunks(), (Numbers{1, 4, 7, 10, 13}));
}

TEST_F(JournalTest, ForgetsThePlan) {
  Journal journal(path());
  plan(journal, {0, 1}, {{"fingerprint", "abc"}});
  journal.quarantine(item(0, 0));
  journal.forgetPlan();
  EXPECT_EQ(journal.fact("fingerprint"), "");
  EXPECT_EQ(journal.unfinishedChunks(), Numbers{});
  EXPECT_EQ(quarantinedIds(journal), Ids{});
}

TEST_F(JournalTest, IsReadWhileARunWritesIt) {
  Journal writer(path());
  plan(writer, {0, 1});
  Journal reader = Journal::existing(path());
  EXPECT_EQ(reader.counts().chunksDone, 0u);
  writer.finishChunk(0, 10, 100);
  EXPECT_EQ(reader.counts().chunksDone, 1u);
}

TEST_F(JournalTest, WhatIsNoJournalIsRefused) {
  EXPECT_THROW(Journal::existing(path()), DatabaseError) << "there is none";
  EXPECT_FALSE(fs::exists(path())) << "a question makes no file";
  std::ofstream(path()) << "This is a text, and a long one, which no database would begin with.";
  try {
    Journal::existing(path()).counts();
    FAIL() << "a text is no database";
  } catch (const DatabaseError& error) {
    EXPECT_NE(std::string(error.what()).find(path()), std::string::npos) << error.what();
    EXPECT_FALSE(error.diskFull());
  }
}

}  // namespace
}  // namespace isopool::batch
