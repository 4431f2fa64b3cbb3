"""The version of this package, in the one place it is written, and what is said of what another version has stored."""

__version__ = "0.1.0"


def another_version(what: str, found: int, reads: int) -> str:
    """Return the error for something stored that is in format `found`, while this version reads format `reads`."""
    return (
        f"{what} cannot be read: another version of spark_groupsource wrote format {found} there, and this one reads format "
        f"{reads}. Nothing was changed. Run that version."
    )
