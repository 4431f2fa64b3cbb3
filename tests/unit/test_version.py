"""What is said of something that another version has stored."""

from __future__ import annotations

from spark_groupsource.version import another_version


def test_what_another_version_stored_is_said_with_both_formats_and_what_to_do() -> None:
    assert another_version("The checkpoint", 5, 4) == (
        "The checkpoint cannot be read: another version of spark_groupsource wrote it in format 5, but this version reads "
        "format 4. "
        "Nothing was changed. Use the version that wrote it."
    )
