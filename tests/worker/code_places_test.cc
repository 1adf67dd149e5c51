// SPDX-License-Identifier: BSD-3-Clause
// Places that no worker may write, because supervisors and zygotes take code or settings
// from there.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ipc/control/zygote_messages.h"
#include "testing/temporary_folder.h"
#include "tests/worker/harness.h"

namespace isopool::tests {
namespace {

namespace fs = std::filesystem;

/// A folder in which workers may write, and one in which they may not.
class CodePlaces : public ::testing::Test {
 protected:
  CodePlaces() {
    fs::create_directory(writable());
    fs::create_directory(others());
  }

  fs::path writable() const { return folder_ / "writable"; }
  fs::path others() const { return folder_ / "others"; }
  /// The refusal of a zygote with these variables; empty if it becomes ready.
  std::string refusal(std::vector<std::string> variables) const {
    variables.push_back("ISOPOOL_SANDBOX=strict");
    variables.push_back("ISOPOOL_SANDBOX_WRITE=" + writable().string());
    const ZygoteProcess zygote(variables);
    if (zygote.greeting().type != ipc::MessageType::kZygoteFailed) return {};
    return ipc::decodeMessage<ipc::ZygoteFailed>(zygote.greeting()).text;
  }
  void expectRefused(const fs::path& place, const std::vector<std::string>& variables) const {
    const std::string text = refusal(variables);
    EXPECT_NE(text.find("takes code from " + place.string()), std::string::npos)
        << place << ": " << text;
  }

 private:
  const TemporaryFolder temporary_;
  const fs::path folder_ = fs::canonical(temporary_.path());
};

TEST_F(CodePlaces, IncludeWhatTheSupervisorRunsAndReads) {
  const fs::path settings = writable() / "isopool.toml";
  expectRefused(settings, {"ISOPOOL_SUPERVISOR_FILES=/opt/isopoold:" + settings.string()});
  EXPECT_EQ(refusal({"ISOPOOL_SUPERVISOR_FILES=/opt/isopoold:/etc/isopool.toml"}), "");
}

TEST_F(CodePlaces, IncludeALinkOnTheWayToWhatTheSupervisorRuns) {
  const fs::path link = writable() / "current";
  fs::create_directory_symlink(others(), link);
  std::ofstream(others() / "isopool-worker") << "content";
  expectRefused(link, {"ISOPOOL_SUPERVISOR_FILES=" + (link / "isopool-worker").string()});
}

// A folder that a .pth file names is on sys.path if it exists when Python starts.
TEST_F(CodePlaces, IncludeFoldersOfPthFilesThatAreNotThereYet) {
  const fs::path environment = others() / "environment";
  const std::string make = std::string(PYTHON " -m venv --without-pip ") + environment.string();
  ASSERT_EQ(std::system(make.c_str()), 0);
  fs::path packages;
  for (const auto& entry : fs::directory_iterator(environment / "lib")) {
    packages = entry.path() / "site-packages";
  }
  // The packages of the Python of this build, which has torch.
  const std::string python = "ISOPOOL_PYTHON_EXECUTABLE=" + (environment / "bin/python").string();
  const std::string link =
      "import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))";
  const std::string list = PYTHON " -c '" + link + "' > " + (packages / "torch.pth").string();
  ASSERT_EQ(std::system(list.c_str()), 0);
  EXPECT_EQ(refusal({python}), "");
  const std::string later = (writable() / "later").string();
  std::ofstream(packages / "later.pth") << "# folders\nimport os\n" << later;
  expectRefused(writable() / "later", {python});
}

}  // namespace
}  // namespace isopool::tests
