// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace isopool::tests {

/// The folder of the files that a Python script of this folder makes:
/// `python SCRIPT FOLDER ARGUMENTS...`. Some scripts compile for long, so the files stay in
/// the build tree for all test programs and all runs, until the sources of the tests' scripts, the
/// arguments or the version of torch change. Do not change the files. Processes that need the same
/// files wait for the one that makes them. Throws std::runtime_error if the script fails.
std::filesystem::path madeBy(const std::string& script,
                             const std::vector<std::string>& arguments = {});

}  // namespace isopool::tests
