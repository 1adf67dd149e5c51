// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "isopool/model_info.h"

namespace isopool::cli {

/// A model as text for people: lines, each with a line end, safe for a terminal. `sandbox`: the
/// level at which the file was loaded.
std::string modelPage(const ModelInfo& model, const std::string& sandbox);

/// The same as one line of JSON; docs/command-line.md lists the names.
std::string modelJson(const ModelInfo& model, const std::string& sandbox);

}  // namespace isopool::cli
