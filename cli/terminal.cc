// SPDX-License-Identifier: BSD-3-Clause
#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/system_call.h"

namespace isopool::cli {

namespace {

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";

bool writeAll(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

bool outputIsTerminal() {
  const char* kind = std::getenv("TERM");
  const bool knowsEscapes = kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
  return knowsEscapes && ::isatty(STDOUT_FILENO) == 1;
}

bool outputHasColours() {
  const char* forbidden = std::getenv("NO_COLOR");
  return outputIsTerminal() && (forbidden == nullptr || *forbidden == '\0');
}

void writeOut(std::string_view text) {
  if (!writeAll(text)) throw base::SystemCallError("write", "standard output", errno);
}

Screen::Screen() {
  if (::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &before_) == 0) {
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    changedInput_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
  }
  writeAll(kEnter);
}

Screen::~Screen() {
  writeAll(kLeave);
  // Discards keys that were typed meanwhile: they were meant for this program.
  if (changedInput_) ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
}

Screen::Size Screen::size() const {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
    return {};
  }
  return {size.ws_row, size.ws_col};
}

}  // namespace isopool::cli
