"""Failures: which errors are worth another attempt, and which speak of the service."""

import json
import socket
import urllib.error
from email.message import Message

import httpx2
import msgspec
import pydantic
import pytest

from outlast.core.errors import (
    BadInput,
    EngineDown,
    NotFound,
    Permanent,
    TaskDead,
    Transient,
    WaitTimeout,
)
from outlast.core.failures import (
    KINDS,
    MAX_RETRY_AFTER_MS,
    Failure,
    classify,
    fingerprint,
    from_wire,
    to_error,
)
from outlast.core.retry import Retry


class Answered(Exception):
    """An HTTP client's error in one of the shapes they come in."""

    def __init__(self, **attributes: object) -> None:
        super().__init__("the server said no")
        self.__dict__.update(attributes)


class Response:
    def __init__(self, status_code: int, headers: dict[str, str] | None = None) -> None:
        self.status_code = status_code
        self.headers = headers or {}


def http_error(status: int, headers: dict[str, str] | None = None) -> httpx2.HTTPStatusError:
    request = httpx2.Request("GET", "https://example.org")
    response = httpx2.Response(status, headers=headers, request=request)
    return httpx2.HTTPStatusError("no", request=request, response=response)


def verdict(failure: Failure) -> tuple[str, str, bool]:
    return failure.code, failure.kind, failure.speaks_of_service


@pytest.mark.parametrize(
    ("status", "code", "kind", "of_service"),
    [
        (400, "bad_request", "permanent", False),
        (401, "unauthorized", "permanent", False),
        (403, "forbidden", "permanent", False),
        (404, "not_found", "permanent", False),
        (408, "timeout", "transient", True),
        (409, "conflict", "transient", False),
        (410, "bad_request", "permanent", False),
        (422, "invalid", "permanent", False),
        (425, "too_early", "transient", False),
        (429, "rate_limit", "transient", True),
        (500, "unavailable", "transient", True),
        (502, "unavailable", "transient", True),
        (503, "unavailable", "transient", True),
        (504, "unavailable", "transient", True),
        (529, "unavailable", "transient", True),
    ],
)
def test_an_http_status_decides(status, code, kind, of_service):
    failure = classify(http_error(status))
    assert verdict(failure) == (code, kind, of_service)
    assert failure.status == status
    assert verdict(from_wire({"status": status})) == (code, kind, of_service)


@pytest.mark.parametrize(
    "error",
    [
        Answered(status_code=429),
        Answered(status=429),
        Answered(code=429),
        Answered(response=Response(429)),
        Transient("no", status=429),
        urllib.error.HTTPError("http://x", 429, "no", Message(), None),
    ],
)
def test_the_status_is_found_wherever_a_client_keeps_it(error):
    assert verdict(classify(error)) == ("rate_limit", "transient", True)


@pytest.mark.parametrize(
    "attributes",
    [{"status_code": 200}, {"status": "429"}, {"code": "rate_limited"}, {"status": True}],
)
def test_what_is_no_error_status_is_not_taken_for_one(attributes):
    assert verdict(classify(Answered(**attributes))) == ("unknown", "transient", False)


def test_a_property_that_raises_does_no_harm():
    class Awkward(Exception):
        @property
        def response(self) -> object:
            raise RuntimeError("not sent yet")

    assert classify(Awkward("x")).code == "unknown"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TimeoutError(), "timeout"),
        (httpx2.ReadTimeout("slow"), "timeout"),
        (httpx2.ConnectTimeout("slow"), "timeout"),
        (httpx2.PoolTimeout("slow"), "timeout"),
        (ConnectionRefusedError(), "network"),
        (ConnectionResetError(), "network"),
        (BrokenPipeError(), "network"),
        (socket.gaierror(-2, "no such host"), "network"),
        (OSError(101, "Network is unreachable"), "network"),
        (urllib.error.URLError("unreachable"), "network"),
        (httpx2.ConnectError("no"), "network"),
        (httpx2.ReadError("no"), "network"),
        (httpx2.RemoteProtocolError("no"), "network"),
    ],
)
def test_network_and_timeouts_are_transient_and_speak_of_the_service(error, code):
    assert verdict(classify(error)) == (code, "transient", True)


class Model(pydantic.BaseModel):
    count: int


def test_validation_is_permanent():
    with pytest.raises(pydantic.ValidationError) as by_pydantic:
        Model.model_validate({"count": "many"})
    with pytest.raises(msgspec.ValidationError) as by_msgspec:
        msgspec.convert("x", int)
    for caught in (by_pydantic, by_msgspec):
        assert verdict(classify(caught.value)) == ("invalid", "permanent", False)


def test_out_of_memory_is_of_its_own_kind():
    assert verdict(classify(MemoryError())) == ("out_of_memory", "memory", False)


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), OSError(28, "disk full")])
def test_unknown_exceptions_are_transient_and_say_nothing_of_the_service(error):
    assert verdict(classify(error)) == ("unknown", "transient", False)


def test_a_broken_json_reply_is_unknown():
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    assert verdict(classify(caught.value)) == ("unknown", "transient", False)


def test_permanent_and_transient_are_what_they_say():
    failure = classify(Permanent("no such model", details={"model": "x"}))
    assert verdict(failure) == ("permanent", "permanent", False)
    assert failure.details == {"model": "x"}
    assert verdict(classify(Transient("later"))) == ("transient", "transient", False)
    assert classify(Transient("gone for now", status=404)).kind == "transient"


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (BadInput("x"), "bad_input", "permanent"),
        (NotFound("x"), "not_found", "permanent"),
        (EngineDown("x"), "engine_down", "transient"),
        (TaskDead("t"), "task_dead", "transient"),
        (WaitTimeout("x"), "wait_timeout", "transient"),
    ],
)
def test_outlasts_own_errors_keep_their_code_and_blame_no_service(error, code, kind):
    assert verdict(classify(error)) == (code, kind, False)


def test_a_raised_retry_asks_for_another_attempt():
    failure = classify(Retry(after="30s"))
    assert verdict(failure) == ("retry", "transient", False)
    assert failure.retry_after_ms == 30_000
    assert failure.message == "The handler asked for another attempt in 30s"
    assert classify(Retry()).retry_after_ms is None


def test_of_a_group_the_error_that_makes_retrying_futile_speaks():
    slow = httpx2.ReadTimeout("slow")
    assert classify(ExceptionGroup("tasks", [slow])).code == "timeout"
    nested = ExceptionGroup("tasks", [slow, ExceptionGroup("more", [http_error(404), slow])])
    failure = classify(nested)
    assert (failure.code, failure.type) == ("not_found", "HTTPStatusError")
    assert "ReadTimeout" in (failure.traceback or "")


NOW_MS = 1_445_412_420_000  # Wed, 21 Oct 2015 07:27:00 GMT


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("120", 120_000),
        ("0.5", 500),
        ("0", 0),
        ("-5", 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 60_000),
        ("Wed, 21 Oct 2015 07:00:00 GMT", 0),
        ("999999999", MAX_RETRY_AFTER_MS),
        ("inf", MAX_RETRY_AFTER_MS),
        ("nan", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(value, ms):
    assert classify(http_error(429, {"Retry-After": value}), now_ms=NOW_MS).retry_after_ms == ms


def test_a_retry_after_date_needs_the_time():
    error = http_error(503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})
    assert classify(error).retry_after_ms is None


@pytest.mark.parametrize(
    "error",
    [
        Answered(status=429, headers={"retry-after": "7"}),
        Answered(response=Response(429, {"Retry-After": "7"})),
        Answered(response=Response(429, {"retry-after": "7"})),
        Transient("later", after="7s"),
    ],
)
def test_retry_after_is_found_wherever_a_client_keeps_it(error):
    assert classify(error).retry_after_ms == 7_000


def test_names_are_the_ancestry_without_what_every_error_shares():
    assert classify(ConnectionRefusedError()).names == (
        "ConnectionRefusedError",
        "ConnectionError",
        "OSError",
    )
    assert classify(Exception("x")).names == ("Exception",)


def test_names_include_the_builtin_a_library_did_not_inherit_from():
    assert "TimeoutError" in classify(httpx2.ReadTimeout("slow")).names
    assert "ConnectionError" in classify(httpx2.ConnectError("no")).names
    assert "TimeoutError" in from_wire({"type": "Deadline", "code": "timed_out"}).names


def test_texts_are_cut_and_fit_every_database():
    error = ValueError("é" * 10_000)
    failure = classify(error)
    assert len(failure.message.encode()) <= 4_096
    assert failure.message.startswith("éé") and failure.message.endswith("…")
    assert classify(ValueError("a\0b\udc80")).message == "a\ufffdb?"
    assert classify(ValueError()).message == "ValueError"


def test_of_a_traceback_the_end_is_kept():
    def deep(n: int) -> None:
        if n:
            deep_twin(n)
        raise ValueError("the end " + "x" * 20_000 + " of it")

    def deep_twin(n: int) -> None:
        deep(n - 1)

    with pytest.raises(ValueError) as caught:
        deep(50)
    trace = classify(caught.value).traceback or ""
    assert len(trace.encode()) <= 16_384
    assert trace.startswith("…") and trace.rstrip().endswith("of it")


def test_a_message_that_cannot_be_shown_is_no_second_failure():
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert classify(Mute()).message == "Mute (its message cannot be shown)"


@pytest.mark.parametrize(
    "details",
    [
        {"x": object()},
        {"x": {1, 2}},
        {"x": "a\0b"},
        {"x": "\udc80"},
        {"x": 10**40},
        {1: 2, "a": 3},
        {("a", "b"): 1},
        {"x": float("nan")},
        {"x": "long" * 10_000},
    ],
)
def test_details_are_plain_json_whatever_the_handler_attached(details):
    failure = classify(Permanent("no", details=details))
    text = msgspec.json.encode(failure)
    assert b"\\u0000" not in text
    assert len(msgspec.json.encode(failure.details)) <= 16_384
    assert msgspec.json.decode(text, type=Failure) == failure


def test_a_failure_survives_json():
    failure = classify(http_error(429, {"Retry-After": "5"}))
    assert msgspec.json.decode(msgspec.json.encode(failure), type=Failure) == failure


def test_other_languages_are_classified_alike():
    failure = from_wire(
        {
            "type": "RateLimited",
            "message": "slow down",
            "status": 429,
            "retry_after": 1.5,
            "details": {"a": 1},
            "traceback": "at main.go:7",
            "new_field": True,
        }
    )
    assert failure == Failure(
        code="rate_limit",
        type="RateLimited",
        message="slow down",
        kind="transient",
        details={"a": 1},
        traceback="at main.go:7",
        status=429,
        retry_after_ms=1_500,
        names=("RateLimited",),
        speaks_of_service=True,
    )
    assert verdict(from_wire({"type": "ReadTimeout"})) == ("timeout", "transient", True)
    assert verdict(from_wire({"type": "MemoryError"})) == ("out_of_memory", "memory", False)
    assert verdict(from_wire({})) == ("unknown", "transient", False)


def test_other_languages_may_name_the_code_and_the_verdict():
    assert verdict(from_wire({"code": "network"})) == ("network", "transient", True)
    assert verdict(from_wire({"code": "quota", "status": 403})) == ("quota", "permanent", False)
    assert from_wire({"permanent": True}).kind == "permanent"
    assert from_wire({"permanent": False, "status": 404}).kind == "transient"
    assert from_wire({"permanent": False, "code": "out_of_memory"}).kind == "memory"


@pytest.mark.parametrize(
    "data",
    [{"status": "429"}, {"message": 5}, {"retry_after": "soon"}, {"details": [1]}, {"type": None}],
)
def test_an_unreadable_report_is_refused(data):
    with pytest.raises(BadInput, match="The error is not readable") as caught:
        from_wire(data)
    assert caught.value.field == "error"


def test_the_record_shows_five_fields():
    error = to_error(from_wire({"type": "Nope", "message": "no", "status": 404}))
    assert error == {
        "code": "not_found",
        "type": "Nope",
        "message": "no",
        "details": None,
        "traceback": None,
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("took 31 ms", "took 4711 ms"),
        (
            "no row 550e8400-e29b-41d4-a716-446655440000",
            f"no row {'0' * 8}-1111-2222-3333-{'4' * 12}",
        ),
        ("user 'ada' is unknown", "user 'bob' is unknown"),
        ('field "a" missing', 'field "b" missing'),
        ("can't read 'x'", "can't read 'y'"),
        ("at 0x7f3a", "at 0xbeef"),
        ("commit deadbeef1", "commit 0123456789abcdef"),
        ("version 1.2.3", "version 10.20"),
    ],
)
def test_the_same_error_with_other_values_has_the_same_fingerprint(one, other):
    marks = {fingerprint(classify(ValueError(text))) for text in (one, other)}
    assert len(marks) == 1
    assert len(marks.pop()) == 12


def test_other_errors_have_other_fingerprints():
    errors = [ValueError("a"), ValueError("b"), TypeError("a"), ValueError("can't find it")]
    assert len({fingerprint(classify(error)) for error in errors}) == 4


def test_codes_are_known_to_the_table():
    statuses = {classify(http_error(status)).code for status in range(400, 600)}
    assert statuses <= KINDS.keys()


def test_signs_belong_to_numbers_in_a_fingerprint() -> None:
    one, other = (classify(ValueError(f"must be positive, not {n}")) for n in (-10, 0))
    assert fingerprint(one) == fingerprint(other)
