# SPDX-License-Identifier: BSD-3-Clause
"""Items that do harm are set aside, each with its reason; all others have the right result, once."""

import pathlib
import signal
import textwrap
from collections.abc import Iterator

import pytest
from batch_command import JobFolder, Row, job_folder, numbers, squares, wait_until

# Far more than a good item takes on a busy machine.
TIMEOUT = "5s"
MEMORY = ["--memory", "1GiB"]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[JobFolder]:
    with job_folder(tmp_path) as made:
        made.code()
        yield made


def reasons(quarantine: dict[str, Row]) -> dict[str, str]:
    return {identity: row["reason"] for identity, row in quarantine.items()}


def test_each_kind_of_harm_has_its_reason(folder: JobFolder) -> None:
    bad = {3: "segfault", 7: "exit", 8: "raise", 13: "memory", 20: "hang"}
    folder.jsonl(numbers(30, bad))
    line = ["app.py:square", "in.jsonl", "-o", "out", "--chunk-size", "5", "--timeout", TIMEOUT, *MEMORY]
    ended = folder.run(*line, code=3)
    assert ended.last_line.startswith("finished with quarantine: 25 of 30 items have a result, 5 set aside, in ")
    assert ended.last_line.endswith("Look at: isopool batch report out")
    assert folder.rows() == squares(30, bad)
    aside = folder.quarantine()
    assert reasons(aside) == {"i3": "crashed", "i7": "exited", "i8": "raised", "i13": "memory", "i20": "timeout"}
    assert {row["attempts"] for row in aside.values()} == {2}

    assert aside["i3"]["signal"] == signal.SIGSEGV
    assert aside["i3"]["message"] == "the worker was killed by SIGSEGV"
    assert "app.py" in aside["i3"]["crash_log"] and "in misbehave" in aside["i3"]["crash_log"]
    assert aside["i7"]["exit_code"] == 7
    assert aside["i7"]["message"] == "the worker exited with code 7"
    assert (aside["i8"]["phase"], aside["i8"]["type"]) == ("model", "ValueError")
    assert aside["i8"]["message"] == "this item is wrong"
    assert 'raise ValueError("this item is wrong")' in aside["i8"]["traceback"]
    # The user's frames alone.
    assert "pipeline" not in aside["i8"]["traceback"]
    assert (aside["i13"]["phase"], aside["i13"]["type"]) == ("model", "MemoryError")
    assert aside["i20"]["message"] == "took longer than 5 s, and its worker was killed"
    for identity, row in aside.items():
        assert row["command"].endswith(f"/out --only {identity} --inline")
    # A line on stderr for each.
    assert "i3  crashed: the worker was killed by SIGSEGV" in ended.err
    assert "i8  raised in model: ValueError: this item is wrong" in ended.err
    assert folder.leftovers() == []


def test_bisection_finds_the_poisoned_items_of_batches(folder: JobFolder) -> None:
    # Two in one call of 16, at its begin and at its end, and in neighbouring places.
    bad = {0: "segfault", 15: "exit", 20: "raise", 37: "memory", 38: "segfault", 63: "exit"}
    folder.jsonl(numbers(70, bad))
    line = ["app.py:squares", "in.jsonl", "-o", "out", "--batch-size", "16", "--chunk-size", "32", *MEMORY]
    folder.run(*line, code=3)
    assert folder.rows() == squares(70, bad)
    assert reasons(folder.quarantine()) == {
        "i0": "crashed",
        "i15": "exited",
        "i20": "raised",
        "i37": "memory",
        "i38": "crashed",
        "i63": "exited",
    }


def test_bisection_finds_an_item_that_hangs(folder: JobFolder) -> None:
    folder.jsonl(numbers(8, {5: "hang"}))
    line = ["app.py:squares", "in.jsonl", "-o", "out", "--batch-size", "4", "--chunk-size", "8", "--timeout", "2s"]
    folder.run(*line, code=3)
    assert folder.rows() == squares(8, [5])
    assert reasons(folder.quarantine()) == {"i5": "timeout"}


def test_time_in_which_nothing_of_the_job_runs_is_no_items(folder: JobFolder) -> None:
    folder.jsonl(numbers(9, {7: "hang"}, seconds=0.5))
    line = ["app.py:square", "in.jsonl", "-o", "out", "--workers", "1", "--timeout", "2s", "--json"]
    running = folder.start(*line)
    wait_until(lambda: "i2" in folder.trace("begin"), "the start of item 2")
    worker = folder.worker_of("i2")
    running.stop_for(4)
    assert running.wait().code == 3
    assert folder.rows() == squares(9, [7])
    assert reasons(folder.quarantine()) == {"i7": "timeout"}
    # No worker was lost for it either.
    assert folder.trace("begin").count("i2") == 1
    assert folder.worker_of("i3") == worker


def replaced(folder: JobFolder, function: str) -> int:
    """Runs twelve items in one worker with a limit, of which item 5 needs too much; how many workers were replaced."""
    folder.jsonl(numbers(12))
    ended = folder.run(f"app.py:{function}", "in.jsonl", "-o", function, "--workers", "1", "--json", *MEMORY, code=3)
    folder.out = folder / function
    assert folder.rows() == squares(12, [5])
    assert reasons(folder.quarantine()) == {"i5": "memory"}
    return int([event for event in ended.events if event["event"] == "progress"][-1]["workers_replaced"])


def test_a_worker_that_lacks_memory_is_replaced_only_if_earlier_items_have_used_it(folder: JobFolder) -> None:
    folder.code(
        """
        kept = []
        def alone(row):
            if row["n"] == 5: bytearray(4 << 30)
            return {"square": row["n"] ** 2}
        def after_others(row):
            kept.append(bytearray(50 << 20))
            return alone(row)
        """
    )
    assert replaced(folder, "alone") == 0
    assert replaced(folder, "after_others") > 0


def test_an_error_of_the_gpu_spoils_no_item_but_its_own(folder: JobFolder) -> None:
    # As CUDA does it: after an error in a kernel each later use of the device fails in this process, and the item that
    # caused it may have had its result before.
    folder.code(
        """
        import torch
        broken = False
        def on_device(row):
            global broken
            if broken or row["n"] == 17:
                broken = True
                raise torch.AcceleratorError("CUDA error: device-side assert triggered")
            broken = row["n"] == 5
            return {"square": row["n"] ** 2}
        """
    )
    folder.jsonl(numbers(40))
    folder.run("app.py:on_device", "in.jsonl", "-o", "out", "--workers", "1", "--retries", "0", code=3)
    assert folder.rows() == squares(40, [17])
    aside = folder.quarantine()
    assert reasons(aside) == {"i17": "raised"}
    assert (aside["i17"]["type"], aside["i17"]["attempts"]) == ("torch.AcceleratorError", 1)


def test_an_item_that_fails_once_has_a_result(folder: JobFolder) -> None:
    folder.code(
        """
        def once(row):
            mark = os.path.join(HERE, "failed-" + row["id"])
            if row["n"] % 4 == 0 and not os.path.exists(mark):
                open(mark, "w").close()
                misbehave(["segfault", "raise"][row["n"] // 4 % 2])
            return {"square": row["n"] ** 2}
        """
    )
    folder.jsonl(numbers(12))
    folder.run("app.py:once", "in.jsonl", "-o", "out", code=0)
    assert folder.rows() == squares(12)
    # Without a further try they are set aside.
    for mark in folder.path.glob("failed-*"):
        mark.unlink()
    folder.run("app.py:once", "in.jsonl", "-o", "other", "--retries", "0", code=3)
    folder.out = folder / "other"
    assert folder.rows() == squares(12, [0, 4, 8])
    assert reasons(folder.quarantine()) == {"i0": "crashed", "i4": "raised", "i8": "crashed"}


@pytest.mark.parametrize("phase", ["read", "preprocess", "postprocess", "write"])
def test_the_phase_of_a_failure(folder: JobFolder, phase: str) -> None:
    folder.code(
        """
        def wrong(phase):
            return os.path.exists(os.path.join(HERE, "wrong-" + phase))

        def before(row):
            if row["n"] == 2 and wrong("preprocess"):
                raise KeyError("before")
            return row

        def after(result):
            if result["square"] == 4 and wrong("postprocess"):
                raise KeyError("after")
            if result["square"] == 4 and wrong("write"):
                return {"square": object()}
            return result
        """
    )
    folder.jsonl(numbers(4))
    (folder / f"wrong-{phase}").touch()
    if phase == "read":
        lines = (folder / "in.jsonl").read_text().splitlines()
        (folder / "in.jsonl").write_text("\n".join([*lines[:2], "{no JSON", lines[3]]) + "\n")
    line = ["app.py:square", "in.jsonl", "-o", "out", "--retries", "0", "--workers", "1"]
    folder.run(*line, "--preprocess", "app.py:before", "--postprocess", "app.py:after", code=3)
    assert folder.rows() == squares(4, [2])
    [aside] = folder.quarantine().values()
    assert (aside["reason"], aside["phase"], aside["attempts"]) == ("raised", phase, 1)
    # An item that can't be read is named by its place.
    assert aside["id"] == ("in.jsonl:2" if phase == "read" else "i2")


def test_a_reader_that_dies_is_named_by_its_place(folder: JobFolder) -> None:
    folder.code(
        """
        class data:
            def __len__(self):
                return 10
            def __getitem__(self, index):
                if index == 6:
                    misbehave("segfault")
                return {"id": f"i{index}", "n": index}
        """
    )
    folder.run("app.py:square", "app.py:data", "-o", "out", "--chunk-size", "5", "--format", "jsonl", code=3)
    assert folder.rows() == squares(10, [6])
    assert reasons(folder.quarantine()) == {"data:6": "crashed"}


def test_a_pool_in_quarantine_does_not_cost_an_item_its_id(folder: JobFolder) -> None:
    # The worker that is asked for the ID of item 6 dies, and the next one as soon as it is forked: with a limit of one
    # such death the only slot is then in quarantine.
    (folder / "dies_once.py").write_text(
        textwrap.dedent(
            """
            import ctypes, os

            HERE = os.path.dirname(os.path.abspath(__file__))

            def die_once():
                died = os.path.join(HERE, "died-early")
                if os.path.exists(os.path.join(HERE, "asked")) and not os.path.exists(died):
                    open(died, "w").close()
                    ctypes.string_at(0)

            os.register_at_fork(after_in_child=die_once)
            """
        )
    )
    folder.code(
        """
        class data:
            def __len__(self):
                return 10
            def __getitem__(self, index):
                asked = os.path.join(HERE, "asked")
                if index == 6 and os.path.exists(os.path.join(HERE, "called")) and not os.path.exists(asked):
                    open(asked, "w").close()
                    misbehave("segfault")
                return {"id": f"i{index}", "n": index}

        def bad(row):
            if row["n"] == 6:
                open(os.path.join(HERE, "called"), "w").close()
                raise ValueError("this item is wrong")
            return {"square": row["n"] ** 2}
        """
    )
    environment = {
        "PYTHONPATH": str(folder.path),
        "ISOPOOL_PRELOAD_MODULES": "dies_once",
        "ISOPOOL_SPARES": "0",
        "ISOPOOL_RESTART_LIMIT": "1",
        "ISOPOOL_QUARANTINE": "1s",
    }
    line = ["app.py:bad", "app.py:data", "-o", "out", "--format", "jsonl", "--retries", "0", "--workers", "1"]
    ended = folder.run(*line, environment=environment, code=3)
    assert "slot 0 stays empty" in ended.err
    assert folder.rows() == squares(10, [6])
    assert reasons(folder.quarantine()) == {"i6": "raised"}


CLOSING = """
def close(row):
    if row.get("bad") == "close":
        for name in os.listdir("/proc/self/fd"):
            try:
                kind = os.readlink(f"/proc/self/fd/{name}")
            except OSError:
                continue
            if kind.endswith((".spill", ".jsonl")):
                os.close(int(name))
    elif row.get("bad") == "close all":
        os.closerange(3, 4096)
    return square(row)
"""


@pytest.mark.parametrize("kind", ["close", "close all"])
def test_an_item_that_closes_descriptors_costs_itself_only(folder: JobFolder, kind: str) -> None:
    folder.code(CLOSING)
    folder.jsonl(numbers(12, {5: kind}))
    folder.run("app.py:close", "in.jsonl", "-o", "out", "--chunk-size", "6", code=3)
    assert folder.rows() == squares(12, [5])
    assert set(folder.quarantine()) == {"i5"}


@pytest.mark.parametrize(
    ("code", "more", "reason"),
    [
        ("def square(): return 1", [], "items failed alike, in model: TypeError: square() takes 0 positional arguments"),
        ("def square(row): import not_there", [], "items failed alike, in model: ModuleNotFoundError"),
        ("", ["--column", "text"], "items failed alike, in read: KeyError"),
    ],
)
def test_a_mistake_in_the_job_is_one_reason_and_no_quarantine(
    folder: JobFolder, code: str, more: list[str], reason: str
) -> None:
    folder.code(code)
    folder.jsonl(numbers(200))
    line = ["app.py:square", "in.jsonl", "-o", "out", "--chunk-size", "50"]
    ended = folder.run(*line, *more, code=1)
    assert reason in ended.err and "--max-failures" in ended.err
    assert folder.quarantine() == {} and folder.parts() == {}
    # The corrected job can begin at once.
    folder.code()
    folder.run(*line, code=0)
    assert folder.rows() == squares(200)


def test_items_that_all_fail_are_set_aside_if_that_is_allowed(folder: JobFolder) -> None:
    folder.jsonl(numbers(40, {n: "raise" for n in range(30)}))
    line = ["app.py:square", "in.jsonl", "-o", "out", "--chunk-size", "10", "--workers", "1", "--retries", "0"]
    folder.run(*line, code=1)
    folder.run(*line, "--max-failures", "100%", code=3)
    assert folder.rows() == squares(40, range(30))
    assert len(folder.quarantine()) == 30


def test_a_model_whose_making_hangs_ends_with_its_limit_or_ctrl_c(folder: JobFolder) -> None:
    folder.code("class Slow:\n    def __init__(self):\n        trace('begin', {'id': 'made'})\n        time.sleep(3600)\n")
    folder.jsonl(numbers(4))
    line = ["app.py:Slow", "in.jsonl", "-o", "out", "--workers", "1"]
    ended = folder.run(*line, "--start-timeout", "2s", code=1)
    assert "the model can't be prepared: it took longer than 2 s (--start-timeout" in ended.err
    begun = len(folder.trace("begin"))
    running = folder.start(*line)
    wait_until(lambda: len(folder.trace("begin")) > begun, "the making of the model")
    running.process.send_signal(signal.SIGINT)
    assert running.wait(30).code == 130
