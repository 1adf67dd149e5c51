// SPDX-License-Identifier: BSD-3-Clause
#include "client/models/model_formats.h"

#include <c10/util/Exception.h>
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

TEST(ModelFormats, OfOneModelRefuseANameByTheSameText) {
  for (const client::ModelFormat* format : client::modelFormats()) {
    EXPECT_NO_THROW(client::checkOnlyModel(*format, ""));
    try {
      client::checkOnlyModel(*format, "other");
      ADD_FAILURE() << format->name << " accepted the name";
    } catch (const c10::Error& error) {
      EXPECT_EQ(error.what_without_backtrace(), std::string("it is ") + format->description +
                                                    " and holds one model, none of the name other");
    }
  }
}

TEST(ModelFormats, OfExportedProgramsAcceptsTheNameOfTheOnlyModel) {
  client::ModelFile file("model.pt2", {});
  EXPECT_NO_THROW(client::kExportedProgram.prepare(file, ""));
  EXPECT_NO_THROW(client::kExportedProgram.prepare(file, "model"));
  EXPECT_THROW(client::kExportedProgram.prepare(file, "other"), c10::Error);
  EXPECT_THROW(client::kTorchScript.prepare(file, "model"), c10::Error);
  EXPECT_THROW(client::kOnnx.prepare(file, "model"), c10::Error);
}

}  // namespace
}  // namespace isopool::tests
