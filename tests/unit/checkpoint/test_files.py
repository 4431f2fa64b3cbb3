"""The files of a checkpoint: which of them count, and where they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyarrow import fs

from spark_groupsource.checkpoint.files import CheckpointFiles
from spark_groupsource.errors import CheckpointUnreadable

QUERY = "5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5"


@pytest.mark.parametrize("form", ["{}", "{}/", "file:{}", "file://{}"])
def test_the_micro_batches_of_a_log_are_found_among_other_files(tmp_path: Path, form: str) -> None:
    files = CheckpointFiles(form.format(tmp_path))
    assert files.batches("offsets") == {}
    assert files.is_empty("offsets")
    (tmp_path / "offsets").mkdir()
    for name in ("9", "10", ".10.crc", ".11.tmp", "12.tmp", "x13", "²", "9" * 20):
        (tmp_path / "offsets" / name).write_text("v1")
    assert files.batches("offsets").keys() == {9, 10}
    assert not files.is_empty("offsets")
    assert files.read("offsets/9") == "v1"
    assert files.exists("offsets/9")
    assert not files.exists("offsets/11")
    assert not files.exists("offsets")


@pytest.mark.parametrize(
    ("metadata", "query"),
    [
        (f'{{"id":"{QUERY}"}}', QUERY),
        ('{"id":"\\u001b"}', None),
        ('{"id":"../etc"}', None),
        ('{"id":7}', None),
        ("[]", None),
        ("no JSON", None),
        (None, None),
    ],
)
def test_the_querys_id_if_there_is_one(tmp_path: Path, metadata: str | None, query: str | None) -> None:
    if metadata is not None:
        (tmp_path / "metadata").write_text(metadata)
    assert CheckpointFiles(f"file:{tmp_path}").query_id() == query


def test_what_is_not_text_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_bytes(b"\xff\xfe")
    for name in ("metadata", "offsets/9"):
        with pytest.raises(CheckpointUnreadable, match="cannot be read"):
            CheckpointFiles(str(tmp_path)).read(name)


@pytest.mark.parametrize("location", ["nowhere://host/path", "s3://user:pass@/"])
def test_a_location_that_no_file_system_has_is_named_without_its_password(location: str) -> None:
    with pytest.raises(CheckpointUnreadable, match="cannot be read") as raised:
        CheckpointFiles(location)
    assert "pass@" not in str(raised.value)


@pytest.mark.parametrize(
    ("location", "uri"),
    [
        ("s3a://bucket/a", "s3://bucket/a"),
        ("s3n://bucket/a", "s3://bucket/a"),
        ("s3://bucket/a", "s3://bucket/a"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("file:/data/a", "file:///data/a"),
        ("file:///data/a", "file:///data/a"),
        ("hdfs://host:8020/a", "hdfs://host:8020/a"),
        ("ViewFS://cluster/a", "ViewFS://cluster/a"),
    ],
)
def test_hadoops_names_of_file_systems_are_those_of_pyarrow(location: str, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def from_uri(uri: str) -> tuple[fs.FileSystem, str]:
        asked.append(uri)
        return fs.LocalFileSystem(), "/a/"

    monkeypatch.setattr("spark_groupsource.checkpoint.files.fs.FileSystem", type("FileSystem", (), {"from_uri": from_uri}))
    monkeypatch.setenv("LIBHDFS_OPTS", "")
    CheckpointFiles(location)
    assert asked == [uri]


@pytest.mark.parametrize("location", ["hdfs://127.0.0.1:1/a", "viewfs://cluster/a"])
def test_the_jvm_of_libhdfs_leaves_the_signals_alone(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts in this process, and would replace the handler that leaves the group."""
    monkeypatch.setenv("LIBHDFS_OPTS", "-Xmx64m")
    for _ in range(2):
        with pytest.raises(CheckpointUnreadable):
            CheckpointFiles(location)
    assert os.environ["LIBHDFS_OPTS"] == "-Xmx64m -Xrs"
