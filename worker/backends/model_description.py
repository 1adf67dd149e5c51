# SPDX-License-Identifier: BSD-3-Clause
"""What a loaded model takes and returns, as far as its format states it.

A value is [name, type, shape]: the type is the name of a tensor's dtype ("float32"), or what the model's code or
schema calls it ("Tensor", "int"), or "" if nothing states it; the shape has -1 for a size that may vary, and is
None if nothing states it.
"""

import inspect
import json
import weakref

import torch

_Value = tuple[str, str, list[int] | None]

# Of models whose object does not say it, noted by their backends.
_noted: weakref.WeakKeyDictionary[object, dict[str, list[_Value]]] = weakref.WeakKeyDictionary()


def note(model: object, inputs: list[_Value], outputs: list[_Value]) -> None:
    _noted[model] = {"inputs": inputs, "outputs": outputs}


def of_tensor(name: str, tensor: object) -> _Value:
    """`tensor` may be a fake tensor; any other value has its type only."""
    if not isinstance(tensor, torch.Tensor):
        return name, type(tensor).__name__, None
    shape = [size if isinstance(size, int) else -1 for size in tensor.shape]
    return name, str(tensor.dtype).removeprefix("torch."), shape


def describe(model: object) -> str:
    """JSON with the lists "inputs" and "outputs", each null if nothing is known of it."""
    stated = getattr(model, "isopool_values", None)
    if callable(stated):
        found = stated()
    elif isinstance(model, torch.jit.ScriptModule):
        found = _of_schema(model.forward.schema)
    else:
        found = _noted.get(model) if _can_be_key(model) else None
    return json.dumps(found or {"inputs": _of_signature(model), "outputs": None})


def _can_be_key(model: object) -> bool:
    try:
        weakref.ref(model)
        hash(model)
    except TypeError:
        return False
    return True


def _of_schema(schema) -> dict[str, list[_Value]]:  # type: ignore[no-untyped-def]
    # The first argument is the module.
    return {
        "inputs": [(each.name, str(each.type), None) for each in schema.arguments[1:]],
        "outputs": [(each.name, str(each.type), None) for each in schema.returns],
    }


def _of_signature(model: object) -> list[_Value] | None:
    try:
        parameters = inspect.signature(getattr(model, "forward", model)).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    # Nothing is known of what *args and **kwargs take.
    named = (each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD))
    return [(each.name, _annotation(each), None) for each in named]


def _annotation(parameter: inspect.Parameter) -> str:
    if parameter.annotation is parameter.empty:
        return ""
    kind = parameter.annotation
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
