# SPDX-License-Identifier: BSD-3-Clause
"""This worker's part of a trace of the client: events of torch.profiler on a common clock."""

import json
import os
import tempfile
from typing import Any

from torch.profiler import ProfilerActivity, profile

# The runtime's name for the range of a call; the call's number follows.
CALL = "isopool call "

_profiler: profile | None = None


def start() -> None:
    global _profiler
    _profiler = profile(activities=[ProfilerActivity.CPU])
    _profiler.start()


def stop(base: int, name: str) -> str:
    """The events since start(), in microseconds since `base` (nanoseconds since 1970), as the inner
    part of a JSON list. `name` is the name of this process in the trace."""
    global _profiler
    if _profiler is None:
        return ""
    profiler, _profiler = _profiler, None
    profiler.stop()
    with tempfile.TemporaryDirectory(prefix="isopool-trace-") as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path, encoding="utf-8") as file:
            trace = json.load(file)
    # Times are microseconds since an instant that the trace specifies.
    shift = (trace.get("baseTimeNanoseconds", 0) - base) / 1000
    events = []
    for event in trace["traceEvents"]:
        events += _rewritten(event, shift, name)
    return json.dumps(events)[1:-1]


def _rewritten(event: dict[str, Any], shift: float, name: str) -> list[dict[str, Any]]:
    if event.get("ph") == "M":
        event.pop("ts", None)
        if event["name"] == "process_name" and event.get("pid") == os.getpid():
            event["args"] = {"name": name}
        return [event]
    if "ts" in event:
        event["ts"] = round(event["ts"] + shift, 3)
    title = event.get("name", "")
    if event.get("ph") != "X" or not title.startswith(CALL):
        return [event]
    arrow = {"ph": "f", "bp": "e", "id": title[len(CALL) :], "cat": "isopool", "name": "call"}
    return [event, arrow | {key: event[key] for key in ("pid", "tid", "ts")}]
