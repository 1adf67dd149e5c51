// SPDX-License-Identifier: BSD-3-Clause
#include "client/models/model_formats.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ipc/channel/operation.h"
#include "tests/client/harness.h"

namespace isopool::tests {
namespace {

TEST(ModelFormats, AreKnownToProgramAndWorkersByTheSameNames) {
  std::set<std::string> ours;
  for (const client::ModelFormat* format : client::modelFormats()) {
    EXPECT_TRUE(ours.insert(format->name).second) << format->name << " stands in the table twice";
    EXPECT_LE(std::string(format->name).size(), ipc::kMostFormatNameBytes);
  }
  InterpreterSession session = sharedManager().acquireOne();
  const at::IValue names =
      session.global("isopool_worker.model_backends", "names")(at::ArrayRef<at::IValue>())
          .toIValue();
  std::set<std::string> theirs;
  for (const at::IValue& name : names.toListRef()) theirs.insert(name.toStringRef());
  EXPECT_EQ(ours, theirs);
}

}  // namespace
}  // namespace isopool::tests
