// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "base/settings/setting_table.h"

/// Texts about settings for operators. All of them come from the table of settings.
namespace isopool::supervisor {

class Settings;

/// "default: 30s", and the meaning of 0.
std::string describeDefault(const base::Setting& setting);

/// A line for each setting: key, value, source.
std::string showSettings(const Settings& settings);
/// A JSON array of objects with the keys key, value, source, reloadable (SIGHUP can change it).
std::string showSettingsAsJson(const Settings& settings);

/// The tables of docs/configuration.md.
std::string settingsAsMarkdown();
/// A settings file that sets nothing: every key with its default, commented out.
std::string exampleSettingsFile();

}  // namespace isopool::supervisor
