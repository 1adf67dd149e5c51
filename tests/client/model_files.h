// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace isopool::tests {

/// A file of make_models.py.
std::string modelPath(const std::string& name);

}  // namespace isopool::tests
