"""What type checkers make of user code."""

from pathlib import Path

from mypy import api

USER_CODE = Path(__file__).parent.parent / "typing" / "api.py"


def test_mypy_accepts_and_rejects_what_it_should() -> None:
    out, err, code = api.run(["--strict", str(USER_CODE)])
    assert code == 0, out + err
