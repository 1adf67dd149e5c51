// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ostream>

#include "chaos/campaign.h"

namespace chaos {

/// One JSON object with the counts, on one line.
void writeJson(std::ostream& out, const CampaignSettings& settings, const CampaignResult& result,
               const Findings& findings);
/// The same as text for users, with the first findings.
void writeText(std::ostream& out, const CampaignSettings& settings, const CampaignResult& result,
               const Findings& findings);

}  // namespace chaos
