"""One task for :func:`packhorse.run`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

#: A line for the shell, or a program and its arguments.
Command = Union[str, bytes, Sequence[Union[str, bytes, "os.PathLike[str]"]]]
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class Task:
    """A command and what it needs: everything that a task line can say.

    ``command`` is a line for the shell, or a list of a program and its arguments. What is
    left out is taken from the options of the run. The keys are described in the manual,
    under "Task lines".
    """

    __slots__ = ("_keys",)

    def __init__(
        self,
        command: Command,
        *,
        name: str | None = None,
        after: str | Iterable[str] | None = None,
        env: Mapping[str, str | bytes] | None = None,
        folder: Path | None = None,
        params: Mapping[str, Any] | None = None,
        results: Path | None = None,
        log: Path | None = None,
        gpus: float | str | None = None,
        vram: int | str | None = None,
        gpu_model: str | None = None,
        signature: str | None = None,
        probe: str | int | None = None,
        cores: int | None = None,
        cpu: float | None = None,
        ram: int | str | None = None,
        priority: int | None = None,
        retries: int | None = None,
        timeout: float | str | None = None,
        grace: float | str | None = None,
        preload: Iterable[str] | None = None,
        group: str | None = None,
        group_limit: int | None = None,
    ) -> None:
        keys: dict[str, Any] = {
            "command": _command(command),
            "name": name,
            "after": [after] if isinstance(after, str) else _list(after),
            "env": None if env is None else {key: text(value) for key, value in env.items()},
            "folder": None if folder is None else text(folder),
            "params": None if params is None else dict(params),
            "results": None if results is None else text(results),
            "log": None if log is None else text(log),
            "gpus": gpus,
            "vram": vram,
            "gpu_model": gpu_model,
            "signature": signature,
            "probe": probe,
            "cores": cores,
            "cpu": cpu,
            "ram": ram,
            "priority": priority,
            "retries": retries,
            "timeout": timeout,
            "grace": grace,
            "preload": [preload] if isinstance(preload, str) else _list(preload),
            "group": group,
            "group_limit": group_limit,
        }
        self._keys = {key: value for key, value in keys.items() if value is not None}

    def spec(self) -> dict[str, Any]:
        """The task as the object of a task line."""
        return dict(self._keys)

    def __repr__(self) -> str:
        keys = dict(self._keys)
        words = [repr(keys.pop("command"))]
        words += [f"{key}={value!r}" for key, value in keys.items()]
        return f"packhorse.Task({', '.join(words)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Task) and self._keys == other._keys

    __hash__ = None  # type: ignore[assignment]


def text(value: Path) -> str | dict[str, str]:
    """Text as a task line has it; bytes that are not UTF-8 in the form for these."""
    value = os.fsencode(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        plain = "".join(
            chr(byte) if 32 <= byte < 127 and byte not in b"\\\"'" else f"\\x{byte:02x}"
            for byte in value
        )
        return {"bytes": plain}


def _command(command: Command) -> Any:
    if isinstance(command, (str, bytes)):
        return text(command)
    words = [text(word) for word in command]
    if not words:
        raise ValueError("a command needs at least the name of a program")
    return words


def _list(value: Iterable[str] | None) -> list[str] | None:
    return None if value is None else list(value)
