# SPDX-License-Identifier: BSD-3-Clause
"""Reads the results of pictures.py or texts.py with pyarrow, and checks that they are plausible.

    python examples/batch/read_back.py pictures build/labels
    python examples/batch/read_back.py texts build/vectors build/texts.jsonl
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import numpy
import pyarrow.parquet  # type: ignore[import-untyped]

sys.path.append(str(Path(__file__).resolve().parents[1]))

from package_classifier import PICTURES

# Each text with one that is near it in meaning, as the model sees it.
SHOWN_TEXTS = 5


def table_of(folder: Path) -> pyarrow.Table:
    """All parts as one table. A file that is being written has another name."""
    return pyarrow.parquet.read_table(folder)


def read_pictures(table: pyarrow.Table) -> None:
    """A file's name begins with what it shows."""
    right_labels = {picture.name: picture.right_labels for picture in PICTURES}
    labels: dict[str, Counter[str]] = {name: Counter() for name in right_labels}
    for row in table.to_pylist():
        labels[row["id"].rpartition("-")[0]][row["label"]] += 1
    for name, counts in labels.items():
        right = sum(count for label, count in counts.items() if label in right_labels[name])
        most = ", ".join(f"{label} {count}" for label, count in counts.most_common(3))
        print(f"{name:11} {right:5} of {counts.total():5} right: {most}")


def read_texts(table: pyarrow.Table, inputs: Path) -> None:
    texts = {row["id"]: row["text"] for row in map(json.loads, inputs.read_text().splitlines())}
    names = table["id"].to_pylist()
    vectors = numpy.stack(table["embedding"].to_numpy())
    print(f"vectors: {vectors.shape}, {vectors.dtype}, lengths {numpy.linalg.norm(vectors, axis=1).mean():.4f}")
    near = vectors @ vectors.T
    numpy.fill_diagonal(near, -1)
    for number in range(0, len(names), len(names) // SHOWN_TEXTS + 1):
        other = int(near[number].argmax())
        print(f"{near[number, other]:.2f}")
        for each in (number, other):
            print(f"  {names[each]}: {texts[names[each]].splitlines()[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=["pictures", "texts"])
    parser.add_argument("results", type=Path, metavar="OUT", help="folder of the results")
    parser.add_argument("inputs", type=Path, nargs="?", metavar="FILE", help="of texts: texts.jsonl")
    options = parser.parse_args()
    table = table_of(options.results)
    print(f"{options.results}: {table.num_rows} rows, columns {', '.join(table.column_names)}")
    if options.job == "pictures":
        read_pictures(table)
    elif options.inputs is None:
        parser.error("texts needs the file of texts, too")
    else:
        read_texts(table, options.inputs)


if __name__ == "__main__":
    main()
