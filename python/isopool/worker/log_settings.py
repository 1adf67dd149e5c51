# SPDX-License-Identifier: BSD-3-Clause
"""The program's settings of the module logging, for the workers of its own pool."""

import logging
from typing import NamedTuple


class LogSettings(NamedTuple):
    """levels: of the loggers that have one, by name; "" is the root. style, format and date_format: those of the first
    handler's formatter, as the arguments of logging.Formatter.
    """

    levels: dict[str, int]
    style: str
    format: str | None
    date_format: str | None


def program_settings() -> LogSettings | None:
    """Those of this process. None if no logger has a handler: then records are printed as Python does without any."""
    loggers = {"": logging.root, **logging.root.manager.loggerDict}
    named = {name: each for name, each in loggers.items() if isinstance(each, logging.Logger)}
    handlers = [
        handler for each in named.values() for handler in each.handlers if not isinstance(handler, logging.NullHandler)
    ]
    if not handlers:
        return None
    levels = {name: each.level for name, each in named.items() if each.level != logging.NOTSET}
    formatter = handlers[0].formatter
    style = getattr(formatter, "_style", None)
    styles: dict[str, tuple[type, str]] = logging._STYLES  # type: ignore[attr-defined]
    letter = next((letter for letter, (kind, _) in styles.items() if type(style) is kind), None)
    if formatter is None or letter is None:
        return LogSettings(levels, "%", None, None)
    return LogSettings(levels, letter, formatter._fmt, formatter.datefmt)


def adopt(settings: LogSettings) -> None:
    """Uses the settings in this worker, where user code has set no handlers, if no other program uses it."""
    try:
        from isopool_worker import log_records  # type: ignore[import-not-found]
    except ImportError:  # not in a worker
        return
    levels, style, text, date_format = settings
    log_records.adopt(levels, logging.Formatter(text, date_format, style))  # type: ignore[arg-type]
