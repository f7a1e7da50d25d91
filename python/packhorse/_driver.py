"""A ``packhorse run`` that this process drives: task lines in, events out.

The program runs in a session of its own, so that Ctrl-C in a terminal reaches this
process alone, which then decides. It ends with this process, however that ends
(``--end-with``), and its tasks with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from typing import IO, Any

from ._binary import binary, own_process
from ._errors import PackhorseError

Event = dict[str, Any]

#: How much is read at once.
_CHUNK = 1 << 16


class Driver:
    """One ``packhorse`` process."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        tasks: str | None = None,
        without: str = "",
    ) -> None:
        """Starts it. ``tasks`` is a file of task lines; without it, they are sent. ``without`` is
        a variable that it does not get."""
        # What it says on standard error is wanted only if it fails, so it goes to a file:
        # a pipe would need a reader.
        self._said: IO[bytes] = tempfile.TemporaryFile()
        #: Kept: at the end of the run it may no longer be where it is looked for.
        self._binary = binary()
        command = [self._binary, "run", "--json", "--end-with", own_process()]
        command += ["--tasks", tasks or "-", *words]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if tasks else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={name: value for name, value in environment().items() if name != without},
            start_new_session=True,
            # Python's buffers have locks. One that a thread holds while this process forks
            # would be held in the copy for ever.
            bufsize=0,
        )
        #: Lines that were read, and the beginning of the next one.
        self._lines: deque[bytes] = deque()
        self._rest = b""
        #: The number of the run, once it has started.
        self.run: int | None = None
        #: Its exit status, from its last event.
        self.exit: int | None = None

    def send(self, line: str) -> None:
        """Sends task lines. ``BrokenPipeError`` if it is gone."""
        assert self._process.stdin is not None
        data = line.encode()
        # Straight to the descriptor: what is sent must not linger in a buffer.
        descriptor = self._process.stdin.fileno()
        while data:
            data = data[os.write(descriptor, data) :]

    def end_input(self) -> None:
        """No more tasks come: it ends when those it has are done."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def let_go(self) -> None:
        """In a forked copy of this process: has nothing to do with the program any more.

        The descriptors stay open, on nothing: they belong to objects that close them, and
        by then their numbers could be those of other files.
        """
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                os.dup2(nothing, stream.fileno(), inheritable=False)
        os.close(nothing)

    def started(self) -> Event:
        """Waits for the first event. ``PackhorseError`` if it refuses to start."""
        try:
            event = next(self.events(), None)
        except BaseException:
            # Ctrl-C in this moment.
            self.stop()
            for _ in self.events():
                pass
            self.wait()
            raise
        if event is None:
            self.wait()
            raise PackhorseError(self.said() or f"packhorse ended with {self.status()}")
        return event

    def events(self) -> Iterator[Event]:
        """Its events as they come, up to its end."""
        while (line := self._next_line()) is not None:
            try:
                event: Event = json.loads(line)
            except ValueError:
                # Cut off: it was killed while it wrote.
                continue
            if event["event"] == "run-started":
                self.run = event["run"]
            elif event["event"] == "run-ended":
                self.exit = event["exit"]
            yield event

    def _next_line(self) -> bytes | None:
        """The next line; None if there is no more."""
        assert self._process.stdout is not None
        while not self._lines:
            try:
                data = self._process.stdout.read(_CHUNK)
            except ValueError:
                # It was waited for, by whoever is told of the events.
                return None
            if not data:
                rest, self._rest = self._rest, b""
                return rest or None
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._lines.extend(lines)
        return self._lines.popleft()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Asks it to end its tasks, and itself."""
        if self._process.poll() is None:
            self._process.send_signal(how)

    def wait(self) -> int:
        """Waits for its end. Closes what was open."""
        status = self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
        return status

    def status(self) -> str:
        """How it ended, in words."""
        code = self._process.returncode
        if code is not None and code < 0:
            return f"signal {-code}"
        return f"exit status {code}"

    def said(self) -> str:
        """What it said on standard error."""
        self._said.seek(0)
        text = self._said.read().decode(errors="replace").strip()
        return text.removeprefix("error: ")

    def end_leftovers(self) -> None:
        """Ends what it has left running, if it was killed."""
        if self._process.returncode in (-9, -6, -11, -7):
            self._stop_run()

    def _stop_run(self) -> None:
        if self.run is None:
            return
        try:
            subprocess.run(
                [self._binary, "stop", str(self.run)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
        except OSError:
            # The program is not there any more, and whoever waits for the end of the run
            # must hear of that all the same.
            pass


class ClusterDriver(Driver):
    """The same for a run on a Slurm cluster, whose tasks are all known when it starts."""

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Cancels its jobs. It ends when they have, or at once if it is killed."""
        if how != signal.SIGTERM:
            super().stop(how)
            return
        if self.run is None:
            # Its jobs are being submitted, and have no name yet.
            next(self.events(), None)
        self._stop_run()

    def end_leftovers(self) -> None:
        """Cancels what it has left in Slurm's queue, if it was killed."""
        if self.exit is None:
            self._stop_run()


def environment() -> dict[str, str]:
    """That of this process, with the GPUs that are hidden from it alone."""
    visibility = sys.modules.get("packhorse.gpu_task_scheduler._visibility")
    return dict(os.environ) if visibility is None else visibility.environment()
