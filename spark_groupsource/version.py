"""Defines this package's version, and the error message for data that another version has stored."""

__version__ = "0.1.0"


def another_version(what: str, found: int, reads: int) -> str:
    """Return the error message for data stored in format `found` when this version reads only format `reads`."""
    return (
        f"{what} cannot be read: another version of spark_groupsource wrote it in format {found}, but this version reads format "
        f"{reads}. Nothing was changed. Use the version that wrote it."
    )
