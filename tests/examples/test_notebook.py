# SPDX-License-Identifier: BSD-3-Clause
"""The notebook of examples/notebook runs in a real kernel, which a crash does not end and which can be interrupted."""

import asyncio
import pathlib
import re
import typing

import nbformat
from nbclient import NotebookClient

NOTEBOOK = pathlib.Path(__file__).parents[2] / "examples" / "notebook" / "pool.ipynb"
PATIENCE = 120


class Reader(NotebookClient):
    """Executes a notebook, and interrupts the kernel where the notebook asks for it."""

    def output(
        self, outs: list[nbformat.NotebookNode], msg: dict[str, typing.Any], display_id: str | None, cell_index: int
    ) -> nbformat.NotebookNode | None:
        if "interrupt the kernel" in msg["content"].get("text", ""):
            assert self.km is not None
            self.interrupt = asyncio.ensure_future(self.km.interrupt_kernel())  # type: ignore[call-overload]
        made: nbformat.NotebookNode | None = super().output(outs, msg, display_id, cell_index)
        return made


def test_the_notebook_runs_through_a_crash_and_an_interrupt() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    Reader(notebook, timeout=PATIENCE, kernel_name="python3").execute()
    [table, values, crash, interrupt, plot, last_table, _] = [
        each.outputs for each in notebook.cells if each.cell_type == "code"
    ]
    assert len(re.findall("<tr>", table[0].data["text/html"])) == 3  # the head and two workers
    assert values[0].data["text/plain"] == "['question', 'statement']"
    assert re.match(r"signal 11 in worker \d \(pid \d+\)\n(.*\n)*.*in classify", crash[0].text), crash[0].text
    assert crash[1].data["text/plain"] == "'question'"
    assert re.search(r"^KeyboardInterrupt after [01]\.\d s$", "".join(e.get("text", "") for e in interrupt), re.MULTILINE)
    assert interrupt[-1].data["text/plain"] == "'question'"
    assert len(plot[0].data["image/png"]) > 1000
    assert "<td>" in last_table[0].data["text/html"]
