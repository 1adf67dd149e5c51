// SPDX-License-Identifier: BSD-3-Clause
// Arguments and results whose parts occur in them again and again: 30 pairs, each of which holds
// the next one twice, are a thousand million values when each part is written as often as it
// occurs.
#include <ATen/core/ivalue.h>

#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

constexpr milliseconds kSoon(5000);

at::IValue sharedPairs(int depth) {
  at::IValue value(1);
  for (int i = 0; i < depth; ++i) value = c10::ivalue::Tuple::create({value, value});
  return value;
}

template <typename Act>
std::string refusalOf(Act&& act) {
  const auto began = Clock::now();
  std::string why = "it was not refused";
  try {
    act();
  } catch (const Error& error) {
    why = error.what();
  }
  EXPECT_LT(Clock::now() - began, kSoon) << why;
  return why;
}

class RepeatedParts : public ::testing::Test {
 protected:
  const Subject& subject_ = sharedSubject();
};

TEST_F(RepeatedParts, OfAnArgumentAreRefusedBeforeTheCallIsSent) {
  for (const int depth : {26, 30, 60}) {
    const std::string why = refusalOf([&] { subject_.ask("identity", {sharedPairs(depth)}); });
    EXPECT_NE(why.find("occur in it again and again"), std::string::npos) << why;
  }
  EXPECT_EQ(subject_.ask("count_of", {sharedPairs(10)}).toInt(), 2);
}

TEST_F(RepeatedParts, OfAResultAreRefusedByTheWorkerWhichLivesOn) {
  InterpreterManager manager(1);
  const Subject subject(manager);
  const pid_t worker = static_cast<pid_t>(subject.number("pid"));
  for (const char* kind : {"tuple", "list", "dict"}) {
    for (const int depth : {26, 60}) {
      const std::string why = refusalOf([&] { subject.ask("shared_pairs", {depth, kind}); });
      EXPECT_NE(why.find("occur in it again and again"), std::string::npos) << kind << " " << why;
    }
  }
  // Deeper than any value may be: the refusal does not show the whole result.
  EXPECT_NE(refusalOf([&] { subject.ask("shared_pairs", {100, "tuple"}); }), "");
  EXPECT_NE(refusalOf([&] { subject.ask("holding_itself"); }).find("nested"), std::string::npos);
  EXPECT_EQ(subject.number("pid"), worker);
}

TEST_F(RepeatedParts, OfAResultAreRefusedByThePermissiveConversionToo) {
  const CallOptions permissive{.permissive = true};
  for (const char* kind : {"tuple", "list", "dict", "deque"}) {
    const std::string why = refusalOf([&] {
      subject_.ask("shared_pairs", {26, kind}, permissive);
    });
    EXPECT_NE(why.find("occur in it again and again"), std::string::npos) << kind << " " << why;
  }
}

TEST_F(RepeatedParts, OfASessionsArgumentAreRefused) {
  auto session = subject_.object().acquireSession();
  EXPECT_NE(refusalOf([&] { session.fromIValue(sharedPairs(26)); }).find("again and again"),
            std::string::npos);
  EXPECT_NE(refusalOf([&] {
              session.self({at::IValue("identity"), sharedPairs(26)});
            }).find("again and again"),
            std::string::npos);
}

TEST_F(RepeatedParts, AreNoReasonForADeadlineToPass) {
  c10::List<int64_t> numbers;
  for (int i = 0; i < 3'000'000; ++i) numbers.push_back(i);
  const auto began = Clock::now();
  try {
    subject_.ask("count_of", {numbers}, {.deadline = milliseconds(5)});
    FAIL() << "the deadline did not pass";
  } catch (const DeadlineExceeded& error) {
    EXPECT_FALSE(error.started());
    EXPECT_NE(std::string(error.what()).find("were being written"), std::string::npos)
        << error.what();
  }
  EXPECT_LT(Clock::now() - began, milliseconds(1000));
  EXPECT_EQ(subject_.ask("count_of", {numbers}).toInt(), 3'000'000);
}

}  // namespace
}  // namespace isopool::tests
