"""``as_completed`` and ``wait`` of ``concurrent.futures``, which keep the type of futures."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

_F = TypeVar("_F", bound="concurrent.futures.Future[Any]")

if TYPE_CHECKING:

    class Waited(tuple[set[_F], set[_F]], Generic[_F]):
        """The futures that are done, and those that are not."""

        done: set[_F]
        not_done: set[_F]


def as_completed(fs: Iterable[_F], timeout: float | None = None) -> Iterator[_F]:
    """The futures as they are done, as ``concurrent.futures.as_completed`` gives them."""
    return cast("Iterator[_F]", concurrent.futures.as_completed(_hurried(fs), timeout))


def wait(
    fs: Iterable[_F],
    timeout: float | None = None,
    return_when: str = concurrent.futures.ALL_COMPLETED,
) -> Waited[_F]:
    """Waits for futures, as ``concurrent.futures.wait`` does."""
    return cast("Waited[_F]", concurrent.futures.wait(_hurried(fs), timeout, return_when))


def _hurried(fs: Iterable[_F]) -> list[_F]:
    """The same futures. Those of a cluster are told that somebody waits for them."""
    futures = list(fs)
    for future in futures:
        hurry = getattr(future, "hurry", None)
        if hurry is not None:
            hurry()
    return futures
