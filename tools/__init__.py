"""Programs that the Makefile runs: they write pages, draw pictures, build releases, and run tests in other environments."""
