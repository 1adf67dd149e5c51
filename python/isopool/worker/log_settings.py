# SPDX-License-Identifier: BSD-3-Clause
"""The program's settings of the module logging, for the workers of its own pool."""

import logging
import sys
from typing import Any

# Of the loggers that have a level, by name; "" is the root. Then the arguments of logging.Formatter: format, date format
# and style.
LogSettings = tuple[dict[str, int], str | None, str | None, str]


def program_settings() -> LogSettings | None:
    """Those of this process. None if the root logger has no handler: records are printed as Python does without any."""
    root = logging.root
    if not root.handlers:
        return None
    loggers: dict[str, Any] = {"": root, **root.manager.loggerDict}
    levels = {
        name: each.level
        for name, each in loggers.items()
        # A module of that name sets its logger up where it is imported.
        if isinstance(each, logging.Logger) and each.level and name.partition(".")[0] not in sys.modules
    }
    formatter = root.handlers[0].formatter
    style: Any = type(getattr(formatter, "_style", None))
    for letter, (kind, _) in logging._STYLES.items():
        if formatter is not None and style is kind:
            return levels, formatter._fmt, formatter.datefmt, letter
    return levels, None, None, "%"


def adopt(settings: LogSettings) -> None:
    """Uses the settings in this worker, where user code has set no handlers, if no other program uses it."""
    try:
        from isopool_worker import log_records  # type: ignore[import-not-found]
    except ImportError:  # not in a worker
        return
    levels, text, date_format, style = settings
    log_records.adopt(levels, logging.Formatter(text, date_format, style))  # type: ignore[arg-type]
