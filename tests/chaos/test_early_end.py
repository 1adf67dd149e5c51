"""A run that can't go on, or is told to end, says what it found."""

import os
import pathlib
import re
import signal
import subprocess
import time

COMMAND = [os.environ["ISOPOOL_CHAOS"], "--target", "plain-private-1", "--seconds", "3600"]
PACKAGE = ["--package", os.environ["CHAOS_PACKAGE"]]
PATIENCE = 120


def start(folder: pathlib.Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(folder), **variables}
    return subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


def wait_for_calls(chaos: subprocess.Popen[str], folder: pathlib.Path) -> None:
    """Until the target's program has recorded a call."""
    end = time.monotonic() + PATIENCE
    while not any(history.stat().st_size for history in folder.glob("*/*/*.history")):
        assert chaos.poll() is None and time.monotonic() < end, chaos.communicate()[0]
        time.sleep(0.02)


def test_sigterm_ends_the_attacks_and_what_was_found_is_reported(tmp_path: pathlib.Path) -> None:
    with start(tmp_path, *PACKAGE) as chaos:
        wait_for_calls(chaos, tmp_path)
        chaos.send_signal(signal.SIGTERM)
        output, _ = chaos.communicate(timeout=PATIENCE)
    assert chaos.returncode == 0, output
    assert "a signal ended the attacks early" in output
    assert re.search(r"found +hung 0 wrong 0 lost 0", output), output
    assert re.search(r" [1-9]\d* calls$", output, re.MULTILINE), output


def test_a_setting_that_the_programs_refuse_ends_the_run_before_any_attack(tmp_path: pathlib.Path) -> None:
    with start(tmp_path, *PACKAGE, ISOPOOL_ZYGOTE_TIMEOUT="10min") as chaos:
        output, _ = chaos.communicate(timeout=PATIENCE)
    assert chaos.returncode == 1, output
    assert "ISOPOOL_ZYGOTE_TIMEOUT=10min" in output
    assert re.search(r"^seed \d+: 0 kills ", output, re.MULTILINE), output


def test_without_the_model_nothing_starts(tmp_path: pathlib.Path) -> None:
    with start(tmp_path) as chaos:
        output, _ = chaos.communicate(timeout=PATIENCE)
    assert chaos.returncode == 2, output
    assert "--package" in output
