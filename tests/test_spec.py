"""Descriptions: built when they are first used, by whichever thread comes first; errors have whole names of fields."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Self

import pytest
from pydantic import field_validator, model_validator

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


class Inner(Spec):
    bins: Count = 1
    epochs: Count = 1

    @field_validator("epochs")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise InvalidInputError(f"The 'epochs' field must be even. Got {value} instead")
        return value

    @model_validator(mode="after")
    def _few(self) -> Self:
        if self.bins > 10:
            raise InvalidInputError(
                f"The 'bins' field must be at most 10. Got {self.bins} instead; outer.bins = 10 would do"
            )
        return self


class Outer(Spec):
    inner: Inner


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"bins": 11, "epochs": 2}, "field must be at most 10. Got 11 instead; outer.bins = 10 would do."),
        ({"epochs": 3}, "field must be even. Got 3 instead."),
    ],
)
def test_an_error_of_a_description_inside_another_has_the_whole_name_of_its_field(
    values: dict[str, int], says: str
) -> None:
    name = min(values)
    for description, content, whole in ((Inner, values, name), (Outer, {"inner": values}, f"inner.{name}")):
        with pytest.raises(InvalidInputError) as error:
            description.parse(content)
        assert str(error.value) == f"The {whole!r} {says}"
