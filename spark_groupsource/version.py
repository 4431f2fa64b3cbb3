"""Defines the version of this package, and the error text for data that another version has stored."""

__version__ = "0.1.0"


def another_version(what: str, found: int, reads: int) -> str:
    """Return the error text for stored data in format `found`, while this version reads only format `reads`."""
    return (
        f"{what} cannot be read: another version of spark_groupsource wrote format {found} there, and this one reads format "
        f"{reads}. Nothing was changed. Run that version."
    )
