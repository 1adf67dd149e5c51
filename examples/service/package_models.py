#!/usr/bin/env python3
"""Makes the folder of models that `service` serves, with example inputs and their right answers.

Makes those models whose packages this Python has (requirements.txt), and says which it leaves out.
Writes into the folder of --out:

  MODEL.pt, .jit, .onnx  the models
  inputs.pt              example inputs: {model: [arguments of a call, ...]}, by torch.save
  expected.json          the answers to them, computed here, without isopool: {model: [answer, ...]}

The weights of resnet and text_writer are random (seeded): those packages have none. All others are
trained, and are inside the packages.
"""

import argparse
import importlib.util
import io
import json
import os
import random
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import torch  # noqa: E402
from package_file import write_package  # noqa: E402

RATE = 16000  # samples a second
CHUNK = 512  # samples that silero-vad takes at a time
CONTEXT = 64  # samples of the previous chunk that its ONNX form takes, too

Inputs = list[tuple[object, ...]]


def package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec and spec.submodule_search_locations, f"{name} is not installed"
    return Path(spec.submodule_search_locations[0])


def recordings() -> Inputs:
    """Half a second each: silence with noise, and tones whose loudness changes as in speech."""
    time = torch.arange(16 * CHUNK) / RATE
    made: Inputs = []
    for pitch in (0, 110, 160, 220):
        harmonics = [torch.sin(2 * torch.pi * pitch * n * time) / n for n in range(1, 12)]
        syllables = torch.sin(2 * torch.pi * 4 * time).clamp(min=0)
        sound = 0.1 * torch.stack(harmonics).sum(dim=0) * syllables
        made.append(((sound + 0.002 * torch.randn(time.shape)).reshape(-1, CHUNK),))
    return made


def make_voice_script(folder: Path) -> tuple[Inputs, list[object]]:
    file = folder / "voice_script.jit"
    shutil.copy(package_folder("silero_vad") / "data" / "silero_vad.jit", file)
    model = torch.jit.load(file)

    def answer(chunks: torch.Tensor) -> list[float]:
        model.reset_states()
        return [float(model(chunk.unsqueeze(0), RATE)) for chunk in chunks]

    inputs = recordings()
    return inputs, [answer(*arguments) for arguments in inputs]


def make_voice_onnx(folder: Path) -> tuple[Inputs, list[object]]:
    import onnxruntime

    file = folder / "voice_onnx.onnx"
    shutil.copy(package_folder("silero_vad") / "data" / "silero_vad.onnx", file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), options)

    def answer(chunks: torch.Tensor) -> list[float]:
        state, context, found = torch.zeros(2, 1, 128), torch.zeros(1, CONTEXT), []
        for chunk in chunks:
            sound = torch.cat([context, chunk.unsqueeze(0)], dim=1)
            feed = {
                "input": sound.numpy(),
                "state": state.numpy(),
                "sr": torch.tensor(RATE).numpy(),
            }
            probability, after = session.run(None, feed)
            state, context = torch.from_numpy(after), sound[:, -CONTEXT:]
            found.append(float(probability.item()))
        return found

    inputs = recordings()
    return inputs, [answer(*arguments) for arguments in inputs]


def import_torchvision() -> None:
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        # pip's torchvision beside a torch without CUDA: it can't load its operators, and needs their declarations.
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        operators = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        import torchvision  # noqa: F401


def make_resnet(folder: Path) -> tuple[Inputs, list[object]]:
    import_torchvision()
    import torchvision

    inputs: Inputs = [(torch.rand(1, 3, 112, 112),) for _ in range(4)]
    model = torchvision.models.resnet18(num_classes=100).eval()
    script = torch.jit.trace(model, inputs[0])
    script.save(str(folder / "resnet.jit"))
    return inputs, [plain(script(*arguments)) for arguments in inputs]


def make_text_reader(folder: Path) -> tuple[Inputs, list[object]]:
    from PIL import Image, ImageDraw, ImageFont
    from service_models.text_reader import TextReader

    def picture(*lines: str) -> torch.Tensor:
        image = Image.new("RGB", (320, 24 + 32 * len(lines)), "white")
        draw = ImageDraw.Draw(image)
        for row, line in enumerate(lines):
            draw.text((16, 12 + 32 * row), line, "black", ImageFont.load_default(size=22))
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        return pixels.reshape(image.height, image.width, 3)

    written = [["Total: 12.50 EUR"], ["Platform 9", "Departure 10:42"], ["INVOICE 2026"]]
    inputs: Inputs = [(picture(*lines),) for lines in written]
    model = TextReader()
    answers = [model(*arguments) for arguments in inputs]
    for lines, (found, _) in zip(written, answers, strict=True):
        assert [text.replace(" ", "") for text in found] == [x.replace(" ", "") for x in lines], (
            found
        )
    write_package(
        folder / "text_reader.pt",
        model,
        intern=["service_models.**"],
        extern=["rapidocr_onnxruntime.**"],
    )
    return inputs, [plain(answer) for answer in answers]


def make_file_type(folder: Path) -> tuple[Inputs, list[object]]:
    from service_models.file_type import FileType

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("names.csv", "name,age\nAda,36\nAlan,41\n" * 20)
    contents = [
        Path(__file__).read_bytes(),
        Path(HERE / "README.md").read_bytes(),
        archive.getvalue(),
        b'<!doctype html><html><head><title>x</title></head><body><p class="a">x</p></body></html>',
        json.dumps({"rows": [{"id": n, "name": f"row {n}"} for n in range(40)]}).encode(),
    ]
    inputs: Inputs = [
        (torch.tensor(list(content[:4096]), dtype=torch.uint8),) for content in contents
    ]
    model = FileType()
    write_package(
        folder / "file_type.pt", model, intern=["service_models.**"], extern=["magika.**"]
    )
    return inputs, [plain(model(*arguments)) for arguments in inputs]


def make_crystal_energy(folder: Path) -> tuple[Inputs, list[object]]:
    from chgnet.model import CHGNet
    from service_models.crystal_energy import CrystalEnergy

    cubic = torch.eye(3, dtype=torch.float64)
    corner, middle = (
        [0.02, 0.0, 0.0],
        [0.5, 0.5, 0.5],
    )  # not in equilibrium: the forces are not zero
    inputs: Inputs = [
        (edge * cubic, torch.tensor(numbers), torch.tensor([corner, middle], dtype=torch.float64))
        for edge, numbers in [
            (4.12, [55, 17]),
            (2.87, [26, 26]),
            (3.16, [74, 74]),
            (2.95, [28, 13]),
        ]
    ]
    model = CrystalEnergy(CHGNet.load(use_device="cpu", verbose=False)).eval()
    write_package(
        folder / "crystal_energy.pt",
        model,
        intern=["service_models.**"],
        extern=["chgnet.**", "pymatgen.**"],
    )
    return inputs, [plain(model(*arguments)) for arguments in inputs]


def make_text_writer(folder: Path) -> tuple[Inputs, list[object]]:
    from service_models.text_writer import TextWriter
    from transformers import GPT2Config

    # A larger range than usual, and an output layer of its own: else it repeats the last byte.
    config = GPT2Config(
        vocab_size=256,
        n_positions=128,
        n_embd=256,
        n_layer=6,
        n_head=8,
        initializer_range=0.1,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = TextWriter(config).eval()
    prompts = ["A service that", "The worker of this call", "Once upon a time"]
    inputs: Inputs = [(torch.tensor(list(prompt.encode())), 24) for prompt in prompts]
    write_package(
        folder / "text_writer.pt", model, intern=["service_models.**"], extern=["transformers.**"]
    )
    return inputs, [list(model(*arguments)) for arguments in inputs]


def plain(value: object) -> object:
    """As JSON, in the form in which `service` answers: a tensor is the list of its numbers."""
    if isinstance(value, torch.Tensor):
        return value.detach().flatten().tolist()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


Maker = Callable[[Path], tuple[Inputs, list[object]]]
MAKERS: dict[str, tuple[list[str], Maker]] = {
    "voice_script": (["silero_vad"], make_voice_script),
    "voice_onnx": (["silero_vad", "onnxruntime"], make_voice_onnx),
    "resnet": (["torchvision"], make_resnet),
    "text_reader": (["rapidocr_onnxruntime", "PIL"], make_text_reader),
    "file_type": (["magika"], make_file_type),
    "crystal_energy": (["chgnet"], make_crystal_energy),
    "text_writer": (["transformers"], make_text_writer),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="created if missing")
    folder: Path = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)  # as in a worker

    all_inputs, expected = {}, {}
    for name, (packages, make) in MAKERS.items():
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        if missing:
            print(f"{name}: left out, because {', '.join(missing)} is not installed")
            continue
        random.seed(0)
        torch.manual_seed(0)
        all_inputs[name], expected[name] = make(folder)
        print(f"{name}: {len(expected[name])} inputs")
    torch.save(all_inputs, folder / "inputs.pt")
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(f"wrote {folder}; now: service {folder}")


if __name__ == "__main__":
    main()
