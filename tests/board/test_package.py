"""What is built: small enough, and in the wheel."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

import pytest

from outlast.http.pages import BOARD

ROOT: Final = Path(__file__).resolve().parents[2]
FIRST_LOAD: Final = 180 * 1024
STYLES: Final = 20 * 1024


@pytest.mark.parametrize("page", ["index.html", "ask.html"])
def test_the_first_load_is_small(page: str) -> None:
    """Everything that the page names, packed as it goes over the wire."""
    html = (BOARD / page).read_text()
    named = [BOARD / path for path in re.findall(r'(?:src|href)="\./(assets/[^"]+)"', html)]
    assert named
    sizes = {file.name: len(gzip.compress(file.read_bytes())) for file in named}
    styles = sum(size for name, size in sizes.items() if name.endswith(".css"))
    assert sum(sizes.values()) + len(gzip.compress(html.encode())) <= FIRST_LOAD, sizes
    assert styles <= STYLES, sizes


def test_pages_have_nothing_inline_and_name_nothing_elsewhere() -> None:
    for page in BOARD.glob("*.html"):
        html = page.read_text()
        assert not re.search(r"<style|<script(?![^>]*src=)|\son\w+=|\sstyle=", html), page
        for address in re.findall(r'(?:src|href)="([^"]+)"', html):
            assert address.startswith("./"), (page, address)


def test_the_wheel_has_the_dashboard(tmp_path: Path) -> None:
    """Who installs it needs no Node."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    there = set(zipfile.ZipFile(wheel).namelist())
    built = {str(file.relative_to(ROOT / "src")) for file in BOARD.rglob("*") if file.is_file()}
    assert built and built <= there
    assert "outlast/http/static/unbuilt.html" in there
