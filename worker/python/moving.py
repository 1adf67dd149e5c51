# SPDX-License-Identifier: BSD-3-Clause
"""Objects that move to other workers. An object is pickled without the storages of its tensors,
which are put into memory that all workers share.

The memory of a moved object has its storages, each at a multiple of ALIGNMENT, and then its pickle.
"""

import gc
import io
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from types import FunctionType

import _isopool
import torch
from torch.package import PackageImporter, sys_importer
from torch.storage import TypedStorage, UntypedStorage

ALIGNMENT = 64
# Kinds of persistent ids in the pickle: references to storages and to code of a package.
_STORAGE = "storage"
_PACKAGED = "packaged"

Importers = Mapping[int, PackageImporter]  # by the package's number
SharedRange = tuple[int, int, int]  # memory of an object that was moved before: package, begin, end


class Move:
    """The state of a move: the object's pickle, and the storages that its memory is to hold."""

    def __init__(
        self, obj: object, importers: Importers, shared: Sequence[SharedRange], model: str
    ) -> None:
        self._name = model or _name_of(obj)
        _isopool.make_model(self._name)
        self._importers = {
            importer._mangler.parent_name(): (number, importer)
            for number, importer in importers.items()
        }
        self._shared = shared
        self._places: dict[int, tuple[UntypedStorage, int]] = {}  # by the storage's identity
        self._end = 0
        self.packages: set[int] = set()
        self.pickle = _Pickler.dump_of(obj, self)

    @property
    def pickle_offset(self) -> int:
        return _aligned(self._end)

    def summary(self) -> tuple[int, int, int, tuple[int, ...], str]:
        """Bytes of memory needed, offset and length of the pickle there, packages referred to, name."""
        size = len(self.pickle)
        packages = tuple(sorted(self.packages))
        return self.pickle_offset + size, self.pickle_offset, size, packages, self._name

    def place(self, storage: UntypedStorage) -> tuple[int, int, int]:
        """Package (0: the object's own memory), offset and length of a storage."""
        if storage.device.type != "cpu":
            raise pickle.PicklingError(
                f"a tensor on {storage.device} can't be moved between workers: call .cpu() on it first"
            )
        address, size = storage.data_ptr(), storage.nbytes()
        for package, begin, end in self._shared:
            if size > 0 and begin <= address and address + size <= end:
                self.packages.add(package)
                return package, address - begin, size
        known = self._places.get(storage._cdata)
        if known is None:
            known = storage, _aligned(self._end)
            self._places[storage._cdata] = known
            self._end = known[1] + size
        return 0, known[1], size

    def global_of_package(self, obj: object) -> tuple[int, str, str] | None:
        """Package, module and name of a class or function that a package defines."""
        mangled = getattr(obj, "__module__", None)
        if not isinstance(mangled, str) or not mangled.startswith("<torch_package_"):
            return None
        parent, _, module = mangled.partition(".")
        number, importer = self._importers.get(parent, (0, None))
        name = obj.__qualname__  # type: ignore[attr-defined]
        if importer is None:
            raise pickle.PicklingError(f"{module}.{name} belongs to a package that is not loaded")
        try:
            found = _named(importer.import_module(module), name)
        except AttributeError:
            found = None
        if found is not obj:
            raise pickle.PicklingError(
                f"{module}.{name} can't be moved: it is not found under that name in its package"
            )
        self.packages.add(number)
        return number, module, name

    def fill(self, memory: object) -> None:
        """Writes pickle and storages into the memory, and moves the source's tensors there, too.

        A storage to which other objects than tensors refer (a numpy array, a DLPack consumer) stays
        where it is: those objects would be left with a dangling pointer.
        """
        _isopool.write_package(memory, self.pickle_offset, self.pickle)
        tensors, shared = _tensors_by_storage()
        for storage, offset in self._places.values():
            if storage.nbytes() == 0:
                continue
            # One reference per tensor and one for `storage`. After numpy() it is not resizable.
            only_tensors = (
                torch._C._storage_Use_Count(storage._cdata) == 1 + tensors[storage._cdata]
                and storage._cdata not in shared
                and storage.resizable()
            )
            _isopool.move_storage(storage, memory, offset, only_tensors)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, move: Move) -> None:
        super().__init__(file, protocol=4)
        self._move = move

    @classmethod
    def dump_of(cls, obj: object, move: Move) -> bytes:
        file = io.BytesIO()
        cls(file, move).dump(obj)
        return file.getvalue()

    def persistent_id(self, obj: object) -> tuple[object, ...] | None:
        if isinstance(obj, TypedStorage):
            return (_STORAGE, *self._move.place(obj._untyped_storage), obj.dtype)
        if isinstance(obj, UntypedStorage):
            return (_STORAGE, *self._move.place(obj), None)
        if isinstance(obj, type | FunctionType):
            packaged = self._move.global_of_package(obj)
            if packaged is not None:
                return (_PACKAGED, *packaged)
        return None

    def reducer_override(self, obj: object):  # type: ignore[no-untyped-def]
        # torch::deploy's own hook for objects that need more than pickle.
        reduce = getattr(type(obj), "__reduce_deploy__", None)
        return NotImplemented if reduce is None else reduce(obj, sys_importer)


class _Unpickler(pickle.Unpickler):
    def __init__(
        self,
        file: io.BytesIO,
        memories: Mapping[int, object],
        importers: Importers,
    ) -> None:
        super().__init__(file)
        self._memories = memories
        self._importers = importers
        self._storages: dict[tuple[int, int, int], UntypedStorage] = {}

    def persistent_load(self, pid: tuple) -> object:  # type: ignore[type-arg]
        if pid[0] == _PACKAGED:
            _, package, module, name = pid
            return _named(self._importers[package].import_module(module), name)
        _, package, offset, size, dtype = pid
        storage = self._storage((package, offset, size))
        if dtype is None:
            return storage
        return TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)

    def _storage(self, place: tuple[int, int, int]) -> UntypedStorage:
        # Tensors that shared a storage also share one here.
        if place not in self._storages:
            package, offset, size = place
            self._storages[place] = (
                _isopool.package_tensor(
                    self._memories[package], offset, size, torch.uint8
                ).untyped_storage()
                if size > 0
                else UntypedStorage(0)
            )
        return self._storages[place]


def receive(
    data: bytes, own: object, memories: Mapping[int, object], importers: Importers
) -> object:
    """Unpickles a moved object over its own memory and that of other moved objects."""
    return _Unpickler(io.BytesIO(data), {**memories, 0: own}, importers).load()


def _name_of(obj: object) -> str:
    """The object's name for logs: that which it has for them, else that of its type."""
    state = getattr(obj, "__dict__", None)
    given = state.get("isopool_model_name") if type(state) is dict else None
    if type(given) is str:
        return given
    kind = obj if isinstance(obj, type | FunctionType) else type(obj)
    module, name = getattr(kind, "__module__", None), getattr(kind, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return ""
    if module.startswith("<torch_package_"):
        module = module.partition(".")[2]
    return f"{module}:{name}".encode("utf-8", "backslashreplace").decode()


def _tensors_by_storage() -> tuple[Counter[int], set[int]]:
    """Counts the tensors of this worker that refer to each storage. Also returns the storages of
    tensors to which more than Python and their views refer: a DLPack capsule, or autograd.
    """
    tensors = {id(obj): obj for obj in gc.get_objects() if issubclass(type(obj), torch.Tensor)}
    views: Counter[int] = Counter()
    for tensor in list(tensors.values()):
        if tensor._is_view():
            base = tensor._base
            tensors[id(base)] = base
            views[id(base)] += 1
    counts: Counter[int] = Counter()
    shared = set()
    for tensor in tensors.values():
        try:
            storage = tensor.untyped_storage()._cdata
        except (RuntimeError, NotImplementedError):
            continue  # a tensor without a storage: sparse, meta, a wrapper
        counts[storage] += 1
        if tensor._use_count() > 1 + views[id(tensor)]:
            shared.add(storage)
    return counts, shared


def _named(module: object, qualified_name: str) -> object:
    for name in qualified_name.split("."):
        module = getattr(module, name)
    return module


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
