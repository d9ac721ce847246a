"""The conformance suite: what `outlast/engine.py` says in prose, executed on every engine.

One chapter (`test_*.py`) per paragraph there, in a small language (`language.py`). `model.py` is
the same in executable form, `machine.py` drives engine and model together, and `test_mutants.py`
shows that a wrong engine is noticed.

OUTLAST_TEST_ENGINES=sqlite,memory chooses engines (`servers.py`); OUTLAST_TEST_DEEP=20 looks long;
OUTLAST_TEST_MUTANTS=all judges every wrong engine.
One chapter on one engine: OUTLAST_TEST_ENGINES=memory pytest tests/conformance/test_limits.py
"""
