// SPDX-License-Identifier: BSD-3-Clause
#include "tools/worker_module.h"

namespace tools {

WorkerModule::WorkerModule(isopool::InterpreterSession& session, const std::string& name,
                           const std::string& source)
    : names_(session.global("builtins", "dict").callKwargs({{"__name__", name}})) {
  const auto code = session.global("builtins", "compile")({source, "<" + name + ">", "exec"});
  session.global("builtins", "exec")({code, names_});
}

isopool::Obj WorkerModule::get(const char* name) const {
  return names_.attr("__getitem__")({name});
}

}  // namespace tools
