"""The classes that experiments are derived from."""

from __future__ import annotations

import abc
import datetime
from typing import Any

from .cw_data.cw_logging import LoggerArray
from .cw_error import ExperimentSurrender


class AbstractExperiment(abc.ABC):
    """An experiment: ``initialize``, ``run`` and ``finalize`` are called once a repetition."""

    @abc.abstractmethod
    def initialize(self, cw_config: dict[str, Any], rep: int, logger: LoggerArray) -> None:
        """Prepares a repetition: its configuration, its number, and the loggers."""

    @abc.abstractmethod
    def run(self, cw_config: dict[str, Any], rep: int, logger: LoggerArray) -> None:
        """What the experiment does. Called after ``initialize``."""

    @abc.abstractmethod
    def finalize(
        self, surrender: ExperimentSurrender | None = None, crash: bool = False
    ) -> None:
        """Cleans up. Always called, whatever has happened.

        ``surrender`` is what the experiment gave up with, if it did; ``crash`` says whether
        it raised any other exception.
        """


class AbstractIterativeExperiment(AbstractExperiment):
    """An experiment of ``iterations`` like steps, each of which has a result."""

    @abc.abstractmethod
    def iterate(self, cw_config: dict[str, Any], rep: int, n: int) -> dict[str, Any]:
        """One iteration. What it returns is given to the loggers."""

    @abc.abstractmethod
    def save_state(self, cw_config: dict[str, Any], rep: int, n: int) -> None:
        """Called after each iteration, once its result was logged."""

    def run(self, cw_config: dict[str, Any], rep: int, logger: LoggerArray) -> None:
        """Runs the iterations, up to the last one or to one that surrenders."""
        for n in range(cw_config["iterations"]):
            given_up: ExperimentSurrender | None = None
            try:
                result = self.iterate(cw_config, rep, n)
            except ExperimentSurrender as surrender:
                given_up, result = surrender, surrender.payload
            # In the same dictionary: what the experiment keeps of it is complete, too.
            result.update(ts=datetime.datetime.now(), rep=rep, iter=n)
            logger.process(result)
            self.save_state(cw_config, rep, n)
            if given_up is not None:
                raise given_up
