"""A real browser for tests, which are skipped where there is none."""

from contextlib import contextmanager

import pytest

from margmap.bench import browser
from margmap.errors import MissingExtraError


@contextmanager
def chromium(folder):
    """A browser whose profile is in ``folder``; the test is skipped where there is none."""
    try:
        opened = browser.chromium(folder)
        session = opened.__enter__()
    except MissingExtraError as error:
        pytest.skip(str(error))
    try:
        yield session
    finally:
        opened.__exit__(None, None, None)
