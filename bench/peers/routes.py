# SPDX-License-Identifier: BSD-3-Clause
"""The compared routes, and what a call does on each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Home(Enum):
    """The origin of a route's program."""

    BUILD = "isopool's build"
    REPOSITORY = "isopool's virtual environment"
    PEERS = "the peers' virtual environment"


@dataclass(frozen=True)
class RouteEntry:
    name: str
    home: Home
    #: The program without its folder, with its options.
    program: tuple[str, ...]
    #: The folder that must exist in the peers' site-packages.
    package: str
    #: How a call and its answer are carried.
    hops: str
    #: How often a large payload is copied on the way to the worker and on the way back.
    copies: str
    #: Whether the route counts the bytes that it copies.
    counts_copies: bool = False


YARDSTICK = "isopool"

ROUTES = (
    RouteEntry(
        YARDSTICK,
        Home.BUILD,
        ("isopool_route",),
        "",
        "C++, a pool of one worker: a slot of a shared-memory ring, written by the calling thread "
        "and read by the worker, which spins a little before it sleeps",
        "1 there (the input is an ordinary tensor), 0 back; small ones 1 each way, in the message",
        counts_copies=True,
    ),
    RouteEntry(
        "isopool, shared input",
        Home.BUILD,
        ("isopool_route", "--shared"),
        "",
        "as isopool; the input was made by isopool::empty",
        "0 there, 0 back",
        counts_copies=True,
    ),
    RouteEntry(
        "isopool.Pool from Python, shared input",
        Home.REPOSITORY,
        ("isopool_pool_route.py",),
        "",
        "as isopool, from a Python program's `model(x)`; the input was made by Pool.empty",
        "0 there, 0 back",
        counts_copies=True,
    ),
    RouteEntry(
        "isopool from Python",
        Home.REPOSITORY,
        ("isopool_python_route.py",),
        "",
        "as isopool, from a Python program's session: two trips over the ring, one calls and "
        "leaves the result in the worker, one fetches it",
        "1 there, 1 back (the worker keeps the object that the session's handle names)",
    ),
    RouteEntry(
        "ProcessPoolExecutor",
        Home.REPOSITORY,
        ("process_pool_route.py",),
        "",
        "numpy array, pickled (protocol 4) into a pipe each way; there: calling thread, the "
        "executor's thread, the queue's feeder thread, worker; back: the executor's thread, "
        "calling thread",
        "6 each way: array to bytes, into the pickle, into the pipe in parts of 64 KB, out of it, "
        "parts put together, out of the pickle",
    ),
    RouteEntry(
        "loky",
        Home.PEERS,
        ("loky_route.py",),
        "loky",
        "as ProcessPoolExecutor, with a pickler of its own (protocol 5)",
        "5 each way: into the pickle, into the pipe in parts of 64 KB, out of it, parts put "
        "together, out of the pickle",
    ),
    RouteEntry(
        "torch.multiprocessing",
        Home.REPOSITORY,
        ("torch_queues_route.py",),
        "",
        "torch tensor, its storage moved to new shared memory; a handle goes through a queue's "
        "feeder thread and a pipe, and the receiver fetches the memory's descriptor over a new, "
        "authenticated socket from a thread of the sender; the same back",
        "1 there, 1 back (0 for identity, which sends the same memory), each into new pages; the "
        "receiver maps them and has their page faults when it reads, which is not measured",
    ),
    RouteEntry(
        "Ray actor",
        Home.PEERS,
        ("ray_actor_route.py",),
        "ray",
        "numpy array; a gRPC message from the caller's process to the actor's and one back; above "
        "100 KB the payload goes through the object store in shared memory, kept by a third "
        "process (raylet), which is asked over a Unix socket to make, to find and to free it",
        "1 there and 1 back, into the store; both sides read it there, read-only. Smaller ones are "
        "in the message, copied several times",
    ),
    RouteEntry(
        "Triton, HTTP",
        Home.PEERS,
        ("triton_http_route.py",),
        "pytriton",
        "numpy array; tritonclient sends an HTTP request over the loopback interface to "
        "tritonserver, which passes it through shared memory and semaphores to the model's process "
        "(Python backend stub), and all the way back",
        "6 there: array to bytes, into the request's body, into the socket, out of it, into the "
        "backend's shared memory, into the model's array; 7 back: into shared memory, into the "
        "answer, into the socket, out of it, into the client's buffer, out of that twice",
    ),
    RouteEntry(
        "Triton, shared memory",
        Home.PEERS,
        ("triton_shared_memory_route.py",),
        "pytriton",
        "as Triton, HTTP, but the payload lies in two registered regions of system shared memory",
        "3 there: into the region, into the backend's shared memory, into the model's array; 2 "
        "back: into the backend's shared memory, into the region, where the client reads it",
    ),
)
