#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the service of app.py on one pool and with a model per server process; prints answers, memory and deaths.

    python measure.py MODEL --isopoold PROGRAM [--servers 4] [--workers 2] [--json]

MODEL is the package that examples/package_sentence_encoder.py makes. Memory is the proportional set size (PSS) of all
processes of the service, as the kernel accounts for it: what several share counts once. With the pool, a worker is
killed during every load, and the requests that fail are counted. Exits with 1 if an answer differs between the two.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import httpx

HERE = pathlib.Path(__file__).parent
TEXTS = [f"sentence number {number} about {topic}" for number in range(20) for topic in ("cats", "trains", "bread")]
PATIENCE = 120.0  # seconds, for a service to answer


def processes_below(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def pss(roots: list[int]) -> float:
    """MB, of these processes and all below them."""
    total = 0
    for process in {each for root in roots for each in processes_below(root)}:
        with contextlib.suppress(OSError):
            rollup = pathlib.Path("/proc", str(process), "smaps_rollup").read_text()
            if found := re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE):
                total += int(found[1])
    return total / 1024


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(command: list[str], environment: dict[str, str]) -> Iterator[int]:
    process = subprocess.Popen(command, env=os.environ | environment, cwd=HERE, stdout=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


async def answers(port: int, kill: bool) -> tuple[list[list[float] | None], float, int]:
    """A vector for each text, None where the service had none; calls per second; how many workers were killed."""
    killed = 0
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        limit = asyncio.Semaphore(8)

        async def one(text: str) -> list[float] | None:
            async with limit:
                answer = await client.post("/embed", json={"texts": [text]})
                if answer.status_code == 200:
                    return answer.json()["vectors"][0]
                print(f"failed: {answer.text}", file=sys.stderr)
                return None

        begin = time.monotonic()
        calls = [asyncio.create_task(one(text)) for text in TEXTS]
        if kill:
            while sum(call.done() for call in calls) < len(calls) // 3:
                await asyncio.sleep(0.001)
            workers = (await client.get("/pool")).json()["workers"]
            os.kill(workers[0], signal.SIGKILL)
            killed = 1
        vectors = await asyncio.gather(*calls)
        return vectors, len(TEXTS) / (time.monotonic() - begin), killed


async def until_all_serve(port: int, servers: int) -> None:
    """Waits until each server process has answered, so that each has what it loads."""
    seen: set[int] = set()
    end = time.monotonic() + PATIENCE
    while len(seen) < servers:
        if time.monotonic() > end:
            sys.exit(f"measure.py: {len(seen)} of {servers} server processes answer after {PATIENCE:.0f} s")
        # A new connection each time: it may reach another process.
        with contextlib.suppress(httpx.TransportError):
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                seen.add((await client.get("/pool")).json()["server"])


def serve(
    arguments: argparse.Namespace, environment: dict[str, str], others: list[int], kill: bool
) -> dict[str, object]:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--log-level", "warning"]
    environment = {"MODEL": str(pathlib.Path(arguments.model).resolve()), **environment}
    with running([*command, "--workers", str(arguments.servers)], environment) as server:
        asyncio.run(until_all_serve(port, arguments.servers))
        vectors, rate, killed = asyncio.run(answers(port, False))
        memory = pss([server, *others])
        if kill:
            after_kill, _, killed = asyncio.run(answers(port, True))
            again, _, _ = asyncio.run(answers(port, False))
        else:
            after_kill = again = vectors
    return {
        "pss_mb": round(memory), "calls_per_second": round(rate, 1), "killed": killed,
        "failed_during_the_kill": after_kill.count(None), "failed_after_it": again.count(None), "vectors": vectors,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--isopoold", required=True, help="the supervisor's program")
    parser.add_argument("--servers", type=int, default=4, help="server processes of uvicorn")
    parser.add_argument("--workers", type=int, default=2, help="workers of the pool")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        address = f"{folder}/isopool.sock"
        supervisor = [arguments.isopoold, "--listen", address, "--workers", str(arguments.workers)]
        supervisor += ["--python", sys.executable]
        with running(supervisor, {}) as process:
            end = time.monotonic() + PATIENCE
            while not os.path.exists(address):
                if time.monotonic() > end:
                    sys.exit(f"measure.py: {arguments.isopoold} does not listen after {PATIENCE:.0f} s")
                time.sleep(0.01)
            pool = serve(arguments, {"ISOPOOL_SOCKET": address}, [process], True)
    copies = serve(arguments, {"IN_PROCESS": "1"}, [], False)
    ours, theirs = pool.pop("vectors"), copies.pop("vectors")
    same = all(
        mine is not None and other is not None and max(abs(a - b) for a, b in zip(mine, other, strict=True)) < 1e-5
        for mine, other in zip(ours, theirs, strict=True)
    )
    result = {"servers": arguments.servers, "workers": arguments.workers, "pool": pool, "copies": copies}
    result["same_answers"] = same
    if arguments.json:
        print(json.dumps(result))
    else:
        print(f"{arguments.servers} server processes      one pool of {arguments.workers} workers  a model in each server")
        print(f"memory (PSS)            {pool['pss_mb']:>8} MB            {copies['pss_mb']:>8} MB")
        print(f"calls per second        {pool['calls_per_second']:>8}               {copies['calls_per_second']:>8}")
        print(f"a worker is killed      {pool['failed_during_the_kill']} of {len(TEXTS)} requests fail")
        print(f"after that              {pool['failed_after_it']} of {len(TEXTS)} requests fail")
        print("the answers are the same" if same else "the answers DIFFER")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
