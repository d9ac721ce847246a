"""Options of a task: what they become, and what is said when they are wrong."""

from datetime import UTC, datetime, timedelta

import pytest

from outlast import BadInput
from outlast.options import fields_of, memory_mb

ID = "01890a5d-ac96-774b-bcce-b302099a8057"


def test_options_become_fields_of_a_new_task() -> None:
    assert fields_of(
        {
            "delay": "10m",
            "priority": "high",
            "unique_key": "ada:example",
            "unique_for": "1h",
            "timeout": timedelta(seconds=2),
            "overdue_after": None,
            "tags": ["b", "a", "b"],
            "after": [ID.upper()],
        }
    ) == {
        "delay_ms": 600_000,
        "priority": 1,
        "unique_key": "ada:example",
        "unique_for_ms": 3_600_000,
        "timeout_ms": 2_000,
        "overdue_after_ms": None,
        "tags": ("b", "a"),
        "after": (ID,),
    }


@pytest.mark.parametrize("moment", [datetime(2027, 1, 1, tzinfo=UTC), "2027-01-01T00:00:00Z"])
def test_a_moment_is_a_datetime_or_iso_text(moment: datetime | str) -> None:
    assert fields_of({"run_at": moment}) == {"run_at": 1_798_761_600_000}


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"priority": 40_000}, "priority", "from 0 (first) to 32767"),
        ({"priority": "urgent"}, "priority", "critical, high, normal, low"),
        ({"priority": True}, "priority", "critical"),
        ({"delay": "soon"}, "delay", "is not a duration"),
        ({"delay": -1}, "delay", "negative"),
        ({"timeout": 0}, "timeout", "above 0"),
        ({"run_at": datetime(2027, 1, 1)}, "run_at", "time zone"),
        ({"run_at": "tomorrow"}, "run_at", "time zone"),
        ({"max_attempts": 0}, "max_attempts", "from 1"),
        ({"max_losses": -1}, "max_losses", "from 0"),
        ({"session_id": "x" * 201}, "session_id", "1 to 200 characters"),
        ({"user_id": ""}, "user_id", "1 to 200 characters"),
        ({"queue": "a\nb"}, "queue", "printable"),
        ({"tags": [str(n) for n in range(51)]}, "tags", "the most is 50"),
        ({"tags": "nightly"}, "tags", "a list of texts"),
        ({"id": "7"}, "id", "is not a task id"),
        ({"after": [3]}, "id", "is not a task id"),
        ({"needs": "luck"}, "needs", "'success' or 'any'"),
        ({"followed": 1}, "followed", "True or False"),
        ({"dealy": 3}, "dealy", "did you mean 'delay'?"),
    ],
)
def test_wrong_options_say_which_and_what_is_right(
    options: dict[str, object], field: str, words: str
) -> None:
    with pytest.raises(BadInput) as caught:
        fields_of(options)
    assert words in str(caught.value)
    assert caught.value.field == field


def test_memory_is_in_megabytes() -> None:
    assert [memory_mb("512MB"), memory_mb("2 GB"), memory_mb(64)] == [512, 2048, 64]
    with pytest.raises(BadInput, match="'512MB'"):
        memory_mb("much")
