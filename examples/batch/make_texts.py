# SPDX-License-Identifier: BSD-3-Clause
"""Collects the docstrings of installed packages: input for texts.py.

A line of the file is {"id": "numpy.linalg._linalg.norm", "text": "Return one of eight different matrix norms ..."}.
The sources are read, not imported. The same packages give the same file.

    python examples/batch/make_texts.py --out build/texts.jsonl --count 3000
"""

import argparse
import ast
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ["numpy", "skimage", "PIL", "transformers"]
SHORTEST = 40
LONGEST = 2000  # characters; the model reads 256 tokens

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(node: Definition, name: str) -> Iterator[tuple[str, str]]:
    """Of the definition and of all public ones in it."""
    text = ast.get_docstring(node)
    if text and len(text) >= SHORTEST:
        yield name, text[:LONGEST]
    if isinstance(node, ast.Module | ast.ClassDef):
        for each in node.body:
            if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and each.name[0] != "_":
                yield from docstrings(each, f"{name}.{each.name}")


def texts_of(package: str) -> Iterator[tuple[str, str]]:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not an installed package")
    folder = Path(spec.submodule_search_locations[0])
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder.parent).with_suffix("").parts
        if "tests" not in parts:
            yield from docstrings(ast.parse(file.read_bytes()), ".".join(parts).removesuffix(".__init__"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON lines")
    parser.add_argument("--count", type=int, metavar="N", help="as many of them, evenly spread (default: all)")
    parser.add_argument("--packages", nargs="+", default=PACKAGES, metavar="NAME", help=f"(default: {PACKAGES})")
    options = parser.parse_args()

    # The first of equal texts, and of equal names.
    names: dict[str, str] = {}
    found: dict[str, str] = {}
    for package in options.packages:
        for name, text in texts_of(package):
            if name not in names and text not in found:
                found[text] = names[name] = name
    texts = sorted((name, text) for text, name in found.items())
    count = min(options.count or len(texts), len(texts))
    chosen = [texts[number * len(texts) // count] for number in range(count)]
    out: Path = options.out
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in chosen))
    print(f"{out}: {count} of {len(texts)} docstrings")


if __name__ == "__main__":
    main()
