"""No text of the repository has a word of words.txt, which lists the better ones."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIST = (Path(__file__).parent / "words.txt").read_text(encoding="utf-8")
EVERYWHERE, FOR_USERS = (re.findall("^(.+) -> (.+)$", part, re.MULTILINE) for part in LIST.split("[pages for users]"))
FOR_DEVELOPERS = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "design.md", *(ROOT / "spark_groupsource").rglob("*.py")]


def test_no_text_has_a_word_for_which_there_is_a_better_one() -> None:
    found = []
    for path in {ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *FOR_DEVELOPERS}:
        text = path.read_text(encoding="utf-8")
        for word, better in EVERYWHERE if path in FOR_DEVELOPERS else EVERYWHERE + FOR_USERS:
            # Between two words may be the end of a line, with the beginning of the next comment or the quotes of the next text.
            for hit in re.finditer(word.replace(" ", r'[\s#"]+'), text, re.IGNORECASE):
                line = text.count("\n", 0, hit.start()) + 1
                found.append(f"{path.relative_to(ROOT)}:{line}: {hit[0]!r}: write {better}")
    assert not found, "\n".join(sorted(found))
