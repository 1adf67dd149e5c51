// SPDX-License-Identifier: BSD-3-Clause
#include "client/program/environment_setting.h"

#include "base/settings/environment.h"
#include "isopool/errors.h"

namespace isopool::client {

namespace {

uint64_t numberOf(const char* variable) {
  try {
    return base::settingInEnvironment(variable).number;
  } catch (const base::SettingError& error) {
    throw Error(error.what());
  }
}

}  // namespace

uint64_t sizeSetting(const char* variable) { return numberOf(variable); }

std::chrono::milliseconds timeSetting(const char* variable) {
  return std::chrono::milliseconds(numberOf(variable));
}

bool switchSetting(const char* variable) { return numberOf(variable) != 0; }

}  // namespace isopool::client
