// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/options.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace isopool::supervisor {
namespace {

class OptionsTest : public testing::Test {
 protected:
  ~OptionsTest() override {
    ::unsetenv("ISOPOOL_SPARES");
    ::unsetenv("ISOPOOL_QUARANTINE");
    ::unsetenv("ISOPOOL_NO_KILL");
  }
  static std::variant<Options, OptionsRefused> parse(std::vector<const char*> words) {
    words.insert(words.begin(), "isopoold");
    return parseOptions(static_cast<int>(words.size()), words.data());
  }
  static Options accepted(const std::vector<const char*>& words) {
    return std::get<Options>(parse(words));
  }
  static std::string refused(const std::vector<const char*>& words) {
    return std::get<OptionsRefused>(parse(words)).text;
  }
};

TEST_F(OptionsTest, HasDefaults) {
  const Options options = accepted({});
  EXPECT_EQ(options.spares, 1u);
  EXPECT_EQ(options.restart.deaths, 10u);
  EXPECT_EQ(options.outputArena, 4u << 20);
  EXPECT_EQ(options.forkTimeout, Milliseconds(5000));
  EXPECT_NE(options.worker.find("/isopool-worker"), std::string::npos);
}

TEST_F(OptionsTest, AFlagWinsOverTheEnvironment) {
  ::setenv("ISOPOOL_SPARES", "3", 1);
  EXPECT_EQ(accepted({}).spares, 3u);
  EXPECT_EQ(accepted({"--spares", "0"}).spares, 0u);
}

TEST_F(OptionsTest, WithNoKillNothingIsGivenUpForBeingSlow) {
  ::setenv("ISOPOOL_NO_KILL", "1", 1);
  const Options options = accepted({"--fork-timeout", "1s"});
  for (const auto& each : {options.zygoteTimeout, options.forkTimeout, options.workerTimeout}) {
    EXPECT_GE(each, std::chrono::hours(24));
  }
  ::setenv("ISOPOOL_NO_KILL", "0", 1);
  EXPECT_EQ(accepted({"--fork-timeout", "1s"}).forkTimeout, Milliseconds(1000));
}

TEST_F(OptionsTest, UnderstandsUnits) {
  EXPECT_EQ(accepted({"--quarantine", "250ms"}).restart.quarantine, Milliseconds(250));
  EXPECT_EQ(accepted({"--quarantine", "2m"}).restart.quarantine, Milliseconds(120'000));
  EXPECT_EQ(accepted({"--quarantine", "7"}).restart.quarantine, Milliseconds(7'000));
  EXPECT_EQ(accepted({"--output-arena", "8MiB"}).outputArena, 8u << 20);
}

TEST_F(OptionsTest, RefusesNonsenseInOneLineThatNamesIt) {
  EXPECT_EQ(refused({"--quarantine", "soon"}),
            "isopoold: --quarantine: 'soon' is not a TIME like 500ms, 30s or 2m");
  EXPECT_EQ(refused({"--output-arena", "5Q"}),
            "isopoold: --output-arena: '5Q' is not a SIZE like 512KiB, 8MiB or 1GiB");
  EXPECT_NE(refused({"--frobnicate"}).find("--frobnicate"), std::string::npos);
  EXPECT_NE(refused({"--output-arena", "8MiB", "--output-arena-limit", "4MiB"})
                .find("ISOPOOL_OUTPUT_ARENA_LIMIT"),
            std::string::npos);
}

TEST_F(OptionsTest, NamesTheVariableThatAValueCameFrom) {
  ::setenv("ISOPOOL_QUARANTINE", "soon", 1);
  EXPECT_NE(refused({}).find("ISOPOOL_QUARANTINE=soon"), std::string::npos);
}

}  // namespace
}  // namespace isopool::supervisor
