"""The contract of readers: what `fetch` says, tested with a real broker for every reader."""
