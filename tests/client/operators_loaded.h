// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// What the variant of the library does when it has registered its operators. Hidden: a process may
/// load several variants.
[[gnu::visibility("hidden")]] void operatorsLoaded();
