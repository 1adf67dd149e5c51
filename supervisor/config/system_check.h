// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "supervisor/config/settings.h"

namespace isopool::supervisor {

/// What the settings name and this system does not have: a folder, a program, an interpreter of the
/// version, and with the torch, that workers were built for. One line that names the setting, where
/// its value is from, and what is missing; empty if nothing is. May start the interpreter that
/// `python` names and the worker program, and waits for them.
std::string problemOnThisSystem(const Settings& settings);

/// Variables of our environment that begin with ISOPOOL_ and are no setting: one line each, with
/// the nearest name that is one.
std::vector<std::string> unknownVariables();

}  // namespace isopool::supervisor
