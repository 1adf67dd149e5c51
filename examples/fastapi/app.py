# SPDX-License-Identifier: BSD-3-Clause
"""A FastAPI service whose server processes all use one pool: the weights exist once.

    isopoold --listen /tmp/isopool.sock &
    ISOPOOL_SOCKET=/tmp/isopool.sock MODEL=sentence_encoder.pt uvicorn app:app --workers 4

POST /embed with {"texts": [...]} gives {"vectors": [[...]]}, one row for each text. A request whose worker dies gets
503, and so does one that waits too long; all others go on. GET /pool says what the pool does.

With IN_PROCESS=1 each server process loads the model itself, as a service without isopool does: for comparison.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable

import fastapi
import isopool
import pydantic
import torch

Encode = Callable[[list[str]], Awaitable[torch.Tensor]]
SECONDS = 30.0  # for a request, in the pool


class Texts(pydantic.BaseModel):
    texts: list[str] = pydantic.Field(min_length=1, max_length=64)


class Vectors(pydantic.BaseModel):
    vectors: list[list[float]]


def in_process() -> Encode:
    import asyncio

    from torch.package import PackageImporter

    torch.set_num_threads(1)
    model = PackageImporter(os.environ["MODEL"]).load_pickle("model", "model.pkl")

    async def encode(texts: list[str]) -> torch.Tensor:
        vectors: torch.Tensor = await asyncio.to_thread(model, texts)
        return vectors

    return encode


@contextlib.asynccontextmanager
async def lifespan(app: fastapi.FastAPI) -> AsyncIterator[None]:
    app.state.pool = None
    if os.environ.get("IN_PROCESS"):
        app.state.encode = in_process()
        yield
        return
    async with isopool.Pool(address=os.environ["ISOPOOL_SOCKET"]) as pool:
        model = pool.load(os.environ["MODEL"], pickle=("model", "model.pkl"))
        app.state.pool = pool
        app.state.encode = model.with_options(timeout=SECONDS).aio
        yield


app = fastapi.FastAPI(lifespan=lifespan)


@app.post("/embed")
async def embed(request: fastapi.Request, texts: Texts) -> Vectors:
    encode: Encode = request.app.state.encode
    try:
        vectors = await encode(texts.texts)
    except (isopool.WorkerLost, isopool.DeadlineExceeded, isopool.PoolUnavailable) as error:
        # Only this request: the pool has replaced the worker already, or does so now.
        raise fastapi.HTTPException(503, f"{type(error).__name__}: {error}") from error
    return Vectors(vectors=vectors.tolist())


@app.get("/pool")
async def pool(request: fastapi.Request) -> dict[str, object]:
    if request.app.state.pool is None:
        return {"server": os.getpid(), "workers": []}
    figures = request.app.state.pool.statistics()
    return {"server": os.getpid(), "workers": [worker.process_id for worker in figures.workers]}
