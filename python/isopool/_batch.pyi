from typing import Any, Callable

from isopool._native import PoolOptions

_Call = Callable[[dict[str, Any]], object] | None

def run(job: dict[str, Any], pool: PoolOptions, progress: _Call, failure: _Call) -> dict[str, Any]: ...
def retry(output: str, pool: PoolOptions, progress: _Call, failure: _Call) -> dict[str, Any]: ...
