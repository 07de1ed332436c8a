"""Settings out of a pytest config, and the way to a worker: plain values in ``workerinput``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rollout.errors import ConfigError
from pytest_rollout.identity import new_run_id
from pytest_rollout.knobs import KNOBS
from pytest_rollout.settings import Settings, resolve

if TYPE_CHECKING:
    from pytest_rollout.redaction.redactor import Redactor

__all__ = ["environment_of_worker", "new_run", "redactor_of_process", "settings_of"]


def settings_of(config: pytest.Config) -> Settings:
    """The settings of a session; raises ConfigError."""
    options = {knob.name: config.getoption(f"rollout_{knob.name}", None) for knob in KNOBS if knob.option}
    ini = {knob.name: _ini(config, f"rollout_{knob.name}") for knob in KNOBS if knob.ini}
    settings = resolve(
        options,
        ini,
        root=config.rootpath,
        invoked=Path(config.invocation_params.dir),
        ini_folder=config.inipath.parent if config.inipath is not None else config.rootpath,
    )
    if settings.rescore is None:
        return settings
    from pytest_rollout.rescoring.stored import find_stored  # not for a suite that is run, or that has no rollouts
    from pytest_rollout.store.folder import ResultsFolder

    found = find_stored(ResultsFolder(Path(settings.dir)), settings.rescore, Path(config.invocation_params.dir))
    return replace(settings, rescore=str(found))  # 'last' is another one as soon as this run begins


def _ini(config: pytest.Config, name: str) -> object:
    try:
        return config.getini(name)
    except (TypeError, ValueError) as error:  # TOML knows types, and pytest refuses the wrong one
        raise ConfigError(f"{name} in the ini file: {error}") from None


def new_run(now: datetime) -> str:
    """A fresh run id."""
    return new_run_id(now, lambda number: os.urandom(number).hex())


def redactor_of_process() -> Redactor:
    """What redacts where there is no run: its settings may be what is wrong."""
    from pytest_rollout.redaction.redactor import Redactor  # not for a suite without rollouts

    return Redactor.of_process(os.environ, exists=os.path.exists)


def environment_of_worker(workerinput: Mapping[str, Any]) -> tuple[Settings, str, str, str]:
    """What the controller decided: settings, the names of the run, of this worker and of the session.

    Raises ConfigError as it did.
    """
    sent = workerinput["rollout"]
    if sent["refused"]:
        raise ConfigError(sent["refused"])
    return Settings(**sent["settings"]), sent["run"], workerinput["workerid"], sent["session"]
