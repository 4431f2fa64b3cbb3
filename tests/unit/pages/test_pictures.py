"""docs/pictures: each picture is whole, brings all that it needs, and is shown by a page."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[3]
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/XML/1998/namespace"}


def test_there_are_the_pictures_that_the_pages_speak_of() -> None:
    assert [picture.stem for picture in PICTURES] == ["architecture", "demo", "handoff", "top"]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_a_picture_is_well_formed_has_its_text_as_text_and_names_nothing_outside_of_it(picture: Path) -> None:
    root = ET.parse(picture).getroot()  # noqa: S314 -- a file of this repository
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len([element for element in root.iter("{http://www.w3.org/2000/svg}text") if element.text]) > 10
    text = picture.read_text(encoding="utf-8")
    assert set(re.findall(r"[a-z]+://[^\s\"'<)]+", text)) <= NAMESPACES
    assert [one for one in re.findall(r"url\(([^)]*)\)", text) if not one.startswith("#")] == []
    assert not re.search(r"@font-face|@import|<image|<script|<foreignObject|href=", text)
    assert not re.search(r"/(home|root|tmp|work|Users|var|opt|usr)/", text)


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_a_picture_is_shown_by_a_page(picture: Path) -> None:
    shown = {
        (page.parent / source).resolve()
        for page in (ROOT / "docs").glob("*.md")
        for source in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    }
    assert picture in shown
