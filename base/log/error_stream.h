// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <string>

#include "base/log/log.h"

namespace isopool::base {

/// Writes lines to the error stream of this process (descriptor 2), without waiting: for the reader
/// of a pipe, a terminal or a socket, or for room on a disk. The stream gets whole lines: the rest
/// of a line of which it took only a part is kept and written before any other line.
///
/// While the stream takes nothing, warnings and errors are kept, up to 64 KiB. Further ones, and
/// all other lines, are lost. They are counted, and reported when the stream takes lines again. A
/// write to a file waits for its disk, as every write does. Not thread-safe.
class ErrorStream {
 public:
  /// Makes a line, with its end, of a text about the stream itself; `lost`: the lines that the text
  /// is about, or null.
  using MakeWarning = std::function<std::string(const std::string& text, const LostLines* lost)>;

  explicit ErrorStream(MakeWarning makeWarning) : makeWarning_(std::move(makeWarning)) {}

  /// Call when descriptor 2 is another file than before: a last line that its file has without an
  /// end is ended before the first one follows.
  void begin();
  /// Makes the file at `path` descriptor 2, and follows the path from then on: when it names
  /// another file, or none, because the file was renamed or removed, that one is opened or made
  /// before the next line is written. Returns why the file can't be opened; then nothing has
  /// changed.
  std::string sendTo(const std::string& path);

  /// Closes the file of sendTo(), if there is one: the next line opens it again.
  void releaseFile();

  /// `line` ends with a line break.
  void write(std::string line, LineKind kind);
  /// Counts a line that could not be made.
  void lose(LineKind kind, const std::string& reason);
  /// Writes what is kept, and reports what was lost. True if nothing is left to write.
  bool continueWriting();
  /// True if a line is kept, or a loss not reported.
  bool isBehind() const { return !kept_.empty() || lossReported_ != lost_; }

  const LostLines& lost() const { return lost_; }

 private:
  struct Kept {
    std::string line;
    size_t written = 0;  ///< bytes that the stream has taken
  };

  std::string openPath();
  void followPath();
  bool endLastLine();
  bool writeKept();
  bool put(Kept& kept);
  void keep(Kept kept);
  std::string lossText(const LostLines& lines) const;

  const MakeWarning makeWarning_;
  std::string path_;  ///< empty: descriptor 2 is not opened here
  /// Why the path can't be opened; empty while it is descriptor 2.
  std::string pathProblem_;
  bool unlinked_ = false;        ///< descriptor 2 has no name any more: it takes no lines
  bool lastLineIsOpen_ = false;  ///< the stream's last line has no end, and is not of kept_
  std::deque<Kept> kept_;        ///< only the first may be written in part
  size_t keptBytes_ = 0;
  off_t sizeWhenTorn_ = 0;  ///< of the file, after a part of the first line was written
  std::string failure_;     ///< why the stream took less than it was given
  LostLines lost_{};
  LostLines lossReported_{};  ///< of lost_
  std::chrono::system_clock::time_point lossSince_;
  std::string lossReason_;
};

}  // namespace isopool::base
