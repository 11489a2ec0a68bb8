"""Descriptions are built when they are first used, by whichever thread comes first."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Self

import pytest
from pydantic import model_validator

from hockeystick.errors import InvalidInputError
from hockeystick.spec import Count, Spec

THREADS = 8


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads that take turns after every few instructions."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("restless")
def test_threads_that_build_the_same_description_validate_by_it_alone() -> None:
    """A thread that met the class half built would validate by its base, which has no such rule and no such field."""
    for _ in range(20):

        class Base(Spec):
            bins: Count

        class Own(Base):
            epochs: Count = 1

            @model_validator(mode="after")
            def _few(self) -> Self:
                if self.bins > 10:
                    raise ValueError("at most 10")
                return self

        start = Barrier(THREADS)

        def use(own: type[Own] = Own, start: Barrier = start) -> tuple[int, int]:
            start.wait()
            with pytest.raises(InvalidInputError):
                own(bins=11, epochs=2)
            made = own(bins=3, epochs=2)
            return made.bins, made.epochs

        with ThreadPoolExecutor(THREADS) as pool:
            tasks = [pool.submit(use) for _ in range(THREADS)]
            assert {task.result() for task in tasks} == {(3, 2)}
