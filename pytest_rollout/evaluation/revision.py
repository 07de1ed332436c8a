"""The evaluator revision: which checks scored a rollout.

It digests the test's module, the conftest files above it, the modules of the suite that these
import, and the hidden files. Results of two evaluator revisions were not measured by one measure.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from pytest_rollout.identity import canonical_digest

__all__ = ["evaluator_revision"]

_MAX_FILES = 2_000
_NOT_OURS = ("site-packages", "dist-packages")


def evaluator_revision(
    files: Sequence[Path], root: Path, hidden_revision: str | None, modules: Mapping[str, ModuleType]
) -> str:
    """``sha256:…`` of the checks that these files (a test's module and its conftests) make.

    ``root`` is the suite's root folder, below which imported modules belong to it; ``modules`` those that
    are loaded; ``hidden_revision`` the fingerprint of the hidden files.
    """
    found: dict[str, str] = {}
    pending = [path.resolve() for path in files]
    top = root.resolve()
    while pending and len(found) < _MAX_FILES:
        path = pending.pop()
        name = os.path.relpath(path, top)
        if name in found:
            continue
        try:
            data = path.read_bytes()
        except OSError:
            continue
        found[name] = hashlib.sha256(data).hexdigest()
        pending += [each for each in _imported(path, data, modules) if _is_of_suite(each, top)]
    return canonical_digest({"files": found, "hidden": hidden_revision})


def _is_of_suite(path: Path, top: Path) -> bool:
    return path.is_relative_to(top) and not any(part in _NOT_OURS for part in path.parts)


def _imported(path: Path, data: bytes, modules: Mapping[str, ModuleType]) -> Iterator[Path]:
    """The files of the modules that a file names in its import statements."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return
    package = _package(path, modules)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)] if base else []
        else:
            continue
        for name in names:
            yield from _files(name, modules)


def _package(path: Path, modules: Mapping[str, ModuleType]) -> str:
    """The package that a loaded file belongs to, for its relative imports."""
    for module in list(modules.values()):
        if getattr(module, "__file__", None) == str(path):
            return getattr(module, "__package__", None) or ""
    return ""


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    except ImportError:
        return ""


def _files(name: str, modules: Mapping[str, ModuleType]) -> Iterator[Path]:
    """The files of a module and of the packages that it is in; of one that is not loaded, its top's."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        module = modules.get(".".join(parts[:count]))
        place = getattr(module, "__file__", None)
        if module is None and count == 1:
            spec = importlib.machinery.PathFinder.find_spec(parts[0])
            place = spec.origin if spec is not None and spec.has_location else None
        if isinstance(place, str) and place.endswith(".py"):
            yield Path(place).resolve()
