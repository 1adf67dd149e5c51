# SPDX-License-Identifier: BSD-3-Clause
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy
import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PEERS = REPOSITORY / "bench" / "peers"
sys.path.insert(0, str(PEERS))
import measuring  # noqa: E402
import operations  # noqa: E402

FIELDS = {"bench", "route", "case", "metric", "unit", "value", "spread", "ratio_to", "ratio"}
COUNTED = {"isopool", "isopool, shared input", "isopool.Pool from Python, shared input"}
OWN = COUNTED | {"isopool from Python"}
BUILTIN = {"ProcessPoolExecutor", "torch.multiprocessing"}
INSTALLED = {"loky", "Ray actor", "Triton, HTTP", "Triton, shared memory"}
VENV = pathlib.Path(
    os.environ.get("ISOPOOL_PEERS_VENV", REPOSITORY / "build" / "peers-venv")
).absolute()


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("packages")
    script = REPOSITORY / "bench" / "package_models.py"
    subprocess.run(
        [sys.executable, str(script), "--out", str(folder), "--megabytes", "1"],
        check=True,
        timeout=120,
    )
    return folder


def rows_of(packages: pathlib.Path, venv: pathlib.Path, only: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(PEERS / "run.py"), "--quick", "--only", only]
    command += ["--packages", str(packages), "--peers-venv", str(venv)]
    finished = subprocess.run(command, text=True, stdout=subprocess.PIPE, timeout=250)
    assert finished.returncode == 0, finished.stdout
    rows = [json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{")]
    assert all(set(row) == FIELDS and row["bench"] == "peers" for row in rows)
    return rows


def assert_measured(rows: list[dict[str, Any]], routes: set[str], cases: set[str]) -> None:
    measured = {(r["route"], r["case"], r["metric"]): r for r in rows if r["value"] is not None}
    copied = {key: measured.pop(key) for key in list(measured) if key[2] == "bytes_copied"}
    assert set(copied) == {(route, case, "bytes_copied") for route in COUNTED for case in cases}
    for (route, case, _), row in copied.items():
        # An ordinary tensor of 64 B travels within the message; if the model returns it, twice.
        once = {"identity 64 B": 128, "made 64 B": 64, "made 1 MB": 1_000_000}[case]
        assert row["value"] == (once if route == "isopool" else 0), (route, case)
    assert set(measured) == {
        (route, case, metric) for route in routes for case in cases for metric in ("p50", "p99")
    }
    for (route, case, metric), row in measured.items():
        assert row["unit"] == "us" and row["value"] > 0 and row["spread"] >= 0
        if route == "isopool":
            assert row["ratio_to"] == "" and row["ratio"] is None
        else:
            assert row["ratio_to"] == "isopool"
            own = measured["isopool", case, metric]["value"]
            assert row["ratio"] == pytest.approx(row["value"] / own)


def test_without_installed_peers_the_others_are_compared_and_the_missing_named(
    packages: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    rows = rows_of(packages, tmp_path / "nowhere", "64 B")
    assert_measured(rows, OWN | BUILTIN, {"identity 64 B", "made 64 B"})
    missing = [row for row in rows if row["metric"] == "not measured"]
    assert {row["route"] for row in missing} == INSTALLED
    assert all("--install-peers" in row["case"] for row in missing)


def test_installed_peers_answer_rightly_and_leave_nothing(packages: pathlib.Path) -> None:
    if not (VENV / "bin" / "python").exists():
        pytest.skip(f"no {VENV}: scripts/bench peers --install-peers makes it")
    rows = rows_of(packages, VENV, "made 1 MB")
    assert_measured(rows, OWN | BUILTIN | INSTALLED, {"made 1 MB"})
    for left in pathlib.Path("/dev/shm").glob("isopool_peers_*"):
        owner = pathlib.Path("/proc", left.name.split("_")[2])
        assert owner.exists(), f"{left} belongs to no process"


class Liar(measuring.Route):
    """Answers with the result of `lie`, which gets the right answer and the previous one."""

    def __init__(self, lie: Any) -> None:
        self._lie = lie
        self._before: numpy.ndarray | None = None

    def call(self, operation: str, x: numpy.ndarray) -> numpy.ndarray:
        right = numpy.array(operations.OPERATIONS[operation](x))
        answer = self._lie(right, self._before)
        self._before = right
        return answer


def spoil(place: int) -> Any:
    def lie(right: numpy.ndarray, _: numpy.ndarray | None) -> numpy.ndarray:
        spoiled = right.copy()
        spoiled[place] += 1
        return spoiled

    return lie


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(lambda right, before: right if before is None else before, id="stale"),
        pytest.param(lambda right, before: right[:-1], id="short"),
        pytest.param(lambda right, before: right.astype(numpy.float64), id="other type"),
        pytest.param(spoil(-1), id="wrong end"),
        pytest.param(spoil(3), id="one element wrong in the last call of a round"),
    ],
)
def test_a_wrong_answer_is_not_measured(lie: Any) -> None:
    honest = Liar(lambda right, before: right)
    assert len(measuring.measure(honest, "made", 100, 3)) == 3
    with pytest.raises(measuring.WrongAnswer):
        measuring.measure(Liar(lie), "made", 100, 3)


def test_what_a_peer_leaves_running_is_killed() -> None:
    program = """
import subprocess, descendants
descendants.adopt_orphans()
orphan = int(subprocess.check_output(["sh", "-c", "setsid sleep 600 >/dev/null & echo $!"]))
assert orphan in descendants.living_descendants()
assert descendants.kill_all() == 1
assert not descendants.living_descendants()
"""
    subprocess.run([sys.executable, "-c", program], cwd=PEERS, check=True, timeout=60)
