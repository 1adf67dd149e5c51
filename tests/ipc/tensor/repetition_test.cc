// SPDX-License-Identifier: BSD-3-Clause
// Values whose parts occur in them again and again, and the time that writing and reading take.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "base/repetition.h"
#include "ipc/tensor/value_codec.h"
#include "tests/ipc/tensor/crossing.h"

namespace isopool::ipc {
namespace {

using at::IValue;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

IValue pair(const IValue& one, const IValue& other) {
  return c10::ivalue::Tuple::create({one, other});
}
IValue listOf(const IValue& one, const IValue& other) {
  c10::impl::GenericList list(c10::AnyType::get());
  list.push_back(one);
  list.push_back(other);
  return list;
}
IValue dictOf(const IValue& one, const IValue& other) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("one", one);
  dict.insert("other", other);
  return dict;
}

using Make = IValue (*)(const IValue&, const IValue&);

IValue shared(Make make, int depth) {
  IValue value(1);
  for (int i = 0; i < depth; ++i) value = make(value, value);
  return value;
}

/// Why the value can't be written; empty if it can. Within a second, whatever the value is.
std::string refusal(const IValue& value) {
  PayloadWriter writer;
  writer.packer().pack_array(1);
  const auto began = Clock::now();
  std::string why;
  try {
    writer.addValue(value);
  } catch (const ValueError& error) {
    why = error.what();
  }
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(5));
  return why;
}

TEST(RepeatedParts, OfPairsInPairsAreRefusedBeforeTheyAreWritten) {
  for (const Make make : {&pair, &listOf, &dictOf}) {
    for (const int depth : {23, 26, 30, 60}) {
      EXPECT_NE(refusal(shared(make, depth)).find("occur in it again and again"), std::string::npos)
          << depth;
    }
    EXPECT_EQ(refusal(shared(make, 16)), "");
  }
}

TEST(RepeatedParts, ThatContainThemselvesAreRefusedAtOnce) {
  c10::impl::GenericList list(c10::AnyType::get());
  const IValue many = shared(&pair, 26);
  list.push_back(IValue(list));
  list.push_back(many);
  EXPECT_NE(refusal(list), "");
  c10::impl::GenericList later(c10::AnyType::get());
  later.push_back(shared(&pair, 17));
  later.push_back(IValue(later));
  EXPECT_NE(refusal(later), "");
  // So that they are freed.
  list.clear();
  later.clear();
}

TEST(RepeatedParts, ThatAreLongTextsCountByTheirLength) {
  const IValue text(std::string(10'000'000, 'x'));
  c10::impl::GenericList list(c10::StringType::get());
  for (int i = 0; i < 1000; ++i) list.push_back(text);
  EXPECT_NE(refusal(list), "");
  list.resize(10, text);
  EXPECT_EQ(refusal(list), "");
  list.clear();
}

TEST(RepeatedParts, OfATypeAreRefused) {
  c10::TypePtr type = c10::IntType::get();
  for (int i = 0; i < 40; ++i) type = c10::TupleType::create({type, type});
  EXPECT_NE(refusal(c10::impl::GenericList(type)).find("more than 65536 parts"), std::string::npos);
}

TEST(RepeatedParts, AreNoneInALongListOfDifferentValues) {
  c10::impl::GenericList list(c10::AnyType::get());
  for (int i = 0; i < 1'000'000; ++i) list.push_back(pair(i, i));
  EXPECT_EQ(refusal(list), "");
  // Written as often as it occurs, which is not too often.
  const IValue row = pair(1, 2);
  list.clear();
  for (int i = 0; i < 1'000'000; ++i) list.push_back(row);
  EXPECT_EQ(refusal(list), "");
}

size_t valuesIn(const IValue& value) {
  size_t all = 1;
  if (value.isTuple()) {
    for (const IValue& each : value.toTupleRef().elements()) all += valuesIn(each);
  } else if (value.isList()) {
    for (const IValue& each : value.toListRef()) all += valuesIn(each);
  }
  return all;
}

// Random structures of shared tuples and lists: each crosses unchanged, or is refused in time.
TEST(RepeatedParts, OfRandomStructuresCrossOrAreRefused) {
  int crossed = 0;
  int refused = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](size_t limit) {
      return std::uniform_int_distribution<size_t>(0, limit - 1)(random);
    };
    std::vector<IValue> made{IValue(7), IValue("text"), IValue()};
    const size_t parts = 1 + below(seed % 3 == 0 ? 60 : 12);
    for (size_t i = 0; i < parts; ++i) {
      // Mostly of the latest ones, which makes the structure deep.
      const auto any = [&] {
        return made[made.size() - 1 - below(std::min<size_t>(made.size(), 3))];
      };
      const IValue one = any();
      const IValue other = any();
      made.push_back(below(2) == 0 ? pair(one, other) : listOf(one, other));
    }
    const std::string why = refusal(made.back());
    if (!why.empty()) {
      ++refused;
      continue;
    }
    const size_t values = valuesIn(made.back());
    if (values < 100'000) {
      const IValue there = Crossing({made.back()}).read().at(0);
      EXPECT_EQ(valuesIn(there), values) << "seed " << seed;
      EXPECT_TRUE(there == made.back()) << "seed " << seed;
    }
    ++crossed;
  }
  EXPECT_GT(crossed, 20);
  EXPECT_GT(refused, 20);
}

TEST(TimeLimit, OfWritingEndsIt) {
  c10::List<int64_t> list;
  for (int i = 0; i < 5'000'000; ++i) list.push_back(i);
  PayloadWriter writer;
  writer.packer().pack_array(1);
  writer.stopAt(Clock::now() + milliseconds(5));
  EXPECT_THROW(writer.addValue(list), OutOfTime);
  writer.clear();
  writer.packer().pack_array(1);
  EXPECT_NO_THROW(writer.addValue(list));
}

TEST(TimeLimit, OfReadingEndsIt) {
  c10::List<int64_t> list;
  for (int i = 0; i < 5'000'000; ++i) list.push_back(i);
  PayloadWriter writer;
  writer.packer().pack_array(1);
  writer.addValue(list);
  PayloadReader reader(writer.finish({}));
  reader.stopAt(Clock::now() + milliseconds(5));
  EXPECT_THROW(reader.value(reader.element(0)), OutOfTime);
  reader.stopAt(std::nullopt);
  EXPECT_EQ(reader.value(reader.element(0)).toListRef().size(), list.size());
}

}  // namespace
}  // namespace isopool::ipc
