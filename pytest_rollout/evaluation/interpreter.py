"""The evaluator's own Python: the one that runs pytest here, shown read-only to an evaluation.

Candidate code is never run by an interpreter, or with a pytest, that lies in the candidate's tree.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache
from pathlib import Path

import msgspec

from pytest_rollout.agents.paths import is_below, resolve_paths
from pytest_rollout.agents.protocol import join_path
from pytest_rollout.errors import ConfigError, EvaluatorError
from pytest_rollout.executors.bwrap import FIXED_BINDS
from pytest_rollout.executors.protocol import Bind

__all__ = ["Interpreter", "own_interpreter"]

_PACKAGE = Path(__file__).resolve().parents[1]
_INSIDE = "/rollout/lib"
_MAIN = "from pytest_rollout.evaluation.guest.main import main; main()"
_START = f"import sys; sys.path.insert(0, {_INSIDE!r}); {_MAIN}"
# Where nothing is mounted, the folder that the package lies in is not shown, and so can't be searched.
_START_UNMOUNTED = (
    f"import sys, importlib.util as util; sys.path.insert(0, {str(_PACKAGE.parent)!r}); "
    f"spec = util.spec_from_file_location({_PACKAGE.name!r}, {str(_PACKAGE / '__init__.py')!r}); "
    f"module = sys.modules[{_PACKAGE.name!r}] = util.module_from_spec(spec); spec.loader.exec_module(module); {_MAIN}"
)
_NEEDED = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments")


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """What an evaluation needs to see: ``binds``, the folders of packages outside the prefix, and a PATH.

    ``program`` is ``sys.executable`` by a name that the binds have.
    """

    binds: tuple[Bind, ...]
    packages: tuple[str, ...]
    path: str
    program: str

    def argv(self, *words: str, mounted: bool) -> tuple[str, ...]:
        """The words that run a guest: no site of the user's, no bytecode written, no ``''`` on the path."""
        return (self.program, "-I", "-B", "-c", _START if mounted else _START_UNMOUNTED, *words)

    def shows(self, path: Path) -> str | None:
        """The bound folder that ``path`` lies in, or None."""
        return next((bind.source for bind in self.binds if is_below(path, bind.source)), None)


@cache
def own_interpreter() -> Interpreter:
    """The interpreter of this process; raises EvaluatorError where it can't be shown to a sandbox."""
    packages = [folder for name in _NEEDED if (folder := _folder_of(name)) is not None]
    outside = [folder for folder in dict.fromkeys(packages) if not is_below(folder, sys.prefix)]
    wanted = [folder for folder in (sys.prefix, *outside) if not any(is_below(folder, top) for top in FIXED_BINDS)]
    try:
        binds = resolve_paths(wanted, Path("/"), "the evaluator's Python")
    except ConfigError as error:
        raise EvaluatorError(error.message, hint="Run pytest from a virtual environment of its own.") from None
    guest = Bind(source=str(_PACKAGE), target=f"{_INSIDE}/{_PACKAGE.name}")
    return Interpreter(binds=(*binds, guest), packages=tuple(outside), path=join_path(binds), program=_program())


def _program() -> str:
    """``sys.executable``, which begins at the current folder where Python was started as ``../venv/bin/python``."""
    plain = os.path.normpath(sys.executable)
    return plain if os.path.exists(plain) and os.path.samefile(plain, sys.executable) else sys.executable


def _folder_of(name: str) -> str | None:
    """The folder of packages that a module is in."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    folder = os.path.dirname(spec.origin)
    return os.path.dirname(folder) if spec.submodule_search_locations else folder
