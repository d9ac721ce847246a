"""Handing over, looking, following, changing."""

from __future__ import annotations

import json

NOBODY = "01890a5d-ac96-774b-bcce-b302099a8057"


# Handing over ------------------------------------------------------------------------------------


def test_enqueue_prints_the_id_of_a_task_that_is_there(project):
    ran = project("enqueue", "hello", '{"name": "Ada"}')
    assert ran.code == 0
    task = project.json("tasks", "show", ran.out.strip())
    assert (task["type"], task["payload"], task["status"]) == ("hello", {"name": "Ada"}, "ready")


def test_enqueue_warns_when_nobody_would_run_it(project):
    ran = project("enqueue", "hello", '{"name": "Ada"}')
    assert "No worker is alive" in ran.err
    assert "outlast worker" in ran.err


def test_the_payload_comes_from_a_file_or_from_standard_input(project):
    (project.folder / "ada.json").write_text('{"name": "Ada"}')
    from_file = project.json("enqueue", "hello", "@ada.json")
    assert from_file["payload"] == {"name": "Ada"}
    ran = project("enqueue", "hello", "-", "--json", stdin='{"name": "Bob"}')
    assert ran.json()["payload"] == {"name": "Bob"}


def test_options_end_up_in_the_record(project):
    task = project.json(
        "enqueue", "hello", '{"name": "Ada"}', "--queue", "llm", "--priority", "high",
        "--delay", "10m", "--unique-key", "k", "--session", "s", "--user", "u", "--tag", "a",
        "--tag", "b", "--max-attempts", "2", "--attempt-timeout", "90s", "--max-age", "1h",
        "--id", NOBODY,
    )  # fmt: skip
    assert task["id"] == NOBODY
    assert (task["queue"], task["priority"], task["status"]) == ("llm", 1, "scheduled")
    assert (task["unique_key"], task["session_id"], task["user_id"]) == ("k", "s", "u")
    assert (task["tags"], task["max_attempts"]) == (["a", "b"], 2)
    assert (task["timeout"], task["max_age"]) == (90, 3600)
    assert (task["existing"], task["durability"]) == (False, "fsync")


def test_a_unique_key_answers_the_living_task(project):
    first = project.json("enqueue", "hello", '{"name": "Ada"}', "--unique-key", "k")
    again = project.json("enqueue", "hello", '{"name": "Bob"}', "--unique-key", "k")
    assert (again["id"], again["existing"]) == (first["id"], True)


def test_bad_input_is_one_sentence_and_stores_nothing(project):
    wrong = {
        ("hello", '{"name": 3}'): "$.name",
        ("hello", "{}"): "name",
        ("hello", '{"name": "Ada"'): "truncated",
        ("hello", "@nowhere.json"): "nowhere.json",
        ("helo", '{"name": "Ada"}'): "did you mean 'hello'",
        ("hello", '{"name": "Ada"}', "--delay", "soon"): "soon",
        ("hello", '{"name": "Ada"}', "--priority", "urgent"): "critical",
        ("hello", '{"name": "Ada"}', "--timeout", "1s"): "--wait",
    }
    for args, told in wrong.items():
        ran = project("enqueue", *args)
        assert (ran.code, ran.out) == (2, ""), args
        assert told in ran.err
        assert len(ran.err.splitlines()) == 1, ran.err
    assert project.json("tasks", "ls")["items"] == []


def test_a_type_that_only_a_live_worker_knows_is_accepted_without_an_app(busy, outlast):
    url = f"sqlite:///{busy.folder}/outlast.db"
    ran = outlast("enqueue", "hello", '{"name": "Ada"}', "--engine", url, "--wait")
    assert (ran.code, ran.out) == (0, '"hello Ada"\n')


# Waiting -----------------------------------------------------------------------------------------


def test_wait_prints_the_result(busy):
    ran = busy("enqueue", "hello", '{"name": "Ada"}', "--wait")
    assert (ran.code, ran.out) == (0, '"hello Ada"\n')


def test_wait_with_json_prints_the_record(busy):
    ran = busy("enqueue", "hello", '{"name": "Ada"}', "--wait", "--json")
    assert (ran.code, ran.json()["result"]) == (0, "hello Ada")
    ran = busy("enqueue", "fail", "--wait", "--json")
    assert (ran.code, ran.json()["status"]) == (1, "dead")


def test_a_task_that_died_is_exit_code_1(busy):
    ran = busy("enqueue", "fail", '{"message": "out of ink"}', "--wait")
    assert (ran.code, ran.out) == (1, "")
    assert "out of ink" in ran.err


def test_a_cancelled_task_is_exit_code_1(project):
    task_id = project.id_of("hello", '{"name": "Ada"}')
    project("tasks", "cancel", task_id, "--reason", "changed my mind")
    ran = project("tasks", "watch", task_id)
    assert ran.code == 1
    assert "changed my mind" in ran.err


def test_a_wait_that_is_over_before_the_task_is_exit_code_124(project):
    ran = project("enqueue", "hello", '{"name": "Ada"}', "--wait", "--timeout", "200ms")
    assert ran.code == 124
    [task] = project.json("tasks", "ls")["items"]
    ran = project("tasks", "watch", task["id"], "--timeout", "200ms")
    assert ran.code == 124
    assert project.status(task["id"]) == "ready"


def test_follow_streams_output_and_tells_progress_apart_from_it(busy):
    ran = busy("enqueue", "story", "--follow")
    assert (ran.code, ran.out) == (0, "once upon a time\n")
    assert "50 % half way" in ran.err
    assert "completed" in ran.err


def test_watch_replays_a_task_that_is_over(busy):
    task_id = busy.json("enqueue", "story", "--wait")["id"]
    ran = busy("tasks", "watch", task_id)
    assert (ran.code, ran.out) == (0, "once upon a time\n")


def test_follow_prints_the_result_of_a_task_that_streamed_nothing(busy):
    ran = busy("enqueue", "hello", '{"name": "Ada"}', "--follow")
    assert (ran.code, ran.out) == (0, '"hello Ada"\n')


# Looking -----------------------------------------------------------------------------------------


def test_ls_filters_and_pages(project):
    for n in range(3):
        project.id_of("hello", json.dumps({"name": f"n{n}"}), "--session", "s")
    project.id_of("story")
    assert len(project.json("tasks", "ls")["items"]) == 4
    assert len(project.json("tasks", "ls", "--type", "story")["items"]) == 1
    assert len(project.json("tasks", "ls", "payload.name:n1 -type:story age<1h")["items"]) == 1
    assert project.json("tasks", "ls", "--status", "dead")["items"] == []
    page = project.json("tasks", "ls", "--session", "s", "--limit", "2")
    rest = project.json("tasks", "ls", "--session", "s", "--limit", "2", "--cursor", page["next"])
    assert [task["payload"]["name"] for task in page["items"]] == ["n2", "n1"]
    assert [task["payload"]["name"] for task in rest["items"]] == ["n0"]
    table = project("tasks", "ls")
    assert all(task["id"] in table.out for task in page["items"])


def test_ls_refuses_a_status_that_does_not_exist(project):
    ran = project("tasks", "ls", "--status", "failed")
    assert ran.code == 2
    assert "dead" in ran.err


def test_a_task_that_does_not_exist_is_exit_code_3(project):
    for command in ("show", "why", "watch", "retry", "cancel", "rm"):
        for task_id in (NOBODY, "nonsense"):
            ran = project("tasks", command, task_id)
            assert (ran.code, ran.out) == (3, ""), (command, task_id)
            assert ran.err == f"outlast: There is no task {task_id}.\n"


def test_why_names_what_it_waits_for_and_the_command_that_helps(project):
    task_id = project.id_of("hello", '{"name": "Ada"}', "--queue", "llm")
    assert project.json("tasks", "why", task_id)["waits_for"] == "no_worker"
    project("queues", "pause", "llm")
    ran = project("tasks", "why", task_id)
    assert "paused" in ran.out
    assert "outlast queues resume llm" in ran.out


def test_control_characters_of_tasks_do_not_reach_the_terminal(busy):
    evil = "\x1b[2J\x07\x9b31m\u202egnp.exe [red]not markup[/red]"
    task_id = busy.json("enqueue", "fail", json.dumps({"message": evil}))["id"]
    busy("tasks", "watch", task_id)
    for command in (("ls",), ("show", task_id), ("watch", task_id), ("why", task_id)):
        ran = busy("tasks", *command)
        shown = ran.out + ran.err
        assert not set("\x1b\x07\x9b\u202e") & set(shown), command
    assert "\\x1b[2J" in busy("tasks", "ls").out
    assert "[red]not markup[/red]" in busy("tasks", "ls").out
    assert busy.json("tasks", "show", task_id)["payload"] == {"message": evil}


# Changing ----------------------------------------------------------------------------------------


def test_cancel_then_retry_then_remove(project):
    task_id = project.id_of("hello", '{"name": "Ada"}')
    [cancelled] = project.json("tasks", "cancel", task_id)["items"]
    assert cancelled["status"] == "cancelled"
    [retried] = project.json("tasks", "retry", task_id, "--payload", '{"name": "Bob"}')["items"]
    assert (retried["status"], retried["payload"]) == ("ready", {"name": "Bob"})
    assert project.json("tasks", "rm", task_id)["removed"] == [task_id]
    assert project("tasks", "show", task_id).code == 3


def test_a_change_that_does_not_apply_is_exit_code_2(project):
    task_id = project.id_of("hello", '{"name": "Ada"}')
    ran = project("tasks", "retry", task_id)
    assert ran.code == 2
    assert "pending" in ran.err


def test_a_retry_with_a_payload_that_does_not_fit_is_refused(project):
    task_id = project.id_of("hello", '{"name": "Ada"}')
    project("tasks", "cancel", task_id)
    assert project("tasks", "retry", task_id, "--payload", '{"name": 3}').code == 2
    assert project.status(task_id) == "cancelled"


def test_cancel_reaches_a_running_task(busy, until):
    task_id = busy.id_of("gated", '{"name": "endless"}')
    until(lambda: (busy.folder / "endless.begun").exists())
    assert busy("tasks", "rm", task_id).code == 2
    assert busy("tasks", "cancel", task_id).code == 0
    assert busy("tasks", "watch", task_id, "--timeout", "10s").code == 1
    assert busy.status(task_id) == "cancelled"


def test_bulk_changes_all_that_fit_when_asked_to(project):
    for n in range(3):
        project.id_of("hello", json.dumps({"name": f"n{n}"}))
    fitting = ("tasks", "bulk", "cancel", "type:hello payload.name:n0,n1")
    assert project.json(*fitting, "--dry-run") == {"matched": 2, "changed": 0, "dry_run": True}
    refused = project(*fitting)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert project(*fitting, "--yes").out == "2 of 2 tasks changed.\n"
    assert len(project.json("tasks", "ls", "status:cancelled")["items"]) == 2
    assert project("tasks", "bulk", "burn", "type:hello").code == 2
