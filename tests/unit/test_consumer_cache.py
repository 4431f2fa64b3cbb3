"""What a Python worker does with memory when one query comes after the other."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Memory like that of records, all of it free but for what lies at its end, which keeps malloc from returning it by itself.
FREE_MEMORY_AND_A_CONSUMER = """
import ctypes, os
from spark_groupsource.fetch.consumer_cache import borrowed

class Consumer:
    pid = os.getpid()

    def __init__(self, client):
        self.errors = {}

    def unassign(self):
        pass

    close = unassign

def show_resident():
    with open("/proc/self/statm") as file:
        print(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
records = [libc.malloc(1000) for _ in range(100_000)]
for record in records:
    ctypes.memset(record, 1, 1000)
for record in records[:-1]:
    libc.free(record)
show_resident()
with borrowed(Consumer, {"group.id": "next"}):
    show_resident()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")
def test_what_the_query_before_has_left_is_given_back_before_the_next() -> None:
    shown = subprocess.run([sys.executable, "-c", FREE_MEMORY_AND_A_CONSUMER], capture_output=True, text=True, check=True).stdout
    before, after = map(int, shown.split())
    assert after < before - 80_000_000
