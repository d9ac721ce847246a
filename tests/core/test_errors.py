"""Exceptions: one base, stable codes, messages that teach."""

import inspect

import pytest

from outlast.core import errors
from outlast.core.errors import (
    BadInput,
    OutlastError,
    Permanent,
    TaskCancelled,
    TaskDead,
    Transient,
    UnknownType,
    WaitTimeout,
    suggest,
)

CLASSES = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, BaseException)
]


def test_every_exception_has_the_one_base():
    assert len(CLASSES) == 19
    assert all(issubclass(each, OutlastError) for each in CLASSES)


def test_codes_are_snake_case_and_distinct():
    codes = [each.code for each in CLASSES]
    assert len(set(codes)) == len(codes)
    assert all(code.replace("_", "").isalpha() and code.islower() for code in codes)


def test_bad_input_names_the_field():
    assert BadInput("no").field is None
    assert BadInput("no", field="priority").field == "priority"


def test_an_unknown_type_suggests_the_near_one_and_says_what_to_do():
    message = str(UnknownType("summarise", ["summarize", "translate"]))
    assert "did you mean 'summarize'?" in message
    assert "@app.task" in message
    assert "did you mean" not in str(UnknownType("zzz", ["summarize"]))
    assert suggest("zzz", []) == ""


def test_a_dead_task_says_why():
    error = TaskDead("t-1", "attempts", {"type": "ReadTimeout", "message": "too slow"})
    assert str(error) == "Task t-1 died (attempts): ReadTimeout: too slow"
    assert (error.task_id, error.reason) == ("t-1", "attempts")
    assert str(TaskDead("t-1")) == "Task t-1 died (no reason recorded)"


def test_a_cancelled_task_says_why():
    assert str(TaskCancelled("t-1", "changed my mind")) == (
        "Task t-1 was cancelled: changed my mind"
    )
    assert str(TaskCancelled("t-1")) == "Task t-1 was cancelled"


def test_the_end_of_a_wait_is_a_timeout_to_everyone():
    with pytest.raises(TimeoutError):
        raise WaitTimeout("still running")


def test_what_handlers_raise_carries_what_they_know():
    assert Permanent("no", details={"a": 1}).details == {"a": 1}
    error = Transient("later", after="2m", status=503, details={"a": 1})
    assert (error.after_ms, error.status, error.details) == (120_000, 503, {"a": 1})
    assert Transient("later").after_ms is None


def test_a_wrong_duration_is_told_to_who_raised_it():
    with pytest.raises(BadInput, match="is not a duration"):
        Transient("later", after="soon")
