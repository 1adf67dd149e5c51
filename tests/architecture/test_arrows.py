"""Our includes follow the arrows, and the checker finds each kind of violation."""

import pathlib

import arrows
import pytest

LICENCE = "// SPDX-License-Identifier: BSD-3-Clause\n"

# A tree without a fault. Each case below adds or replaces one file.
GOOD_TREE = {
    "include/README.md": "",
    "include/isopool/pool.h": "#include <ATen/core/ivalue.h>",
    "include/compat/multipy/runtime/deploy.h": "#include <isopool/pool.h>",
    "include/compat/torch/deploy.h": "#include <multipy/runtime/deploy.h>",
    "ipc/README.md": "",
    "ipc/ring.h": "#include <atomic>",
    "ipc/ring.cc": '#include "ipc/ring.h"',
    "ipc/tensor/codec.h": '#include <ATen/core/Tensor.h>\n#include "ipc/ring.h"',
    "client/README.md": "",
    "client/session.cc": '#include "isopool/pool.h"\n#include "ipc/tensor/codec.h"',
    "client/models/README.md": "",
    "client/models/format.h": '#include "base/fd.h"',
    "supervisor/README.md": "",
    "supervisor/log.h": "#include <string_view>",
    "supervisor/log.cc": '#include "supervisor/log.h"\n#include <spdlog/spdlog.h>',
    "supervisor/main.cc": '#include "supervisor/log.h"\n#include "ipc/ring.h"',
    "base/README.md": "",
    "base/fd.h": "#include <utility>",
    "worker/README.md": "",
    "worker/zygote.cc": '#include <Python.h>\n#include "worker/serve/call_loop.h"',
    "worker/serve/README.md": "",
    "worker/serve/call_loop.h": '#include "worker/memory/blocks.h"\n#include "base/fd.h"',
    "worker/memory/README.md": "",
    "worker/memory/blocks.h": '#include "ipc/tensor/codec.h"',
    "examples/README.md": "",
    "examples/hello.cc": "#include <torch/deploy.h>\n#include <torch/torch.h>",
    "ipc/control/client_messages.h": "#include <string>",
    "ipc/control/operator_messages.h": "#include <string>",
    "ipc/control/worker_messages.h": "#include <string>",
    "ipc/control/zygote_messages.h": "#include <string>",
    "cli/README.md": "",
    "cli/main.cc": '#include "ipc/control/client_messages.h"',
    "bench/README.md": "",
    "bench/ring.cc": '#include "ipc/ring.h"',
    "tests/README.md": "",
    "tests/supervisor/log_test.cc": '#include "supervisor/log.h"',
    "tests/worker/zygote_test.cc": '#include <Python.h>\n#include "ipc/ring.h"',
}

FAULTS = {
    "a public header includes a private one": (
        "include/isopool/pool.h", '#include "client/session.h"', "include/isopool/ may not"),
    "a public header includes ipc": (
        "include/isopool/pool.h", '#include "ipc/ring.h"', "include/isopool/ may not"),
    "a compatibility header includes ipc": (
        "include/compat/torch/deploy.h", '#include "ipc/ring.h"', "include/compat/ may not"),
    "ipc includes the public header": (
        "ipc/ring.h", '#include "isopool/pool.h"', "ipc/ may not"),
    "ipc includes its tensor part": (
        "ipc/ring.h", '#include "ipc/tensor/codec.h"', "ipc/ may not"),
    "ipc includes torch": (
        "ipc/ring.h", "#include <c10/core/Allocator.h>", "ipc/ is free of torch"),
    "ipc/tensor includes Python": (
        "ipc/tensor/codec.h", "#include <Python.h>", "may see Python's C API"),
    "the client includes the supervisor": (
        "client/session.cc", '#include "supervisor/log.h"', "client/ may not"),
    "the client includes Python by way of torch": (
        "client/session.cc", "#include <torch/extension.h>", "may see Python's C API"),
    "a folder of the client includes the client": (
        "client/models/format.h", '#include "client/session.h"', "client/models/ may not"),
    "the supervisor includes the worker": (
        "supervisor/main.cc", '#include "worker/zygote.h"', "supervisor/ may not"),
    "the supervisor includes the public header": (
        "supervisor/main.cc", '#include "isopool/pool.h"', "supervisor/ may not"),
    "the supervisor includes torch": (
        "supervisor/main.cc", "#include <ATen/ATen.h>", "supervisor/ is free of torch"),
    "the worker includes the supervisor": (
        "worker/zygote.cc", '#include "supervisor/log.h"', "worker/ may not"),
    "base includes ipc": ("base/fd.h", '#include "ipc/ring.h"', "base/ may not"),
    "a worker's memory includes what serves calls": (
        "worker/memory/blocks.h", '#include "worker/serve/call_loop.h"', "worker/memory/ may not"),
    "a folder of the worker includes the program": (
        "worker/serve/call_loop.h", '#include "worker/zygote.h"', "worker/serve/ may not"),
    "a folder of the supervisor includes torch": (
        "supervisor/pool/worker_group.cc", "#include <ATen/ATen.h>", "supervisor/pool/ is free of torch"),
    "the worker includes the public header": (
        "worker/zygote.cc", '#include "isopool/pool.h"', "worker/ may not"),
    "an example includes ipc": (
        "examples/hello.cc", '#include "ipc/ring.h"', "examples/ may not"),
    "a benchmark includes the worker": (
        "bench/ring.cc", '#include "worker/zygote.h"', "bench/ may not"),
    "a supervisor's test includes the worker": (
        "tests/supervisor/log_test.cc", '#include "worker/zygote.h"', "tests/ may not"),
    "the client includes messages of the zygote": (
        "client/session.cc", '#include "ipc/control/zygote_messages.h"', "exchange its messages"),
    "the client includes an operator's messages": (
        "client/models/format.h", '#include "ipc/control/operator_messages.h"', "only cli and"),
    "the command includes messages of the worker": (
        "cli/main.cc", '#include "ipc/control/worker_messages.h"', "exchange its messages"),
    "the worker includes a client's messages": (
        "worker/zygote.cc", '#include "ipc/control/client_messages.h"', "exchange its messages"),
    "ipc itself includes messages": (
        "ipc/ring.h", '#include "ipc/control/client_messages.h"', "exchange its messages"),
    "a file sees torch and spdlog": (
        "worker/zygote.cc", "#include <ATen/ATen.h>\n#include <spdlog/spdlog.h>", "another fmt"),
    "a file sees torch and, through a header of ours, fmt": (
        "ipc/ring.h", "#include <fmt/core.h>", "ipc/tensor/codec.h sees ATen"),
    "a private header is named from its own folder": (
        "client/session.cc", '#include "session.h"', "name it from the repository's root"),
    "a header is named through its parent": (
        "client/session.cc", '#include "../ipc/ring.h"', "name it from the repository's root"),
    "a source includes its own header late": (
        "ipc/ring.cc", '#include <atomic>\n#include "ipc/ring.h"', "does not come first"),
}  # fmt: skip

# Faulty files include these.
OTHER_HEADERS = ["client/session.h", "worker/zygote.h"]


def write(root: pathlib.Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        guard = "#pragma once\n" if path.suffix == ".h" else ""
        path.write_text(text if path.suffix == ".md" else f"{LICENCE}{guard}{text}\n")


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> pathlib.Path:
    write(tmp_path, GOOD_TREE)
    return tmp_path


def test_our_includes_follow_the_arrows() -> None:
    found = arrows.violations(pathlib.Path(__file__).resolve().parents[2])
    assert not found, "\n".join(found)


def test_a_tree_without_a_fault_passes(tree: pathlib.Path) -> None:
    assert arrows.violations(tree) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_include_is_found(tree: pathlib.Path, fault: str) -> None:
    source, text, complaint = FAULTS[fault]
    write(tree, {header: "" for header in OTHER_HEADERS} | {source: text})
    assert any(complaint in violation for violation in arrows.violations(tree))


def test_a_folder_without_readme_is_found(tree: pathlib.Path) -> None:
    (tree / "worker" / "README.md").unlink()
    assert arrows.violations(tree) == ["worker/ has no README.md"]


def test_a_file_without_licence_line_is_found(tree: pathlib.Path) -> None:
    (tree / "ipc" / "fd.cc").write_text("int main() {}\n")
    assert arrows.violations(tree) == ["ipc/fd.cc: the first line is not the licence line"]


def test_a_header_without_guard_is_found(tree: pathlib.Path) -> None:
    (tree / "ipc" / "fd.h").write_text(LICENCE)
    assert arrows.violations(tree) == ["ipc/fd.h: no #pragma once"]
