// SPDX-License-Identifier: BSD-3-Clause
#include "client/models/pt2_archive.h"

#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <string>
#include <vector>

namespace isopool::client {

bool isPt2ArchiveWith(ModelFile& file, std::string_view folder) {
  if (!file.records().hasRecord("archive_format") || file.text("archive_format") != "pt2") {
    return false;
  }
  const std::vector<std::string> names = file.records().getAllRecords();
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.rfind(folder, 0) == 0; });
}

}  // namespace isopool::client
