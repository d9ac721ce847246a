"""Which Chromium the tests drive: one that is installed. `python -m tests.board.chromium` sees to
it that there is one, where that can be done without asking."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ELSEWHERE: Final = "board.test"
"""A name under which a page takes this machine for another one."""
FLAGS: Final = (
    "--no-sandbox",  # as root it has none
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
    f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1",
)
NEEDED: Final = (
    "The tests of the dashboard need Chromium or Chrome, and none is on the PATH:"
    f" install one of {', '.join(NAMES)}."
)


def find() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def install() -> None:
    """On Debian and its like, as root; elsewhere that is for people to decide."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    sys.stderr.write("Installing chromium for the tests of the dashboard (apt-get)\n")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (("update",), ("install", "-y", "--no-install-recommends", "chromium")):
        subprocess.run(  # noqa: S603
            ["apt-get", "-qq", *arguments],  # noqa: S607
            env=quiet, check=False, stdout=subprocess.DEVNULL,
        )  # fmt: skip


def main() -> int:
    if find() is None:
        install()
    if find() is None:
        sys.stderr.write(NEEDED + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
