"""Registering handlers, and what their tasks look like in the engine."""

from dataclasses import dataclass

import pytest

from outlast import BadInput, Context, Limit, Outlast, Queue, Retry, TooLarge
from outlast.core.model import Task, TaskQuery, Term
from outlast.handler import Gate, Payload
from outlast.testing import testing

LIMITS = [Limit("provider:x", slots=8), Limit("user:*", slots=2)]


def new_app(**more: object) -> Outlast:
    return Outlast("memory://", limits=LIMITS, **more)  # type: ignore[arg-type]


async def only(app: Outlast) -> Task:
    [task] = (await app.engine.tasks(TaskQuery())).items
    return task


# registering -------------------------------------------------------------------------------------


def test_a_decorated_function_is_still_that_function() -> None:
    app = new_app()

    @app.task()
    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    assert add(3) == 5
    assert (getattr(add, "__name__", ""), add.__doc__) == ("add", "Adds.")
    assert app.handlers == {"add": add}


def test_the_mode_follows_from_the_function_and_the_options() -> None:
    app = new_app()

    @app.task
    async def waits() -> None: ...

    @app.task
    def blocks() -> None: ...

    @app.task(isolate=True, memory="1GB", name="media.crunch", retry="5s 30s", timeout="2m",
              max_attempts=7, queue="cpu")  # fmt: skip
    def crunches() -> None: ...

    command = app.command("thumb", ["convert", "{src}", "{size.width}x{size.height}"])
    assert [h.mode for h in (waits, blocks, crunches, command)] == [
        "async", "thread", "process", "command",
    ]  # fmt: skip
    assert (waits.retry, waits.max_attempts, waits.timeout_ms) == (Retry(), 4, None)
    assert (crunches.type, crunches.memory_mb, crunches.retry) == (
        "media.crunch", 1024, Retry("5s 30s"),
    )  # fmt: skip
    assert (crunches.queue, crunches.timeout_ms, crunches.max_attempts) == ("cpu", 120_000, 7)
    assert command.command == ("convert", "{src}", "{size.width}x{size.height}")


def test_what_could_never_work_is_refused_at_registration() -> None:
    app = new_app()

    async def work(user: str) -> None: ...

    refused: list[tuple[dict[str, object], str]] = [
        ({"limits": ["usr:{user}"]}, r"no definition; add Limit\('usr:\*'"),
        ({"limits": ["provider:y"]}, r"no definition; add Limit\('provider:y'"),
        ({"limits": ["user:{usr}"]}, "takes no 'usr'; did you mean 'user'?"),
        ({"search": ["usr.id"]}, "takes no 'usr'"),
        ({"search": "user"}, "lists of texts"),
        ({"memory": "1GB"}, "add isolate=True"),
        ({"name": "no spaces"}, "is no name for a type"),
        ({"retry": 3}, "retry=3"),
        ({"timeout": "soon"}, "is not a duration"),
        ({"delay": "5s", "run_at": "2027-01-01T00:00:00Z"}, "not both"),
        ({"retires": 3}, "There is no option 'retires'"),
    ]
    for options, words in refused:
        with pytest.raises(BadInput, match=words):
            app.task(**options)(work)  # type: ignore[call-overload]
    assert app.handlers == {}
    app.task(work)
    with pytest.raises(BadInput, match="registered already"):
        app.task(work)
    with pytest.raises(BadInput, match="registered already"):
        app.external("work")


def test_an_app_is_found_by_the_module_its_handlers_live_in() -> None:
    from outlast import samples

    assert samples.app.target == "outlast.samples:app"
    assert new_app().target is None


# enqueuing ---------------------------------------------------------------------------------------


async def test_a_task_carries_what_handler_and_call_say() -> None:
    app = new_app()

    @app.task(limits=["provider:x", "user:{user}"], search=("user", "page.n"), max_attempts=5,
              priority="low", timeout="2m")  # fmt: skip
    async def summarize(ctx: Context, url: str, user: str = "nobody", page: object = None) -> str:
        return url

    async with app:
        told = summarize.options(priority="high", session_id="s-1", tags=["t"], user_id="u")
        handle = await told.enqueue("https://example.org", page={"n": 3})
        task = await only(app)
        terms = (Term("attr.page.n", ("3",)), Term("attr.user", ("nobody",)))
        found = await app.engine.tasks(TaskQuery(terms=terms))
    assert (task.id, task.type, handle.existing) == (handle.id, "summarize", False)
    assert task.payload == b'{"url":"https://example.org","page":{"n":3}}'
    assert task.limits == (("provider:x", 1), ("user:nobody", 1))
    assert (task.priority, task.max_attempts, task.timeout_ms) == (1, 5, 120_000)
    assert (task.session_id, task.user_id, task.tags) == ("s-1", "u", ("t",))
    assert found.items == (task,)


async def test_options_stay_with_the_handler_they_were_given_to() -> None:
    app = new_app()

    @app.task
    async def work() -> None: ...

    later = work.options(delay="1h", session_id="s")
    async with app:
        assert await (await work.enqueue()).status() == "ready"
        assert await (await later.enqueue()).status() == "scheduled"
        both = await later.options(priority=7).enqueue()
        record = await both.refresh()
        assert (record.status, record.priority, record.session_id) == ("scheduled", 7, "s")


async def test_tasks_are_followed_unless_told_otherwise() -> None:
    app = new_app()

    @app.task
    async def work() -> None: ...

    @app.task(followed=False)
    async def bulk() -> None: ...

    async with app:
        assert (await (await work.enqueue()).refresh()).followed
        assert not (await (await bulk.enqueue()).refresh()).followed
        assert (await (await bulk.options(followed=True).enqueue()).refresh()).followed


@dataclass
class Person:
    id: int


async def test_limits_and_search_read_the_json_of_typed_arguments() -> None:
    app = new_app()

    @app.task(limits=["user:{person.id}"], search=["person.id"])
    async def greet(person: Person) -> None: ...

    async with app:
        await greet.enqueue(Person(7))
        assert (await only(app)).limits == (("user:7", 1),)


async def test_a_function_of_the_payload_may_name_limits_units_and_define_them() -> None:
    app = new_app()

    def limits_of(payload: Payload) -> list[Gate]:
        tokens = payload["tokens"]
        assert isinstance(tokens, int)
        return [("provider:x", tokens), Limit(f"job:{tokens}", slots=1)]

    @app.task(limits=limits_of)
    async def ask(tokens: int = 9) -> None: ...

    @app.task(limits=lambda p: ["nobody:knows"])
    async def wrong() -> None: ...

    async with app:
        await ask.enqueue()
        assert (await only(app)).limits == (("provider:x", 9), ("job:9", 1))
        assert len(await app.engine.get("limit", ["job:9"])) == 1
        with pytest.raises(BadInput, match="'nobody:knows' has no definition"):
            await wrong.enqueue()


async def test_a_fair_queue_alternates_between_its_keys() -> None:
    app = new_app(queues=[Queue("shared", fair_by="user"), Queue("owned", fair_by="user_id")])
    ran: list[str] = []

    @app.task(queue="shared")
    async def work(user: str, n: int) -> None:
        ran.append(f"{user}{n}")

    async with testing(app) as t:
        await app.enqueue([work.call("a", n) for n in range(3)])
        await app.enqueue([work.call("b", n) for n in range(2)])
        await app.enqueue([work.options(queue="owned", user_id=u).call(u, 9) for u in "xxy"])
        await t.run()
    assert [one for one in ran if one[0] in "ab"] == ["a0", "b0", "a1", "b1", "a2"]
    assert [one for one in ran if one[0] in "xy"] == ["x9", "y9", "x9"]


async def test_bad_arguments_change_nothing() -> None:
    app = new_app()

    @app.task(limits=["user:{user}"])
    async def work(user: str, n: int = 0) -> None: ...

    async with app:
        with pytest.raises(BadInput, match="misses 'user'"):
            await work.enqueue()  # type: ignore[call-arg]
        with pytest.raises(BadInput, match=r"\$\.n"):
            await work.enqueue("a", n="x")  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="an empty text"):
            await work.enqueue("")
        with pytest.raises(TooLarge, match="1,048,576"):
            await work.enqueue("a" * 1_048_577)
        with pytest.raises(BadInput, match="needs a unique_key"):
            await work.options(unique_for="1h").enqueue("a")
        assert (await app.engine.tasks(TaskQuery())).items == ()


async def test_a_batch_is_all_or_nothing_and_keeps_its_order() -> None:
    app = new_app()

    @app.task
    async def work(n: int) -> None: ...

    async with app:
        handles = await app.enqueue([work.call(n) for n in range(3)])
        payloads = [(await handle.refresh()).payload for handle in handles]
        assert payloads == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
        assert await app.enqueue([]) == []
        nobody = "01890a5d-ac96-774b-bcce-b302099a8057"
        with pytest.raises(BadInput):
            await app.enqueue([work.call(3), work.options(after=[nobody]).call(4)])
        assert len((await app.engine.tasks(TaskQuery())).items) == 3


async def test_id_and_unique_key_make_an_enqueue_idempotent() -> None:
    app = new_app()

    @app.task
    async def work(n: int) -> None: ...

    async with app:
        first = await work.options(unique_key="k").enqueue(1)
        again = await work.options(unique_key="k").enqueue(2)
        same = await work.options(id=first.id).enqueue(3)
        assert [h.id for h in (again, same)] == [first.id] * 2
        assert [h.existing for h in (first, again, same)] == [False, True, True]


async def test_an_enqueue_joins_a_transaction_of_the_engine() -> None:
    app = new_app()

    @app.task
    async def work(n: int) -> None: ...

    async with app:
        with pytest.raises(ZeroDivisionError):
            async with app.engine.transaction() as connection:
                await work.options(within=connection).enqueue(1)
                raise ZeroDivisionError
        async with app.engine.transaction() as connection:
            await app.enqueue([work.call(2), work.call(3)], within=connection)
        assert len((await app.engine.tasks(TaskQuery())).items) == 2
        with pytest.raises(BadInput, match=r"Give within= to app\.enqueue"):
            await app.enqueue([work.options(within=connection).call(4), work.call(5)])


async def test_a_closed_app_says_how_to_open_it() -> None:
    app = new_app()

    @app.task
    async def work() -> None: ...

    with pytest.raises(Exception, match="inside `async with app:`"):
        await work.enqueue()
