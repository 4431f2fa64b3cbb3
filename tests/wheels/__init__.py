"""The wheels in dist/, which `make release` has built, are installed and run."""
