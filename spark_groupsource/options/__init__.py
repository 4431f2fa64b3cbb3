"""The options of the source: what each may be, and how they are read together."""
