"""The notebooks, run from top to bottom as a user runs them, and what is checked in of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from devtools.broker import Cluster, watch
from notebooks.execute import source_hash
from tests.support.processes import CAN_LOOK, all_have_ended

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
NAMES = ("quickstart", "exactly_once", "delta_pipeline")
DELTA_PYTHON = ROOT / ".venv-delta" / "bin" / "python"
LIMIT_S = 900

# Where they ran, and when; ids that somebody could take for secrets are among them.
OF_ONE_MACHINE = re.compile(
    r"(?<![\w.])/(tmp|home|root|Users|var|opt|usr|mnt)\b|\d+\.\d+\.\d+\.\d+:\d+|20\d\d-\d\d-\d\d|[0-9a-f]{8}-[0-9a-f]{4}"
)


def read(name: str) -> NotebookNode:
    notebook: NotebookNode = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    return notebook


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(notebook: NotebookNode) -> list[list[str]]:
    """What each code cell has put out: the name of the stream, or the forms of a result."""
    return [
        [output.get("name") or " ".join(sorted(output.get("data", ["error"]))) for output in cell.outputs]
        for cell in code_cells(notebook)
    ]


def execute(python: Path, source: Path, folder: Path, mark: str, bootstrap: str = "") -> tuple[int, str]:
    """Run `notebooks.execute`; its exit status and log. The result and all temporary folders are in `folder`."""
    log = folder / "log"
    command = (str(python), "-m", "notebooks.execute", str(source), str(folder / "result.ipynb"))
    # ipykernel looks at this one, and shows less of what its children print.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    with log.open("wb") as output:
        watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", watch.__file__, str(os.getpid()), "-", *command],
            cwd=ROOT,
            env={**inherited, "KAFKA_BOOTSTRAP": bootstrap, "NOTEBOOK_MARK": mark, "TMPDIR": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
        )
    with watcher:
        status = watcher.wait(LIMIT_S)
    return status, log.read_text()


def runs_as_checked_in(name: str, python: Path, folder: Path, bootstrap: str = "") -> None:
    """Run it: no cell fails, each puts out what the checked-in one has, and nothing is left behind."""
    mark = str(uuid.uuid4())
    status, log = execute(python, NOTEBOOKS / f"{name}.ipynb", folder, mark, bootstrap)
    assert status == 0, log
    assert kinds(nbformat.read(folder / "result.ipynb", as_version=4)) == kinds(read(name))
    if CAN_LOOK:
        all_have_ended(mark)
    assert sorted(left.name for left in folder.iterdir()) == ["log", "result.ipynb"]


@pytest.mark.notebooks
def test_the_quickstart_runs_from_top_to_bottom_with_a_broker_of_its_own(tmp_path: Path) -> None:
    runs_as_checked_in("quickstart", Path(sys.executable), tmp_path)


@pytest.mark.notebooks
def test_the_copy_that_is_killed_half_way_runs_from_top_to_bottom(cluster: Cluster, tmp_path: Path) -> None:
    runs_as_checked_in("exactly_once", Path(sys.executable), tmp_path, cluster.bootstrap_servers)


@pytest.mark.notebooks
def test_the_delta_pipeline_runs_from_top_to_bottom_on_the_spark_of_delta(cluster: Cluster, tmp_path: Path) -> None:
    assert DELTA_PYTHON.exists(), f"{DELTA_PYTHON} is missing: `make test-notebooks` installs it"
    runs_as_checked_in("delta_pipeline", DELTA_PYTHON, tmp_path, cluster.bootstrap_servers)


@pytest.mark.notebooks
@pytest.mark.skipif(not CAN_LOOK, reason="looks for processes in /proc")
def test_nothing_outlives_a_kernel_that_is_killed(tmp_path: Path) -> None:
    notebook = read("quickstart")
    *_, started = (number for number, cell in enumerate(notebook.cells) if 'start("A")' in cell.source)
    mark = str(uuid.uuid4())
    there = tmp_path / "there"
    look = f"import os, signal\nopen({str(there)!r}, 'w').close()\nos.kill(os.getpid(), signal.SIGKILL)"
    notebook.cells = [*notebook.cells[: started + 1], new_code_cell(look)]
    nbformat.write(notebook, tmp_path / "cut.ipynb")
    _, log = execute(Path(sys.executable), tmp_path / "cut.ipynb", tmp_path, mark)
    assert there.exists(), log
    assert "DeadKernelError" in log
    all_have_ended(mark)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_that_are_checked_in_are_those_of_the_source(name: str) -> None:
    notebook = read(name)
    assert notebook.metadata.executed_source == source_hash(notebook), "the source has changed since: `make notebooks`"
    assert [cell.execution_count for cell in code_cells(notebook)] == list(range(1, len(code_cells(notebook)) + 1))


@pytest.mark.parametrize("name", NAMES)
def test_outputs_that_are_checked_in_show_no_error_no_warning_and_no_machine(name: str) -> None:
    notebook = read(name)
    assert {kind for cell in kinds(notebook) for kind in cell} <= {"stdout", "image/png text/plain", "text/html text/plain"}
    for cell in code_cells(notebook):
        for output in cell.outputs:
            texts = (
                [output.text] if "text" in output else [text for kind, text in output.data.items() if kind.startswith("text/")]
            )
            for text in texts:
                assert OF_ONE_MACHINE.search(text) is None, text


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    text = "\n".join(cell.source for cell in read(name).cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\(([^)#]+)", text)
    assert links
    for link in links:
        assert (NOTEBOOKS / link).exists(), link
