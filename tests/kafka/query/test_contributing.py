"""The program of CONTRIBUTING.md that steps a cycle without Spark prints what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from devtools.broker import Cluster
from tests.support.page_programs import ROOT, program


def test_the_program_reads_two_micro_batches_and_prints_their_ranges(cluster: Cluster, tmp_path: Path) -> None:
    ours = {"localhost:9092": cluster.bootstrap_servers, '"orders"': '"orders-of-contributing"', '"billing"': '"contributing"'}
    file = tmp_path / "step.py"
    file.write_text(program("CONTRIBUTING.md", "step.py", ours), encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    promised = re.search(r"it prints `([^`]+)` and `([^`]+)`", page)
    assert promised is not None
    assert [line.replace("orders-of-contributing", "orders") for line in done.stdout.splitlines()] == list(promised.groups())
