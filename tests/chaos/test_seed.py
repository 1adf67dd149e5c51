"""The seed alone decides the attacks."""

import os
import subprocess


def attacks(seed: int) -> list[str]:
    """The first attacks on each target."""
    command = [os.environ["ISOPOOL_CHAOS"], "--list", "500", "--seed", str(seed)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def test_a_seed_chooses_the_same_attacks_again() -> None:
    assert attacks(7) == attacks(7)


def test_another_seed_chooses_others() -> None:
    assert attacks(7) != attacks(8)


def test_targets_are_not_attacked_alike() -> None:
    by_target: dict[str, list[str]] = {}
    for line in attacks(7):
        target, attack = line.split(": ", 1)
        by_target.setdefault(target, []).append(attack)
    assert len(by_target) == 7
    assert len({tuple(each) for each in by_target.values()}) == 7


def test_every_family_is_among_the_attacks() -> None:
    families = {line.split(": ", 1)[1].split()[0] for line in attacks(7)}
    assert families == {
        "kill",
        "segfault",
        "abort",
        "stop",
        "freeze",
        "descriptors",
        "memory",
        "interruption",
        "processors",
        "clock",
    }
