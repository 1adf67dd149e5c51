"""Reads ctest's JUnit file; prints each test that was not run or failed, with the reason, and the counts.

Exits with 1 unless at least one test passed and none failed.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree


def reason_for_skipping(case: xml.etree.ElementTree.Element) -> str:
    output = case.findtext("system-out", default="").strip()
    # GoogleTest prints the reason on the line after "Skipped", other tests print it last.
    after_skip = re.search(r": Skipped\n(.+)", output)
    if after_skip:
        return after_skip[1]
    return output.splitlines()[-1] if output else "the test printed no reason"


def reasons_for_failing(case: xml.etree.ElementTree.Element) -> list[str]:
    """The lines of the output that tell why: of GoogleTest, pytest and others, each with what follows; else the last."""
    lines = [line[:300] for line in case.findtext("system-out", default="").splitlines() if line.strip()]
    kept: set[int] = set()
    for number, line in enumerate(lines):
        if re.search(r": Failure$|^E  |^FAILED |Sanitizer|rror: ", line):
            kept.update(range(number, min(number + 4, len(lines))))
    chosen = [lines[number] for number in sorted(kept)] or lines
    return chosen[:20] + chosen[20:][-20:]


def main(results: pathlib.Path) -> int:
    passed = failed = 0
    cases = xml.etree.ElementTree.parse(results).iter("testcase") if results.exists() else ()
    for case in cases:
        status = case.get("status")
        skipped = case.find("skipped")
        if status == "run":
            passed += 1
        elif status == "disabled":
            print(f"not run: {case.get('name')}: disabled")
        elif skipped is not None and skipped.get("message", "").startswith("SKIP_"):
            print(f"not run: {case.get('name')}: {reason_for_skipping(case)}")
        else:
            failed += 1
            print(f"failed: {case.get('name')}")
            for line in reasons_for_failing(case):
                print(f"    {line}")
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
