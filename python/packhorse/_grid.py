"""Every combination of parameters."""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Iterable, Iterator
from typing import Any


def grid(**parameters: Iterable[Any]) -> Iterator[Any]:
    """Every combination of the parameters' values; the last parameter changes fastest.

    Each is a named tuple::

        for lr, bs in packhorse.grid(lr=[0.1, 0.01], bs=[32, 64]): ...
        for point in packhorse.grid(lr=[0.1, 0.01], bs=[32, 64]):
            pool.submit(train, **point._asdict())

    Text is one value, not a list of characters; so is anything that is no iterable.
    """
    # Not checked lazily: what is wrong is told where it was written.
    values = [_values(value) for value in parameters.values()]
    # Names such as `class` or `_x` cannot be attributes, but are still in `_asdict`'s order.
    row = namedtuple("Point", list(parameters), rename=True)  # type: ignore[misc]
    return map(row._make, itertools.product(*values))


def _values(value: Any) -> list[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        return [value]
    return list(value)
