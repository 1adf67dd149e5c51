// SPDX-License-Identifier: BSD-3-Clause
#include "chaos/history/history.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace chaos {

const char* nameOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kNone:
      return "none";
    case Outcome::kValue:
      return "value";
    case Outcome::kWrong:
      return "wrong";
    case Outcome::kRaised:
      return "raised";
    case Outcome::kWorkerLost:
      return "worker lost";
    case Outcome::kNeverRan:
      return "never ran";
    case Outcome::kOverdue:
      return "overdue";
    case Outcome::kRefused:
      return "refused";
    case Outcome::kUnavailable:
      return "unavailable";
    case Outcome::kSupervisorLost:
      return "supervisor lost";
    case Outcome::kSupervisorLostUnstarted:
      return "supervisor lost, never ran";
    case Outcome::kCancelled:
      return "cancelled";
    case Outcome::kOutcomes:
      break;
  }
  return "unknown";
}

HistoryWriter::HistoryWriter(const std::string& path)
    : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
  if (!file_.valid()) throw std::runtime_error("can't write the history " + path);
}

void HistoryWriter::write(const Record& record) const {
  if (::write(file_.get(), &record, sizeof record) == sizeof record) return;
  std::fprintf(stderr, "chaos: a record of the history could not be written\n");
  std::abort();
}

template <typename Entry>
std::vector<Entry> AppendedEntries<Entry>::readNew() {
  std::ifstream file(path_, std::ios::binary);
  std::vector<Entry> entries;
  file.seekg(static_cast<std::streamoff>(read_ * sizeof(Entry)));
  Entry entry;
  while (file.read(reinterpret_cast<char*>(&entry), sizeof entry)) entries.push_back(entry);
  read_ += entries.size();
  return entries;
}

template class AppendedEntries<Record>;
template class AppendedEntries<Effect>;

}  // namespace chaos
