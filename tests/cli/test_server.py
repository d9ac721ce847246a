"""The command line on a server: the same commands, the same output, the same exit codes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .conftest import Outlast, until


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outlast]:
    """A folder whose app is served, with a worker."""
    outlast = Outlast(tmp_path_factory.mktemp("served"))
    outlast.write_app()
    with outlast.worker(), outlast.running("serve", "--port", "0"):
        until(lambda: "Serving" in outlast.log("serve"), lambda: outlast.log("serve"))
        outlast.address = outlast.log("serve").partition("Serving ")[2].split()[0]
        yield outlast


@pytest.fixture
def far(there: Outlast, tmp_path_factory: pytest.TempPathFactory) -> Outlast:
    """An empty folder elsewhere, from which the server is asked."""
    outlast = Outlast(tmp_path_factory.mktemp("elsewhere"))
    outlast.env["OUTLAST_SERVER"] = there.address
    return outlast


def test_hand_over_and_follow(far: Outlast) -> None:
    ran = far("enqueue", "hello", '{"name": "Ada"}', "--wait", "--timeout", "20s")
    assert (ran.code, ran.out) == (0, '"hello Ada"\n'), ran.err
    ran = far("enqueue", "story", "--follow", "--timeout", "20s")
    assert (ran.code, ran.out) == (0, "once upon a time\n")
    assert "50 % half way" in ran.err


def test_the_fate_of_a_task_is_the_exit_code(far: Outlast) -> None:
    ran = far("enqueue", "fail", "--wait", "--timeout", "20s")
    assert ran.code == 1
    assert "Permanent: no" in ran.err
    ran = far("enqueue", "hello", '{"name": "x"}', "--delay", "1h", "--wait", "--timeout", "10ms")
    assert (ran.code, "scheduled" in ran.err) == (124, True)
    assert far("tasks", "show", "019e8d3a-5b1c-7c44-9f0e-3a1d2b4c5d6e").code == 3
    ran = far("enqueue", "helo")
    assert (ran.code, "did you mean 'hello'" in ran.err) == (2, True)
    ran = far("tasks", "ls", "--server", "http://127.0.0.1:9")
    assert (ran.code, "http://127.0.0.1:9 does not answer" in ran.err) == (4, True)


def test_what_is_shown_is_what_the_engine_shows(there: Outlast, far: Outlast) -> None:
    id = far.id_of("hello", '{"name": "Ada"}', "--delay", "1h", "--tag", "shown")
    for command in (
        ("tasks", "show", id),
        ("tasks", "ls", "--tag", "shown", "status:scheduled"),
        ("queues",),
        ("limits",),
        ("usage", "--by", "type"),
        ("budgets",),
        ("keys", "ls"),
    ):
        here, answer = there.json(*command), far.json(*command)
        for document in (here, answer):  # the one thing that has changed meanwhile
            for queue in document.get("by_queue", {}).values():  # type: ignore[attr-defined]
                queue.update(oldest_seconds=0, completed_per_minute=0)
        assert answer == here, command
    assert [far("tasks", "why", id).out.partition(" in ")[0]] == ["scheduled: It is scheduled: due"]
    row = far("tasks", "ls", "--tag", "shown").out
    assert id in row
    assert "hello" in row
    assert "alive" in far("workers").out


def test_change_one_and_many(far: Outlast) -> None:
    ids = [far.id_of("hello", '{"name": "x"}', "--delay", "1h", "--tag", "m") for _ in range(3)]
    assert far("tasks", "cancel", ids[0], "--reason", "enough").out.split() == [ids[0], "cancelled"]
    assert far.json("tasks", "bulk", "cancel", "tag:m", "--dry-run")["matched"] == 2
    assert far.json("tasks", "bulk", "cancel", "tag:m", "--yes") == {
        "matched": 2, "changed": 2, "dry_run": False,
    }  # fmt: skip
    assert far("tasks", "retry", ids[0], "--payload", '{"name": "Bo"}').code == 0
    assert far("tasks", "watch", ids[0], "--timeout", "20s").out == '"hello Bo"\n'
    assert far("tasks", "rm", *ids[1:]).out == "Removed 2.\n"
    assert far("tasks", "cancel", ids[0]).code == 2  # it is over


def test_the_dead(far: Outlast) -> None:
    id = far.id_of("fail", '{"message": "so, \\"so\\""}', "--session", "s 1")
    assert far("tasks", "watch", id, "--timeout", "20s").code == 1
    assert id in far("dlq", "ls", "--session", "s 1").out
    assert far.json("dlq", "purge", "--session", "s 1", "--dry-run")["matched"] == 1
    assert "Permanent" in far("dlq", "groups").out
    redriven = far.json("dlq", "redrive", "--error", "Permanent", "--type", "fail")
    assert redriven["redriven"] == redriven["matched"] != 0
    until(lambda: far.status(id) == "dead")
    assert far("dlq", "purge", "--type", "fail", "--error", "Nothing", "--yes").out.startswith("0 ")
    assert far.json("dlq", "purge", "--type", "fail", "--yes")["purged"] != 0
    assert far("tasks", "show", id).code == 3


def test_set_and_pause(far: Outlast) -> None:
    assert far("queues", "pause", "slow").out == "slow is paused.\n"
    assert far("queues", "resume", "slow").out == "slow is open.\n"
    assert far("limits", "set", "user:*", "--slots", "2").out == "user:* is set.\n"
    assert "user:*" in far("limits").out
    assert far("limits", "rm", "user:*").out == "user:* is removed.\n"
    assert far("limits", "rm", "user:*").code == 3


def test_a_key_is_made_and_revoked_over_http(there: Outlast, far: Outlast) -> None:
    """Last: from the first key on the server asks for one."""
    made = far.json("keys", "create", "admin", "--name", "ops")
    text = str(made["key"])
    until(lambda: far("tasks", "ls").code == 2)  # refused
    assert "API key" in far("tasks", "ls").err
    assert far("tasks", "ls", "--key", text).code == 0
    assert far("keys", "ls", env={"OUTLAST_KEY": text}).out.count("ops") == 1
    assert far("keys", "revoke", str(made["id"]), "--key", text).code == 0


def test_what_cannot_be_done_through_a_server_says_so(outlast: Outlast) -> None:
    for command in ("worker", "serve", "dev", "migrate", "doctor"):
        ran = outlast(command, "--server", "http://127.0.0.1:9")
        assert ran.code == 2
        assert f"`outlast {command}` works on an engine itself" in ran.err


def test_server_and_engine_are_one_or_the_other(outlast: Outlast) -> None:
    ran = outlast("tasks", "ls", "--server", "http://127.0.0.1:9", "--engine", "memory://")
    assert (ran.code, "the one or the other" in ran.err) == (2, True)
    ran = outlast("tasks", "ls", "--key", "olk_x")
    assert (ran.code, "--server" in ran.err) == (2, True)
    flag_wins = {"OUTLAST_SERVER": "http://127.0.0.1:9"}
    assert outlast("tasks", "ls", "--engine", "memory://", env=flag_wins).code == 0
    ran = outlast("tasks", "ls", "--server", "localhost:5278")
    assert (ran.code, "no address" in ran.err) == (2, True)
