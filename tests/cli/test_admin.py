"""The dead, queues, limits, workers: what operators do."""

from __future__ import annotations

import pytest


@pytest.fixture
def dead(busy):
    """Three dead tasks of two kinds, and nothing else that is dead."""
    busy("dlq", "purge", "--yes")
    for message in ("out of ink", "out of ink", "out of paper"):
        ran = busy(
            "enqueue", "fail", f'{{"message": "{message}"}}', "--tag", message[-3:], "--wait"
        )
        assert ran.code == 1
    return busy


def test_the_dead_are_listed_and_grouped_by_what_killed_them(dead):
    assert len(dead.json("dlq", "ls")["items"]) == 3
    assert len(dead.json("dlq", "ls", "--tag", "per")["items"]) == 1
    groups = dead.json("dlq", "groups")["items"]
    assert sum(group["count"] for group in groups) == 3
    assert {group["error_type"] for group in groups} == {"Permanent"}
    assert "Permanent" in dead("dlq", "groups").out


def test_redrive_puts_those_that_fit_back(dead):
    tagged = ("--error", "Permanent", "--tag", "ink")
    assert dead.json("dlq", "redrive", *tagged, "--dry-run") == {
        "matched": 2, "redriven": 0, "dry_run": True
    }  # fmt: skip
    assert len(dead.json("dlq", "ls")["items"]) == 3
    assert dead.json("dlq", "redrive", *tagged)["redriven"] == 2
    assert dead.json("dlq", "redrive", "--error", "Ghost")["redriven"] == 0


def test_purge_asks_and_without_anybody_to_ask_refuses(dead):
    ran = dead("dlq", "purge")
    assert ran.code == 2
    assert "--yes" in ran.err
    assert dead("dlq", "purge", "--dry-run").out == "3 dead tasks would be purged.\n"
    assert dead.json("dlq", "purge", "--tag", "ink", "--yes")["purged"] == 2
    assert len(dead.json("dlq", "ls")["items"]) == 1


def test_a_paused_queue_gives_nothing_until_it_is_resumed(busy):
    assert busy.json("queues", "pause", "default") == {"queue": "default", "paused": True}
    ran = busy("enqueue", "hello", '{"name": "Ada"}', "--wait", "--timeout", "500ms")
    assert ran.code == 124
    assert busy.json("queues")["by_queue"]["default"]["paused"] is True
    assert "paused" in busy("queues", "ls").out
    busy("queues", "resume", "default")
    [waiting] = busy.json("tasks", "ls", "--type", "hello", "--limit", "1")["items"]
    assert busy("tasks", "watch", waiting["id"], "--timeout", "10s").code == 0


def test_limits_are_set_listed_and_removed(outlast):
    view = outlast.json(
        "limits", "set", "user:*", "--slots", "2", "--rate", "60/min", "--trip", "0.5"
    )
    assert (view["key"], view["slots"], view["rate"]) == ("user:*", 2, "60/1m")
    [listed] = outlast.json("limits")["items"]
    assert (listed["key"], listed["source"]) == ("user:*", "people")
    assert "user:*" in outlast("limits", "ls").out
    assert outlast.json("limits", "rm", "user:*") == {"removed": "user:*"}
    assert outlast("limits", "rm", "user:*").code == 3
    assert outlast("limits", "set", "user:*").code == 2
    assert outlast("limits", "set", "user:*", "--rate", "often").code == 2


def test_a_limit_is_reset(outlast):
    outlast.json("limits", "set", "model:*", "--trip", "0.5")
    assert outlast.json("limits", "reset", "model:small")["trip"]["rate"] == 0.5
    assert outlast("limits", "reset", "model:*").out == "model:* is reset.\n"
    assert outlast("limits", "reset", "nothing").code == 3


def test_workers_are_listed_with_what_they_serve_and_drained(busy):
    [worker] = busy.json("workers")["items"]
    assert (worker["alive"], worker["draining"]) == (True, False)
    assert "hello" in worker["types"]
    assert worker["id"] in busy("workers", "ls").out
    assert "takes nothing more" in busy("workers", "drain", worker["id"]).out
    assert "alive" not in busy("workers").out
    assert busy("workers", "drain", "nobody").code == 3


def test_migrate_tells_the_version_of_the_schema(outlast):
    first = outlast.json("migrate")["schema"]
    assert isinstance(first, int)
    assert outlast.json("migrate")["schema"] == first


def test_version(outlast):
    from outlast import __version__

    assert outlast.json("version")["version"] == __version__
    assert __version__ in outlast("version").out


@pytest.mark.parametrize(
    "command",
    [
        ("tasks", "ls"), ("dlq", "ls"), ("dlq", "groups"), ("dlq", "redrive"), ("dlq", "purge"),
        ("queues",), ("queues", "ls"), ("limits",), ("limits", "ls"), ("workers",), ("migrate",),
        ("doctor",), ("version",),
    ],
)  # fmt: skip
def test_every_command_answers_with_one_json_document_on_an_empty_engine(outlast, command):
    assert isinstance(outlast.json(*command), dict)


def test_keys_are_made_listed_and_revoked(outlast):
    made = outlast.json("keys", "create", "client", "--name", "shop", "--queue", "orders")
    assert made["key"].startswith("olk_")
    [listed] = outlast.json("keys", "ls")["items"]
    assert (listed["id"], listed["role"], listed["queues"]) == (made["id"], "client", ["orders"])
    shown = outlast("keys", "create", "admin")
    assert shown.out.startswith("olk_")
    assert "not shown again" in shown.err
    assert shown.out.strip() not in outlast("keys", "ls").out
    assert outlast.json("keys", "revoke", made["id"]) == {"revoked": made["id"]}
    assert outlast("keys", "revoke", made["id"]).code == 3
    assert outlast("keys", "create", "king").code == 2


def test_encryption_keys_are_made_and_rotated(outlast):
    outlast.write_app()
    old, new = (outlast("keys", "encryption").out.strip() for _ in range(2))
    assert outlast("keys", "rotate").code == 2
    outlast.env["OUTLAST_ENCRYPTION_KEYS"] = old
    outlast.id_of("hello", '{"name": "ada"}')
    outlast.env["OUTLAST_ENCRYPTION_KEYS"] = f"{new},{old}"
    told = outlast.json("keys", "rotate")
    assert list(told["needed"]) == [old.partition(":")[0]]
    outlast.env["OUTLAST_ENCRYPTION_KEYS"] = new
    checks = {check["name"]: check for check in outlast.json("doctor")["checks"]}
    assert checks["encryption"]["status"] == "warn"
    assert old.partition(":")[0] in checks["encryption"]["message"]
