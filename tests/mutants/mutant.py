"""What a mutant is, and how a copy of Outlast comes to have it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final, NamedTuple

PACKAGE: Final = Path(__file__).parents[2] / "src" / "outlast"


class Mutant(NamedTuple):
    """One text of one file replaced by another."""

    name: str
    """What is wrong now, as a sentence."""
    file: str
    """Below `outlast/engines`: `redis/exchange.lua`."""
    old: str
    """Stands there exactly once."""
    new: str
    caught_by: str = ""
    """The conformance test that must fail, where a random walk does not get to."""


def replaced(mutant: Mutant) -> str:
    """The changed text of its file."""
    text = (PACKAGE / "engines" / mutant.file).read_text()
    if text.count(mutant.old) != 1:
        raise LookupError(
            f"{mutant.name}: engines/{mutant.file} has {mutant.old!r} {text.count(mutant.old)} "
            "times, and not once; mend the mutant."
        )
    return text.replace(mutant.old, mutant.new)


def copied(mutant: Mutant, folder: Path) -> dict[str, str]:
    """Copy Outlast into the folder with the mutant in it; the environment to run the copy with."""
    text = replaced(mutant)
    # With the compiled files, which keep their times: the copy starts as fast as the original.
    shutil.copytree(PACKAGE, folder / "outlast")
    file = folder / "outlast" / "engines" / mutant.file
    file.write_text(text)
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        compiled.unlink()
    return os.environ | {"PYTHONPATH": str(folder)}
