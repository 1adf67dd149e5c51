"""Finds lines that are too long: more than 100 columns in C++, more than 120 in prose of Markdown.

    python scripts/line_width.py            prints these lines, and fails if there is one
    python scripts/line_width.py --fix      wraps comments and paragraphs; wrap other lines by hand

Text that cannot be broken without a change of its content is not checked: raw strings in C++, and
tables, code blocks, headings and words that are longer than a line in Markdown.
"""

import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

CODE_COLUMNS = 100
PROSE_COLUMNS = 120

COMMENT = re.compile(r"^(\s*)(///?)( ?)(.*)$")
# A word; text between backticks is one word.
WORD = re.compile(r"(?:`[^`]*`|[^\s`])+|`")
# At the beginning of a line, Markdown reads these as a list, a quotation, a heading or a table.
BEGINS_BLOCK = re.compile(r"(?:[-+*>|]|#+|\d+[.)])$")
ITEM = re.compile(r"^(\s*)((?:[-+*]|\d+[.)])\s+)")


def wrapped(words: list[str], columns: int, first: str, rest: str) -> list[str]:
    """The words in lines that begin with `first` and then with `rest`."""
    lines: list[str] = []
    line = first
    is_empty = True
    for at, word in enumerate(words):
        # A word that would begin a block stays on the line of the word before it.
        follows = words[at + 1] if at + 1 < len(words) else ""
        needed = len(word) + (1 + len(follows) if BEGINS_BLOCK.match(follows) else 0)
        if not is_empty and len(line) + 1 + needed > columns and not BEGINS_BLOCK.match(word):
            lines.append(line)
            line = rest
            is_empty = True
        line += word if is_empty else " " + word
        is_empty = False
    return [*lines, line]


def raw_string_lines(lines: list[str]) -> set[int]:
    """Numbers of the lines in which a raw string begins, continues or ends."""
    found: set[int] = set()
    end = ""
    for number, line in enumerate(lines):
        if end:
            found.add(number)
            if end in line:
                end = ""
        for match in re.finditer(r'R"([^()\s]*)\(', line) if not end else ():
            found.add(number)
            closing = f'){match[1]}"'
            if closing not in line[match.end() :]:
                end = closing
    return found


def fix_code(lines: list[str]) -> list[str]:
    fixed: list[str] = []
    raw = raw_string_lines(lines)
    number = 0
    while number < len(lines):
        match = COMMENT.match(lines[number])
        if len(lines[number]) <= CODE_COLUMNS or not match or number in raw:
            fixed.append(lines[number])
            number += 1
            continue
        indent, slashes, space, text = match.groups()
        words = WORD.findall(text)
        number += 1
        # The rest of the paragraph: lines of the same comment that do not begin a list, block or indentation.
        while number < len(lines):
            following = COMMENT.match(lines[number])
            if not following or following.groups()[:3] != (indent, slashes, space):
                break
            if not following[4] or following[4][0] in " <@|-":
                break
            words += WORD.findall(following[4])
            number += 1
        begin = indent + slashes + space
        fixed += wrapped(words, CODE_COLUMNS, begin, begin)
    return fixed


def paragraphs(lines: list[str]) -> Iterator[tuple[bool, list[str]]]:
    """Runs of lines; each with True if it is a paragraph or an item of a list."""
    fenced = False
    run: list[str] = []
    for line in lines:
        fence = line.lstrip().startswith("```")
        breaks = fence or fenced or not line.strip() or line.startswith(("|", "#", "<", "    "))
        if run and (breaks or ITEM.match(line)):
            yield True, run
            run = []
        if fence:
            fenced = not fenced
        if breaks:
            yield False, [line]
        else:
            run.append(line)
    if run:
        yield True, run


def fix_prose(lines: list[str]) -> list[str]:
    fixed: list[str] = []
    for is_text, run in paragraphs(lines):
        # Two spaces at the end of a line are a line break in Markdown.
        if not is_text or all(len(line) <= PROSE_COLUMNS for line in run) or "  \n" in "\n".join(run):
            fixed += run
            continue
        item = ITEM.match(run[0])
        indent = re.match(r"\s*", run[0])[0]
        first = item[0] if item else indent
        words = WORD.findall(" ".join([run[0][len(first) :], *run[1:]]))
        fixed += wrapped(words, PROSE_COLUMNS, first, " " * len(first))
    return fixed


def too_long(path: pathlib.Path, lines: list[str]) -> Iterator[int]:
    if path.suffix == ".md":
        number = 0
        for is_text, run in paragraphs(lines):
            for line in run:
                number += 1
                if is_text and len(line) > PROSE_COLUMNS and len(WORD.findall(line)) > 2:
                    yield number
        return
    raw = raw_string_lines(lines)
    for number, line in enumerate(lines):
        if len(line) > CODE_COLUMNS and number not in raw:
            yield number + 1


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.h", "*.cc", "*.md"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    failed = False
    for name in sorted(set(listed)):
        path = pathlib.Path(name)
        if not path.is_file():
            continue
        lines = path.read_text().split("\n")
        if "--fix" in sys.argv[1:]:
            fixed = fix_prose(lines) if path.suffix == ".md" else fix_code(lines)
            if fixed != lines:
                path.write_text("\n".join(fixed))
            lines = fixed
        for number in too_long(path, lines):
            print(f"{name}:{number}: {len(lines[number - 1])} columns")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
