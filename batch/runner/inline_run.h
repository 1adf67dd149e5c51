// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace isopool::batch {

/// Replaces this process by the Python interpreter `python`, which runs one item of the job in
/// `output` by itself, without a pool: read, preprocess, model, postprocess. It prints the row.
/// Under gdb, or with a breakpoint() in the model, the item is found where it fails. Writes nothing
/// into the folder. Throws BatchRefused and SystemCallError; does not return.
[[noreturn]] void runInline(const std::string& output, const std::string& id,
                            const std::string& python);

/// The same for batch/worker/isopool_batch/verify.py: compares the parts in `output` with the plan
/// and the inputs. Prints problems and a summary; the exit code is 1 if there is a problem.
[[noreturn]] void verify(const std::string& output, const std::string& python);

}  // namespace isopool::batch
