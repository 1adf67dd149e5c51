// SPDX-License-Identifier: BSD-3-Clause
#include "client/program/environment_setting.h"

#include "base/settings/environment.h"
#include "isopool/errors.h"

namespace isopool::client {

uint64_t numberSetting(const char* variable) {
  try {
    return base::settingInEnvironment(variable).number;
  } catch (const base::SettingError& error) {
    throw Error(error.what());
  }
}

}  // namespace isopool::client
