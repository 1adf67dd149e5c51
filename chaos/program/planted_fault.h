// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

/// Faults that a client program commits on purpose, once, to show that chaos finds them.
namespace chaos {

/// The names of the faults and what each does, for --help.
struct PlantedFault {
  const char* name;
  const char* what;
  const char* deed;  ///< the deed of one call of the model, if that is the fault
};
const std::vector<PlantedFault>& plantedFaults();

/// The deed of the model that is the fault, or null.
const char* deedOfFault(const std::string& fault);
/// True if the fault concerns an additional manager instead of a call.
bool isFaultOfManager(const std::string& fault);
/// Commits a fault of the program itself: leak, crash, hang. Does nothing for an empty name, and
/// for faults of the model or of the history.
void commitFault(const std::string& fault);

}  // namespace chaos
