# SPDX-License-Identifier: BSD-3-Clause
"""read_trace.py TRACE: prints properties of a trace of isopool::Trace, for debugging_test.cc."""

import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    events = json.load(file)["traceEvents"]

calls = {
    event["args"]["call"]: event
    for event in events
    if event.get("cat") == "isopool" and event["ph"] == "X" and event["name"] == "call"
}
ranges = {
    event["name"].split()[-1]: event
    for event in events
    if event["ph"] == "X" and event["name"].startswith("isopool call ")
}


def at(event: dict) -> tuple:
    return event["pid"], event["tid"], event["ts"]


begins = {event["id"]: event for event in events if event["ph"] == "s"}
ends = {event["id"]: event for event in events if event["ph"] == "f"}
joined = [
    name
    for name in calls
    if name in ranges
    and at(begins.get(name, calls[name])) == at(calls[name])
    and name in begins
    and at(ends[name]) == at(ranges[name])
]


def inside(inner: dict, outer: dict) -> bool:
    end = inner["ts"] + inner["dur"]
    return outer["ts"] <= inner["ts"] and end <= outer["ts"] + outer["dur"]


operators = [event for event in events if event.get("cat") == "cpu_op" and "add" in event["name"]]
print("caller ranges", len(calls))
print("joined by an arrow", len(joined))
print("inside", sum(inside(ranges[name], calls[name]) for name in joined))
print("worker processes", len({event["pid"] for event in ranges.values()}))
found = operators and all(
    any(inside(each, one) and each["pid"] == one["pid"] for one in ranges.values())
    for each in operators
)
print("operators inside ranges", "yes" if found else "no")
print("raised", sum(event["args"]["outcome"] == "raised" for event in calls.values()))
