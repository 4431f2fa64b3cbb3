"""Loads two libraries with ctypes: the librdkafka in confluent-kafka, and this package's own library, which calls it.

Both are checked first. librdkafka must be the copy that confluent-kafka uses, have a version with a known API, and have all
functions that this package calls. Our own C code must have been compiled for this version of the package.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import confluent_kafka
import confluent_kafka.cimpl

from spark_groupsource.install import SOURCE, WHERE
from spark_groupsource.native.functions import KAFKA_FUNCTIONS, OUR_FUNCTIONS, Signatures
from spark_groupsource.native.structs import FunctionsStruct, IntakeStruct, OutletStruct, ProducerFunctionsStruct, RowsStruct

_OLDEST = 0x02100000
_BELOW = 0x03000000
"""The supported librdkafka versions. Within a major version, public structs and functions keep their ABI. From at least 2.2 to
2.11, a consumer's position moves too far at the end of a partition (librdkafka #4844), which would lose a record."""

_OUR_ABI = 9
"""`GS_ABI` in _native.h."""

_OUR_FILE = Path(__file__).with_name("_native.so")
"""Our compiled C code. setup.py gives the file this name in a source tree and in every wheel."""

_KAFKA_PREFIX = "rd_kafka_"
_OUR_PREFIX = "gs_"

Struct = TypeVar("Struct", bound=ctypes.Structure)

_INSTALL = (
    "install the spark-groupsource wheel for this platform, or run pip install --force-reinstall --no-cache-dir --no-deps "
    f"{SOURCE}{WHERE}, with a C compiler"
)
_INSTALL_CONFLUENT = "install the binary wheel for confluent-kafka 2.16 or a later 2.x"


class NativeUnavailable(Exception):
    """This process cannot use the native reader. The message is the reason, as a clause.

    Args:
        reason: The reason.
        advice: What to install to get the native reader, as a clause.
    """

    def __init__(self, reason: str, advice: str = _INSTALL) -> None:
        super().__init__(reason)
        self.advice = advice


@dataclass(frozen=True)
class Libraries:
    """Both libraries' functions: `kafka.assign` is `rd_kafka_assign`, and `ours.take` is `gs_take`. Calls release the GIL."""

    kafka: Any
    ours: Any
    functions: FunctionsStruct
    producer_functions: ProducerFunctionsStruct
    key_sizes: bool
    """Whether `ours.key_size` finds the size of a header key in this librdkafka version."""


class _Functions:
    """A library's functions as attributes, named without the library's prefix."""

    def __init__(self, library: ctypes.CDLL, prefix: str, api: Signatures) -> None:
        for name, (result, arguments) in api.items():
            try:
                function = getattr(library, prefix + name)
            except AttributeError:
                advice = _INSTALL if prefix == _OUR_PREFIX else _INSTALL_CONFLUENT
                raise NativeUnavailable(f"there is no {prefix}{name} in {library._name}", advice) from None
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)


@functools.cache
def why_unavailable() -> NativeUnavailable | None:
    """Return why this process cannot use the native reader, or None if it can."""
    try:
        load_libraries()
    except NativeUnavailable as unavailable:
        return unavailable.with_traceback(None)
    return None


@functools.cache
def load_libraries() -> Libraries:
    """Load and check both libraries, once per process.

    Raises:
        NativeUnavailable: The libraries cannot be used.
    """
    # 1. Check the version and the struct sizes of our own library, because it would write past the end of a smaller struct.
    ours: Any = _Functions(_load(_our_file(), _INSTALL), _OUR_PREFIX, OUR_FUNCTIONS)
    sizes = (ours.size_of_intake(), ours.size_of_outlet(), ours.size_of_rows())
    if ours.abi() != _OUR_ABI or sizes != tuple(map(ctypes.sizeof, (IntakeStruct, OutletStruct, RowsStruct))):
        raise NativeUnavailable("its C code was compiled for another version of this package")
    # 2. Check confluent-kafka's librdkafka. Its cimpl module is linked to the bundled copy, so the symbols are found through it.
    #    Compare the versions, because two copies in one process would each have their own threads and struct versions.
    kafka: Any = _Functions(_load(confluent_kafka.cimpl.__file__, _INSTALL_CONFLUENT), _KAFKA_PREFIX, KAFKA_FUNCTIONS)
    version, theirs = kafka.version(), confluent_kafka.libversion()[1]
    if version != theirs or not _OLDEST <= version < _BELOW:
        raise NativeUnavailable(
            f"librdkafka is version 0x{version:08x}, and confluent-kafka uses 0x{theirs:08x}, but the two must be the same, at "
            f"least 0x{_OLDEST:08x} and below 0x{_BELOW:08x}",
            _INSTALL_CONFLUENT,
        )
    # 3. Give our library the addresses of the functions that it calls, because it is not linked to librdkafka.
    functions, producer_functions = _pointers(kafka, FunctionsStruct), _pointers(kafka, ProducerFunctionsStruct)
    return Libraries(kafka, ours, functions, producer_functions, _finds_key_sizes(kafka, ours))


_TRIED_KEYS = (b"", b"\0", b"a\0b", b"k" * 300)
_TRIED_VALUES = (None, b"", b"v\0v")


def _finds_key_sizes(kafka: Any, ours: Any) -> bool:
    """Return whether this librdkafka stores the size of a header key where `gs_key_size` reads it."""
    tried = [(key, value) for key in _TRIED_KEYS for value in _TRIED_VALUES]
    headers = kafka.headers_new(len(tried))
    try:
        found = []
        for at, (key, value) in enumerate(tried):
            kafka.header_add(headers, key, len(key), value, len(value or b""))
            name, content, size = c_void_p(), c_void_p(), c_size_t()
            kafka.header_get_all(headers, at, ctypes.byref(name), ctypes.byref(content), ctypes.byref(size))
            found.append(ours.key_size(name))
        return found == [len(key) for key, _ in tried]
    finally:
        kafka.headers_destroy(headers)


def _pointers(kafka: Any, struct: type[Struct]) -> Struct:
    return struct(**{name: ctypes.cast(getattr(kafka, name), c_void_p) for name, *_ in struct._fields_})


def _our_file() -> str:
    if _OUR_FILE.exists():
        return str(_OUR_FILE)
    raise NativeUnavailable(
        f"its C code has not been compiled in {Path(__file__).parents[1]}, because this is a copy of the sources or the wheel "
        "for any platform, or because there was no C compiler when the package was installed"
    )


def _load(file: str, advice: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(file)
    except OSError as error:
        raise NativeUnavailable(f"{Path(file).name} cannot be loaded: {error}", advice) from None
