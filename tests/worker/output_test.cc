// SPDX-License-Identifier: BSD-3-Clause
// The output of a call's Python code is written before the call is answered.
#include <gtest/gtest.h>

#include <string>

#include "tests/worker/harness.h"

namespace isopool::tests {

namespace {

// Not the zygote that most tests share: with PYTHONUNBUFFERED no output would have to be flushed.
ZygoteProcess& bufferingZygote() {
  static ZygoteProcess zygote({"PYTHONUNBUFFERED="});
  return zygote;
}

struct Written {
  const char* name;
  const char* source;  // writes "half a line"
};

class OutputWritten : public ::testing::TestWithParam<Written> {};

class Output : public ::testing::Test {
 protected:
  Output() { client.defineProbe(); }

  std::unique_ptr<WorkerProcess> worker = bufferingZygote().fork(1);
  TestClient client{*worker};
};

}  // namespace

TEST_P(OutputWritten, IsOutWithTheAnswer) {
  const auto worker = bufferingZygote().fork(1);
  TestClient client(*worker);
  client.defineProbe();
  client.probeValue("run", {std::string(GetParam().source)});
  EXPECT_EQ(bufferingZygote().output("half a line"), "half a line");
  // The same again after a call without output.
  client.probeValue("nothing", {});
  client.probeValue("run", {std::string(GetParam().source)});
  EXPECT_EQ(bufferingZygote().output("half a line"), "half a line");
}

INSTANTIATE_TEST_SUITE_P(
    As, OutputWritten,
    ::testing::Values(
        Written{"Text", "print('half a line', end='')"},
        Written{"Bytes", "import sys; sys.stdout.buffer.write(b'half a line')"},
        Written{"TextThatWasToBeHeldBack",
                "import sys\n"
                "sys.stdout.reconfigure(line_buffering=False, write_through=False)\n"
                "print('half a line', end='')"},
        Written{
            "TextToAStreamOfTheModels",
            "import io, sys\n"
            "sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, 'w', closefd=False)))\n"
            "print('half a line', end='')"},
        Written{"TextToTheStreamThatTheModelSetAside",
                "import contextlib, io, sys\n"
                "with contextlib.redirect_stdout(io.StringIO()):\n"
                "    print('unseen')\n"
                "    sys.__stdout__.write('half a line')"}),
    [](const auto& parameter) { return parameter.param.name; });

TEST(OutputOfAnUnbufferedPython, IsWrittenWithTheAnswerDespiteBuffering) {
  ZygoteProcess zygote({"PYTHONUNBUFFERED=1"});
  const auto worker = zygote.fork(1);
  TestClient client(*worker);
  client.defineProbe();
  client.probeValue("run", {std::string("import sys\n"
                                        "sys.stdout.reconfigure(write_through=False)\n"
                                        "print('half a line', end='')")});
  EXPECT_EQ(zygote.output("half a line"), "half a line");
}

TEST_F(Output, ComesInWholeLinesHoweverManyPiecesTheyAreWrittenIn) {
  client.probeValue("run", {std::string("print(*range(10), sep='-')")});
  EXPECT_EQ(bufferingZygote().output("\n"), "0-1-2-3-4-5-6-7-8-9\n");
}

TEST_F(Output, MayBeRemovedByAModel) {
  for (const char* source : {"import sys; sys.stdout = None", "import sys; del sys.stdout",
                             "import sys; sys.stdout = 5; sys.stderr.close()"}) {
    EXPECT_EQ(client.probe("run", {std::string(source)}).status, ipc::CompletionStatus::kValue)
        << source;
  }
  EXPECT_EQ(client.probe("nothing", {}).status, ipc::CompletionStatus::kValue);
}

}  // namespace isopool::tests
