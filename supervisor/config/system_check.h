// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "supervisor/config/settings.h"

namespace isopool::supervisor {

/// Looks for what the settings name and this system lacks: a folder, a program, an interpreter of
/// the Python version, and with the torch, that workers were built for. Returns one line with the
/// setting, the source of its value and what is missing; empty if nothing is. May start the
/// interpreter that `python` names, and the worker program, and waits up to 30 s for each.
std::string problemOnThisSystem(const Settings& settings);

/// Variables of this process's environment that begin with ISOPOOL_ but are not settings: one line
/// each, with the setting whose name is nearest.
std::vector<std::string> unknownVariables();

}  // namespace isopool::supervisor
