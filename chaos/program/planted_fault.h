// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

/// Faults that a client program commits on purpose, once, so that it can be seen that chaos finds
/// them.
namespace chaos {

/// Names and what each does, for --help.
struct PlantedFault {
  const char* name;
  const char* what;
  const char* deed;  ///< of one call of the model, if that is the fault
};
const std::vector<PlantedFault>& plantedFaults();

/// The deed of the model that is the fault, or null.
const char* deedOfFault(const std::string& fault);
/// True if it is not of a call, but of a manager that is made besides.
bool isFaultOfManager(const std::string& fault);
/// Does what the program itself is to do wrong: leak, crash, hang. Nothing for an empty name, and
/// for faults of the model or of the history.
void commitFault(const std::string& fault);

}  // namespace chaos
