# SPDX-License-Identifier: BSD-3-Clause
"""How the items of a text file are cut out of its bytes: JSON lines, a JSON array, CSV."""

import csv
import json
import re
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol

from isopool_batch.sources import is_utf8
from isopool_batch.streams import without_compression

# The bytes of a record with what separates it from the next one, and what item() needs; None: it is no item.
Record = tuple[bytes, Any]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SEPARATOR = re.compile(rb"(?:\xef\xbb\xbf)?sep=([^\r\n])\r?\n")
_PROBE = 4096
_BLOCK = 1 << 20
# A fault closer to the end of what was read may be a token of JSON that is cut off there.
_LONGEST_TOKEN = 32


class Format(Protocol):
    def begin(self, file: BinaryIO) -> int:
        """Reads what comes before the first record; returns where that begins. Raises ValueError if the file is none."""

    def cut(self, file: BinaryIO) -> Iterator[Record]:
        """The records from a place on where one begins. All bytes up to the end of the last record are in one."""

    def item(self, value: Any) -> Any:
        """The item of a record. Raises what tells why it has none."""


def format_of(path: str, file: BinaryIO) -> Format:
    """Reads the begin of the file to tell JSON lines and an array apart. The place is undefined afterwards."""
    name = without_compression(path)
    if name.endswith((".csv", ".tsv")):
        return Csv(path, "\t" if name.endswith(".tsv") else ",;\t|")
    probe = file.read(_PROBE)
    file.seek(0)
    # Compressed and binary files have such bytes; JSON text has none.
    if b"\0" in probe or probe.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        raise ValueError(f"{path} is not a text file of JSON in UTF-8: decompress or convert it first")
    if not name.endswith(".json"):
        return JsonLines()
    while probe and not probe.removeprefix(_BYTE_ORDER_MARK).strip():
        probe = file.read(_PROBE)
    if probe.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"["):
        return JsonArray(path)
    file.seek(0)
    first = next((line for line in file if not line.isspace()), b"null")
    try:
        json.loads(first)
    except ValueError:
        raise ValueError(
            f"{path} is neither a JSON array nor JSON lines: its first line is no JSON value. If the file as a whole is "
            "one item, give --files (BatchJob::files) and read it in the model"
        ) from None
    return JsonLines()


class JsonLines:
    """Blank lines are no items."""

    def begin(self, file: BinaryIO) -> int:
        return 0

    def cut(self, file: BinaryIO) -> Iterator[Record]:
        for line in file:
            yield line, None if line.isspace() else line

    def item(self, value: bytes) -> Any:
        return json.loads(value)


class JsonArray:
    """The file is one array, and its elements are the items."""

    _SPACE = re.compile(r"[ \t\n\r]*")

    def __init__(self, path: str) -> None:
        self._path = path

    def begin(self, file: BinaryIO) -> int:
        file.seek(0)
        place = 0
        while byte := file.read(1):
            place += 1
            if byte == b"[":
                return place
        raise ValueError(f"{self._path} has no JSON array")

    def cut(self, file: BinaryIO) -> Iterator[Record]:
        # Latin-1: a character is a byte, and bytes of other characters in strings look like none of JSON's own.
        text, place, ended, first = "", 0, False, True
        decoder = json.JSONDecoder(strict=False)
        while True:
            start = self._after_space(text, place)
            if first and text[start : start + 1] == "]":
                return self._require_end(text[start + 1 :], file)
            after = len(text)
            try:
                _, end = decoder.raw_decode(text, start)
                after = self._after_space(text, end)
            except RecursionError:
                raise ValueError(f"{self._path}: a value of the array is nested too deeply") from None
            except json.JSONDecodeError as error:
                cut_off = error.msg.startswith("Unterminated string") or error.pos + _LONGEST_TOKEN > len(text)
                if ended or not cut_off:
                    raise self._wrong(f"{error.msg} at", text, error.pos) from None
            if after == len(text):
                if ended:
                    raise ValueError(f"{self._path} is cut off: its JSON array has no end")
                block = file.read(max(_BLOCK, len(text) - place))
                ended = not block
                text, place = text[place:] + block.decode("latin-1"), 0
                continue
            if text[after] not in ",]":
                raise self._wrong("no comma at", text, after)
            yield text[place : after + 1].encode("latin-1"), text[start:end].encode("latin-1")
            if text[after] == "]":
                return self._require_end(text[after + 1 :], file)
            place = after + 1
            first = False

    def item(self, value: bytes) -> Any:
        return json.loads(value)

    def _after_space(self, text: str, start: int) -> int:
        found = self._SPACE.match(text, start)
        assert found is not None
        return found.end()

    def _require_end(self, rest: str, file: BinaryIO) -> None:
        while rest or (rest := file.read(_BLOCK).decode("latin-1")):
            if rest.strip(" \t\n\r"):
                raise ValueError(f"{self._path} has more behind the end of its JSON array")
            rest = ""

    def _wrong(self, what: str, text: str, place: int) -> ValueError:
        there = text[place : place + 40].encode("latin-1").decode("utf-8", "replace")
        return ValueError(f"{self._path} is not a JSON array: {what} {there!r}")


class Csv:
    """RFC 4180 with a header, in UTF-8. An item is a dict of texts: nothing that a type would lose is lost.

    The delimiter of .csv is that of comma, semicolon, tab and bar by which the header has the most names; or a first line
    of spreadsheet programs tells it ("sep=;"). A blank record is no item, but for a file of one column: there it is a row
    with an empty field, as programs write one without a value.
    """

    def __init__(self, path: str, delimiters: str) -> None:
        self._path = path
        self._delimiters = delimiters
        self._delimiter = delimiters[0]
        self._names: list[str] = []

    def begin(self, file: BinaryIO) -> int:
        file.seek(0)
        first = file.readline()
        told = _SEPARATOR.fullmatch(first)
        before = len(first) if told else 0
        best: list[str] = []
        place, wrong = 0, None
        for delimiter in told[1].decode("latin-1") if told else self._delimiters:
            file.seek(before)
            names, end = self._header(file, delimiter)
            if isinstance(names, csv.Error):
                wrong = names
            elif len(names) > len(best):
                self._delimiter, best, place = delimiter, names, before + end
        if not best:
            raise ValueError(f"{self._path} has no header that names the columns: {wrong or 'it is empty'}")
        for name in best:
            if "\0" in name or not is_utf8(name):
                raise ValueError(f"{self._path} is not a text file in UTF-8: convert it first")
            if best.count(name) > 1:
                raise ValueError(f"{self._path} has two columns {name!r}: a row can have one of them only")
        self._names = best
        return place

    def cut(self, file: BinaryIO) -> Iterator[Record]:
        for raw, value in self._records(file, self._delimiter):
            yield raw, [""] if value is None and len(self._names) == 1 else value

    def item(self, value: Any) -> dict[str, str]:
        if isinstance(value, csv.Error):
            raise ValueError(f"the record is not CSV: {value}")
        if len(value) != len(self._names):
            raise ValueError(f"the record has {len(value)} fields, and the header names {len(self._names)} columns")
        for name, text in zip(self._names, value, strict=True):
            if not is_utf8(text):
                raise ValueError(f"the field {name!r} is not text in UTF-8")
        return dict(zip(self._names, value, strict=True))

    def _header(self, file: BinaryIO, delimiter: str) -> tuple[Any, int]:
        """The fields of the first record that has some, or its error, and where it ends."""
        end = 0
        for raw, names in self._records(file, delimiter):
            end += len(raw)
            if names is not None:
                return names, end
        return [], end

    def _records(self, file: BinaryIO, delimiter: str) -> Iterator[Record]:
        """The value is the fields, or the error of the record."""
        taken: list[bytes] = []

        def lines() -> Iterator[str]:
            for line in file:
                taken.append(line)
                # Such a mark in the midst of a file is none: a quote behind it would be no first one.
                at_begin = line.startswith(_BYTE_ORDER_MARK) and file.tell() == len(line)
                yield (line[len(_BYTE_ORDER_MARK) :] if at_begin else line).decode("utf-8", "surrogateescape")

        reader = csv.reader(lines(), delimiter=delimiter, strict=True)
        while True:
            # The limit is one for the process: the model's own code shall find what it set.
            limit = csv.field_size_limit(sys.maxsize)
            try:
                value: Any = next(reader, None)
            except csv.Error as error:
                value = error
            finally:
                csv.field_size_limit(limit)
            if not taken:
                return
            yield b"".join(taken), value or None
            taken.clear()
