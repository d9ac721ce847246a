"""Where the engine and the app come from, what happens when they are not there, and the help."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ENGINE_COMMANDS = [("tasks", "ls"), ("doctor",)]


# Engines that cannot be used ---------------------------------------------------------------------


@pytest.mark.parametrize("command", ENGINE_COMMANDS)
def test_an_unknown_engine_is_wrong_usage(outlast, command):
    ran = outlast(*command, "--engine", "nosuch://somewhere")
    assert ran.code == 2
    assert "sqlite://" in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("command", ENGINE_COMMANDS)
def test_an_engine_that_cannot_be_opened_is_exit_code_4(outlast, command):
    (outlast.folder / "text.db").write_text("this is no database, but it is long enough" * 100)
    (outlast.folder / "folder.db").mkdir()
    for url in (
        "sqlite:///missing/folder/jobs.db",
        "sqlite:////proc/jobs.db",  # nobody can write there, not even root
        "sqlite:///text.db",
        "sqlite:///folder.db",
    ):
        ran = outlast(*command, "--engine", url)
        assert ran.code == 4, (url, ran)
        assert "Traceback" not in ran.err
        if command != ("doctor",):
            assert len(ran.err.splitlines()) == 1, ran.err


def test_a_full_disk_is_exit_code_4_and_loses_nothing(project):
    kept = project.id_of("hello", '{"name": "Ada"}')
    payload = project.folder / "large.json"
    payload.write_text('{"name": "%s"}' % ("x" * 900_000))
    room = 512 * 1024

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    full = subprocess.run(
        [sys.executable, "-m", "outlast", "enqueue", "hello", "@large.json"],
        cwd=project.folder, env=project.env, preexec_fn=fill, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert full.returncode == 4, full.stderr
    assert "Nothing was written" in full.stderr
    assert len(full.stderr.splitlines()) == 1
    assert [task["id"] for task in project.json("tasks", "ls")["items"]] == [kept]


# What the doctor says ----------------------------------------------------------------------------


def checks(document):
    return {check["name"]: check for check in document["checks"]}


def test_doctor_finds_nothing_wrong_with_a_working_engine(busy):
    document = busy.json("doctor")
    assert document["ok"] is True
    found = checks(document)
    assert {"sqlite", "file", "disk", "journal", "schema", "write", "durability", "clock"} <= set(
        found
    )
    assert found["workers"]["status"] == "ok"
    assert all(found[name]["status"] == "ok" for name in found), found


def test_doctor_names_what_nobody_serves_and_the_cure(project):
    project.id_of("hello", '{"name": "Ada"}', "--queue", "llm")
    found = checks(project.json("doctor"))
    assert found["workers"]["status"] == "warn"
    assert "'hello'" in found["types"]["message"]
    assert "outlast worker -q llm" in found["types"]["fix"]


def test_doctor_names_a_missing_folder_and_how_to_make_it(outlast):
    ran = outlast("doctor", "--json", "--engine", "sqlite:///a/b/jobs.db")
    assert ran.code == 4
    assert "mkdir -p" in checks(ran.json())["file"]["fix"]


def test_doctor_warns_of_an_engine_that_forgets(outlast):
    found = checks(outlast.json("doctor", "--engine", "memory://"))
    assert found["durability"]["status"] == "warn"


# Which engine, which app -------------------------------------------------------------------------

NAMED = (
    'from outlast import Outlast\njobs = Outlast("sqlite:///{0}.db")\n@jobs.task\ndef {0}(): ...\n'
)


def test_flags_win_over_code_and_code_over_the_environment(outlast):
    outlast.write_app("app.py", NAMED.format("code"))
    env = {"OUTLAST_URL": "sqlite:///env.db"}
    outlast("migrate", "--engine", "sqlite:///flag.db", env=env)
    assert files(outlast.folder) == {"flag.db"}
    outlast("migrate", env=env)
    assert files(outlast.folder) == {"flag.db", "code.db"}
    (outlast.folder / "app.py").unlink()
    outlast("migrate", env=env)
    outlast("migrate")
    assert files(outlast.folder) == {"flag.db", "code.db", "env.db", "outlast.db"}


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.db")}


def test_an_app_is_named_by_flag_or_environment_or_found_here(outlast):
    outlast.write_app("work.py", NAMED.format("named"))
    outlast.write_app("tasks.py", NAMED.format("found"))
    assert outlast("enqueue", "found").code == 0
    assert outlast("enqueue", "named").code == 2
    for target in ("work:jobs", "work", "work.py", "work.py:jobs"):
        assert outlast("enqueue", "named", "--app", target).code == 0, target
    assert outlast("enqueue", "named", env={"OUTLAST_APP": "work:jobs"}).code == 0


def test_an_app_may_be_a_file_in_another_folder(outlast):
    (outlast.folder / "sub").mkdir()
    outlast.write_app("sub/work.py", NAMED.format("named"))
    for target in ("sub/work.py", "sub/work.py:jobs"):
        with outlast.worker(target):
            assert outlast("enqueue", "named", "--app", target, "--wait").code == 0


def test_files_that_do_not_speak_of_outlast_are_not_imported(outlast):
    outlast.write_app("main.py", "raise SystemExit('imported')")
    assert outlast("tasks", "ls").code == 0


def test_what_an_app_prints_while_it_is_imported_stays_out_of_the_answer(outlast):
    outlast.write_app("main.py", "print('loading')\n" + NAMED.format("job"))
    assert outlast.json("tasks", "ls")["items"] == []
    with outlast.worker():
        assert outlast("enqueue", "job", "--wait").out == "null\n"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "import outlast\nimport nosuch",
            "ModuleNotFoundError: No module named 'nosuch' (main.py:2)",
        ),
        ("import outlast\ndef (", "SyntaxError"),
        ("import outlast, sys\nsys.exit(3)", "SystemExit: 3"),
    ],
)
def test_an_app_that_cannot_be_imported_is_one_sentence_with_the_cause(outlast, source, told):
    outlast.write_app("main.py", source)
    for command in (("enqueue", "x"), ("worker", "main:app"), ("dev",)):
        ran = outlast(*command)
        assert ran.code == 2, ran
        assert told in ran.err
        assert "Traceback" not in ran.err
    without = outlast("tasks", "ls", "--engine", "sqlite:///other.db")
    assert without.code == 0


def test_an_app_that_is_not_there_is_said_so(outlast):
    for target, told in (("ghost:app", "no module 'ghost'"), ("json:app", "no Outlast app")):
        ran = outlast("enqueue", "x", "--app", target)
        assert ran.code == 2
        assert told in ran.err
    assert "outlast worker mymodule:app" in outlast("worker").err


def test_the_traceback_is_there_for_who_asks(outlast):
    ran = outlast("tasks", "ls", "--engine", "nosuch://x", env={"OUTLAST_DEBUG": "1"})
    assert "Traceback" in ran.err


# Help --------------------------------------------------------------------------------------------


def test_help_names_every_command(outlast):
    ran = outlast("--help")
    assert ran.code == 0
    named = set(re.findall(r"^  (\w+)  ", ran.out, re.MULTILINE))
    assert named >= {
        "dev", "serve", "worker", "enqueue", "tasks", "dlq", "queues", "workers", "limits",
        "migrate", "doctor", "version",
    }  # fmt: skip


def test_help_imports_nothing_heavy():
    """Drivers, the web framework and the tables come with the commands that need them."""
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "outlast", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert "outlast.cli" in loaded
    assert not loaded & {"apsw", "fastapi", "httpx2", "pydantic", "starlette", "uvicorn"}


def test_help_imports_no_driver_and_no_server(outlast):
    code = (
        "import sys; sys.argv = ['outlast', '--help']; import atexit\n"
        "heavy = {'apsw', 'fastapi', 'uvicorn', 'pydantic', 'rich', 'httpx2'}\n"
        "atexit.register(lambda: print(sorted(heavy & set(sys.modules)), file=sys.stderr))\n"
        "from outlast.cli import main; main()"
    )
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    assert ran.stderr == "[]\n"


def test_wrong_usage_is_exit_code_2(outlast):
    for args in ((), ("nosuch",), ("tasks",), ("tasks", "show"), ("tasks", "ls", "--nosuch")):
        assert outlast(*args).code == 2, args
