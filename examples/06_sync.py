"""Synchronous code: the same app, the same types, one event loop in the background."""

from outlast import Outlast
from outlast.worker import Worker

app = Outlast("memory://")


@app.task
def count_words(text: str) -> int:
    """A plain function: a worker runs it in a thread."""
    return len(text.split())


def main() -> None:
    assert count_words("plain call") == 2  # still the function it was

    with app.sync() as q:
        handle = q.enqueue(count_words, "the quick brown fox")
        later = q.enqueue(count_words.options(delay="1h"), "not yet")

        q.wait(Worker(app).drain())  # usually `outlast worker`, elsewhere

        words: int = handle.result(timeout="10s")
        print(words, later.status())
        for event in handle.events():
            print(event.kind, event.data)
        later.cancel("changed my mind")


if __name__ == "__main__":
    main()
