# SPDX-License-Identifier: BSD-3-Clause
"""What a notebook shows of a Pool: a small table of its workers."""

import html

from isopool import _native

_COLUMNS = ("worker", "state", "pid", "calls", "running for", "models", "memory", "restarts")


def table(pool: _native.Pool) -> str:
    """The table as HTML."""
    now = pool.statistics()
    rows = [
        (
            str(each.index),
            each.state,
            str(each.process_id or ""),
            str(each.completed_calls),
            f"{each.running_for:.1f} s" if each.running_for else "",
            ", ".join(each.models),
            f"{each.resident_bytes / 1e6:.0f} MB",
            str(each.restarts),
        )
        for each in now.workers
    ]
    head = "".join(f"<th>{each}</th>" for each in _COLUMNS)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
