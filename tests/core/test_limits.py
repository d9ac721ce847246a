"""Limits: definitions, templates, and the gate arithmetic that every engine repeats."""

from collections.abc import Callable
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.errors import BadInput
from outlast.core.limits import (
    MAX_DEBT,
    MAX_PERIOD_MS,
    Gauge,
    Limit,
    LimitTemplate,
    Trip,
    _cost_us,
    admit,
    charge,
    circuit,
    free,
    pause,
    resolve,
    spend,
    take,
)

NOW = 1_760_000_000_000


# Definitions


@pytest.mark.parametrize(
    ("text", "units", "period_ms", "canonical"),
    [
        ("60/min", 60, 60_000, "60/1m"),
        ("5/s", 5, 1000, "5/1s"),
        ("100000/1m", 100_000, 60_000, "100000/1m"),
        ("10/2h", 10, 7_200_000, "10/2h"),
        ("1000000/day", 1_000_000, 86_400_000, "1000000/1d"),
        ("150000000/min", 150_000_000, 60_000, "150000000/1m"),
        (" 3 / 90s ", 3, 90_000, "3/1m 30s"),
    ],
)
def test_a_rate_is_units_per_period(text: str, units: int, period_ms: int, canonical: str) -> None:
    limit = Limit("k", rate=text)
    assert (limit.rate_units, limit.rate_period_ms, limit.rate) == (units, period_ms, canonical)


@pytest.mark.parametrize(
    "limit",
    [
        Limit("provider:openrouter", slots=8, rate="60/min", trip=Trip(rate=0.5, volume=10)),
        Limit("user:*", slots=2),
        Limit("a:b:*", rate="7/90s"),
        Limit("k", trip=Trip(rate=0.333, volume=3, window="10s", open="2m")),
    ],
)
def test_a_definition_survives_its_record(limit: Limit) -> None:
    assert Limit.from_json(limit.to_json()) == limit
    assert hash(Limit.from_json({**limit.to_json(), "of_a_newer_release": 1})) == hash(limit)


def test_the_record_holds_integers_for_the_engines() -> None:
    limit = Limit("k", slots=8, rate="60/min", trip=Trip())
    assert limit.to_json() == {
        "key": "k",
        "slots": 8,
        "rate_units": 60,
        "rate_period_ms": 60_000,
        "trip": {"permille": 500, "volume": 10, "window_ms": 60_000, "open_ms": 60_000},
    }


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Limit("k"), "limits nothing"),
        (lambda: Limit("", slots=1), "1 to 200 characters"),
        (lambda: Limit("x" * 201, slots=1), "1 to 200 characters"),
        (lambda: Limit("a\nb", slots=1), "printable"),
        (lambda: Limit("user*", slots=1), "only at the end"),
        (lambda: Limit("*", slots=1), "only at the end"),
        (lambda: Limit("a:*:b", slots=1), "only at the end"),
        (lambda: Limit("a::b", slots=1), "empty"),
        (lambda: Limit("user:{user}", slots=1), "family"),
        (lambda: Limit("k", slots=0), "1 to 1000000"),
        (lambda: Limit("k", slots=True), "1 to 1000000"),
        (lambda: Limit("k", slots=2.5), "1 to 1000000"),
        (lambda: Limit("k", rate="60"), "units per period"),
        (lambda: Limit("k", rate=60), "units per period"),
        (lambda: Limit("k", rate="1.5/s"), "units per period"),
        (lambda: Limit("k", rate="60/fortnight"), "'fortnight' is no period"),
        (lambda: Limit("k", rate="0/s"), "at least 1 unit"),
        (lambda: Limit("k", rate="1/32d"), "31d"),
        (lambda: Limit("k", rate="900000000/min"), "shorter period"),
        (lambda: Limit("k", trip=0.5), "Trip"),
        (lambda: Trip(rate=0), "0.001 to 1"),
        (lambda: Trip(rate=50), "0.001 to 1"),
        (lambda: Trip(volume=0), "verdicts"),
        (lambda: Trip(window="10ms"), "1s to 31d"),
        (lambda: Trip(open="0s"), "1ms to 31d"),
        (lambda: Limit.from_json({"slots": 1}), "has a key"),
        (lambda: Limit.from_json({"key": "k", "rate_units": "6"}), "integers"),
        (lambda: Limit.from_json({"key": "k", "trip": {"permille": 500}}), "window_ms"),
    ],
)
def test_a_wrong_definition_is_refused_with_a_lesson(make: Callable[[], object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        make()


def test_an_exact_key_wins_then_the_longest_family() -> None:
    keys = ("user:*", "user:vip:*", "user:42", "queue")
    definitions = {key: Limit(key, slots=1) for key in keys}
    assert resolve("user:42", definitions) is definitions["user:42"]
    assert resolve("user:43", definitions) is definitions["user:*"]
    assert resolve("user:vip:1", definitions) is definitions["user:vip:*"]
    assert resolve("user:vip", definitions) is definitions["user:*"]
    assert resolve("queue", definitions) is definitions["queue"]
    assert resolve("media:flux", definitions) is None
    assert resolve("user", definitions) is None


# Templates


@pytest.mark.parametrize(
    ("text", "payload", "key", "family"),
    [
        ("media:{provider}", {"provider": "flux"}, "media:flux", "media:*"),
        ("user:{user.id}", {"user": {"id": 42}}, "user:42", "user:*"),
        ("a:b:{x}:{y}", {"x": True, "y": "p:q"}, "a:b:true:p:q", "a:b:*"),
        ("a:x-{x}", {"x": 0}, "a:x-0", "a:*"),
        ("provider:openrouter", {}, "provider:openrouter", "provider:openrouter"),
    ],
)
def test_a_template_gives_a_key_and_its_family(
    text: str, payload: dict[str, object], key: str, family: str
) -> None:
    template = LimitTemplate.parse(text)
    assert template.render(payload) == key
    assert template.family == family
    if key != family:
        definition = Limit(family, slots=1)
        assert resolve(key, {family: definition}) is definition


@pytest.mark.parametrize(
    "text",
    ["{user}", ":{user}", "user{user}", "u:{", "u:}", "u:{}", "u:{a!r}", "u:{a:>9}", "u:{a[0]}",
     "u:{a.}", "u:{0}", "u:{{a}}", "u:*:{a}", "u:*x"],
)  # fmt: skip
def test_a_wrong_template_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"Limit (template|key)"):
        LimitTemplate.parse(text)


@pytest.mark.parametrize(
    ("text", "payload", "says"),
    [
        ("u:{a.b}", {}, r"\$\.a: missing"),
        ("u:{a.b}", {"a": {}}, r"\$\.a\.b: missing"),
        ("u:{a.real}", {"a": 1}, r"\$\.a\.real: missing"),
        ("u:{a}", {"a": None}, "NoneType"),
        ("u:{a}", {"a": 1.5}, "float"),
        ("u:{a}", {"a": {}}, "dict"),
        ("u:{a}", {"a": ""}, "empty text"),
        ("u:{a}", {"a": "x" * 199}, "201 characters; at most 200"),
        ("u:{a}", {"a": "x\x00"}, "printable"),
        ("u:{a}", {"a": "*"}, "printable"),
        ("u:{a}:{b}", {"a": "x:y", "b": 1}, "colon"),
    ],
)
def test_a_payload_without_the_field_is_refused(
    text: str, payload: dict[str, object], says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        LimitTemplate.parse(text).render(payload)


# The gate


def test_slots_admit_until_full_and_again_when_freed() -> None:
    limit, gauge = Limit("k", slots=2), Gauge("k")
    for task in ("a", "b"):
        assert admit(limit, gauge, 1, NOW) == 0
        take(limit, gauge, task, 1, NOW)
    assert admit(limit, gauge, 1, NOW) is None
    free(gauge, "a")
    assert admit(limit, gauge, 1, NOW) == 0
    free(gauge, "b")
    free(gauge, "b")
    assert gauge.used == 0


def test_a_rate_gives_a_burst_then_one_unit_each_interval() -> None:
    limit, gauge = Limit("k", rate="60/min"), Gauge("k")
    for _ in range(60):
        assert admit(limit, gauge, 1, NOW) == 0
        take(limit, gauge, "t", 1, NOW)
    assert admit(limit, gauge, 1, NOW) == NOW + 1000
    assert admit(limit, gauge, 5, NOW) == NOW + 5000
    assert admit(limit, gauge, 1, NOW + 999) == NOW + 1000
    assert admit(limit, gauge, 1, NOW + 1000) == 0
    assert admit(limit, gauge, 60, NOW + 60_000) == 0


def test_more_units_than_a_period_has_wait_for_a_full_bucket_and_pay_in_full() -> None:
    limit, gauge = Limit("k", rate="10/s"), Gauge("k")
    assert admit(limit, gauge, 30, NOW) == 0
    take(limit, gauge, "big", 30, NOW)
    assert admit(limit, gauge, 1, NOW) == NOW + 2100
    assert admit(limit, gauge, 30, NOW) == NOW + 3000


def test_units_spent_after_the_fact_delay_the_next() -> None:
    limit, gauge = Limit("k", rate="100000/min"), Gauge("k")
    take(limit, gauge, "a", 1, NOW)
    spend(limit, gauge, 0, NOW)
    spend(limit, gauge, -5, NOW)
    assert admit(limit, gauge, 99_999, NOW) == 0
    spend(limit, gauge, 99_999, NOW)
    assert admit(limit, gauge, 1000, NOW) == NOW + 600


def test_a_debt_is_bounded() -> None:
    limit, gauge = Limit("k", rate="1/s"), Gauge("k")
    for _ in range(3):
        spend(limit, gauge, 10**12, NOW)
    assert admit(limit, gauge, 1, NOW) == NOW + MAX_DEBT * 1000


def test_a_pause_closes_even_an_undefined_key_and_the_latest_wins() -> None:
    gauge = Gauge("k")
    pause(gauge, NOW + 500)
    pause(gauge, NOW + 100)
    assert admit(None, gauge, 1, NOW) == NOW + 500
    assert admit(Limit("k", slots=1), gauge, 1, NOW) == NOW + 500
    assert admit(None, gauge, 1, NOW + 500) == 0


def test_an_undefined_key_only_counts() -> None:
    gauge = Gauge("k")
    for _ in range(100):
        assert admit(None, gauge, 10**9, NOW) == 0
        take(None, gauge, "t", 10**9, NOW)
        assert charge(None, gauge, "t", False, NOW) is None
    assert (gauge.used, gauge.tat_us, circuit(None, gauge, NOW)) == (100, 0, "closed")


def test_the_gate_waits_for_the_latest_of_its_times() -> None:
    limit, gauge = Limit("k", slots=1, rate="1/s", trip=Trip(volume=1, open="3s")), Gauge("k")
    take(limit, gauge, "a", 1, NOW)
    assert charge(limit, gauge, "a", False, NOW) == "opened"
    pause(gauge, NOW + 2000)
    assert admit(limit, gauge, 1, NOW) == NOW + 3000
    assert admit(limit, gauge, 1, NOW + 3000) is None
    free(gauge, "a")
    assert admit(limit, gauge, 1, NOW + 3000) == 0


# The circuit


def opened() -> tuple[Limit, Gauge]:
    limit, gauge = Limit("k", trip=Trip(volume=4, window="60s", open="30s")), Gauge("k")
    for ok in (True, True, False):
        assert charge(limit, gauge, "t", ok, NOW) is None
    assert charge(limit, gauge, "t", False, NOW) == "opened"
    return limit, gauge


def test_the_circuit_opens_at_the_volume_and_the_rate() -> None:
    limit, gauge = opened()
    assert circuit(limit, gauge, NOW) == "open"
    assert admit(limit, gauge, 1, NOW) == NOW + 30_000


def test_late_verdicts_neither_extend_nor_close_an_open_circuit() -> None:
    limit, gauge = opened()
    for late in (NOW + 10, NOW + 30_000):
        for ok in (True, False):
            assert charge(limit, gauge, "late", ok, late) is None
    assert gauge.open_until == NOW + 30_000
    assert gauge.buckets == []


def test_half_open_lets_one_probe_through_and_its_success_closes() -> None:
    limit, gauge = opened()
    then = NOW + 30_000
    assert circuit(limit, gauge, then) == "half_open"
    assert admit(limit, gauge, 1, then) == 0
    take(limit, gauge, "probe", 1, then)
    assert admit(limit, gauge, 1, then) is None
    assert charge(limit, gauge, "probe", True, then + 5) == "closed"
    free(gauge, "probe")
    assert admit(limit, gauge, 1, then + 5) == 0
    assert (gauge.open_until, gauge.probe, gauge.buckets) == (0, "", [])


def test_a_failed_probe_opens_again() -> None:
    limit, gauge = opened()
    then = NOW + 31_000
    take(limit, gauge, "probe", 1, then)
    assert charge(limit, gauge, "probe", False, then) == "opened"
    free(gauge, "probe")
    assert admit(limit, gauge, 1, then) == then + 30_000
    assert gauge.probe == ""


def test_a_probe_that_ends_without_a_verdict_makes_room_for_another() -> None:
    limit, gauge = opened()
    then = NOW + 30_000
    take(limit, gauge, "probe", 1, then)
    free(gauge, "someone else")
    assert admit(limit, gauge, 1, then) is None
    free(gauge, "probe")
    assert admit(limit, gauge, 1, then) == 0


def test_old_verdicts_leave_the_window() -> None:
    limit, gauge = Limit("k", trip=Trip(volume=4, window="60s")), Gauge("k")
    for _ in range(3):
        assert charge(limit, gauge, "t", False, NOW) is None
    assert charge(limit, gauge, "t", False, NOW + 60_000) is None
    assert sum(failed for _, _, failed in gauge.buckets) == 1


def test_a_limit_without_a_trip_ignores_verdicts_and_an_old_circuit() -> None:
    limit, gauge = Limit("k", slots=5), Gauge("k", open_until=NOW + 99)
    assert charge(limit, gauge, "t", False, NOW) is None
    assert circuit(limit, gauge, NOW) == "closed"
    assert admit(limit, gauge, 1, NOW) == 0


# Properties

limits = st.builds(
    lambda slots, units, period, trip: Limit(
        "k", slots=slots, rate=f"{units}/{period}ms", trip=trip
    ),
    st.none() | st.integers(1, 5),
    st.integers(1, 50),
    st.integers(1, 5000),
    st.none() | st.builds(Trip, st.sampled_from([0.1, 0.5, 1.0]), st.integers(1, 5)),
)
steps = st.lists(
    st.tuples(
        st.integers(0, 3000),  # ms that pass
        st.sampled_from(["take", "take", "ok", "failed", "lost", "spend", "pause"]),
        st.integers(0, 60),
    ),
    max_size=80,
)


def play(limit: Limit, script: list[tuple[int, str, int]]) -> tuple[Gauge, list[tuple[int, int]]]:
    """Run a script as an engine would; check what must hold after each step."""
    gauge, now, running, taken = Gauge("k"), NOW, [], []
    for number, (passed, step, units) in enumerate(script):
        now += passed
        if step == "take":
            at = admit(limit, gauge, units, now)
            if at == 0:
                half_open = circuit(limit, gauge, now) == "half_open"
                assert not (half_open and gauge.probe)
                take(limit, gauge, f"t{number}", units, now)
                assert not half_open or gauge.probe == f"t{number}"
                running.append(f"t{number}")
                taken.append((now, units))
            elif at is None:
                assert running, "a gate that waits for others needs someone to wait for"
            else:
                assert at > now
        elif step == "spend":
            spend(limit, gauge, units, now)
        elif step == "pause":
            pause(gauge, now + units)
        elif running:
            task = running.pop(units % len(running))
            if step != "lost":
                charge(limit, gauge, task, step == "ok", now)
            free(gauge, task)
            assert gauge.probe != task
        assert gauge.used == len(running)
        assert limit.slots is None or gauge.used <= limit.slots
        assert gauge.probe == "" or gauge.probe in running
        assert len(gauge.buckets) <= 6
    return gauge, taken


@given(limits, steps)
def test_slots_probe_and_buckets_hold_whatever_happens(
    limit: Limit, script: list[tuple[int, str, int]]
) -> None:
    gauge, _ = play(limit, script)
    assert play(limit, deepcopy(script))[0] == gauge, "the arithmetic is deterministic"


@given(
    st.integers(1, 50),
    st.integers(1, 5000),
    st.lists(st.tuples(st.integers(0, 700), st.integers(1, 60)), min_size=1, max_size=120),
)
def test_a_period_admits_at_most_two_bursts_and_the_long_run_keeps_the_rate(
    rate_units: int, period_ms: int, calls: list[tuple[int, int]]
) -> None:
    limit = Limit("k", rate=f"{rate_units}/{period_ms}ms")
    script = [(passed, "take", min(units, rate_units)) for passed, units in calls]
    _, taken = play(limit, script)
    for first, (start, _) in enumerate(taken):
        inside = [units for at, units in taken[first:] if at < start + period_ms]
        assert sum(inside) <= 2 * rate_units
        for last in range(first, len(taken)):
            # In any span: a burst, and what the span refills. Integers: multiply, do not divide.
            span, units = taken[last][0] - start, sum(u for _, u in taken[first : last + 1])
            assert units * period_ms <= rate_units * (period_ms + span)


@given(st.integers(1, 50), st.integers(1, 5000), st.lists(st.integers(1, 50), max_size=30))
def test_looking_again_at_the_time_given_is_neither_early_nor_late(
    rate_units: int, period_ms: int, wanted: list[int]
) -> None:
    limit, gauge, now = Limit("k", rate=f"{rate_units}/{period_ms}ms"), Gauge("k"), NOW
    total = 0
    for units in (min(units, rate_units) for units in wanted):
        at = admit(limit, gauge, units, now)
        assert at is not None
        if at:
            assert admit(limit, gauge, units, at - 1) != 0, "not a millisecond later than needed"
            now = at
        assert admit(limit, gauge, units, now) == 0
        take(limit, gauge, "t", units, now)
        total += units
        assert total * period_ms <= rate_units * (period_ms + now - NOW), "not early"


@given(st.integers(1, 10**12), st.integers(1, 2 * 10**8), st.integers(1, MAX_PERIOD_MS))
def test_the_cost_of_units_is_the_exact_ceiling_and_stays_below_2_to_the_53(
    units: int, rate_units: int, period_ms: int
) -> None:
    try:
        limit = Limit("k", rate=f"{rate_units}/{period_ms}ms")
    except BadInput:
        assert rate_units * min(rate_units, period_ms * 1000) > 2**53
        return
    units = min(units, MAX_DEBT * rate_units)
    period_us = period_ms * 1000
    part, rest = units % rate_units, period_us % rate_units
    assert part * rest + rate_units < 2**53
    assert NOW * 1000 + 2 * MAX_DEBT * period_us < 2**53
    assert _cost_us(limit, units) == -(-units * period_us // rate_units)
