"""The evaluator revision: which checks scored a rollout.

It digests the test's module, the conftest files above it, the modules of the suite that these
import, the data that one of them names in a text (``"cases.json"``, ``files="more_tests"``), and the hidden files.
Results of two evaluator revisions were not measured by one measure.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import importlib.util
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from pytest_rollout.identity import canonical_digest

__all__ = ["evaluator_revision"]

_MAX_FILES = 2_000
_LARGEST = 64 * 2**20
_NAME = re.compile(r"[^\n\0\ud800-\udfff]{1,200}")
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
        tree = _parsed(data)
        pending += [each for each in _imported(path, tree, modules) if _is_of_suite(each, top)]
        for each in named_data(tree, (path.parent, top), top):
            found.setdefault(os.path.relpath(each, top), _content(each))
    return canonical_digest({"files": found, "hidden": hidden_revision})


def _is_of_suite(path: Path, top: Path) -> bool:
    return path.is_relative_to(top) and not any(part in _NOT_OURS for part in path.parts)


def _parsed(data: bytes) -> ast.AST:
    """A module's syntax tree; that of an empty one where it has none."""
    try:
        return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module(body=[], type_ignores=[])


def named_data(tree: ast.AST, folders: Sequence[Path], top: Path) -> list[Path]:
    """The files that the texts of a module name, below one of these folders: each by itself or in a folder.

    What the marker names (a workspace, hidden files, an oracle) has revisions of its own. ``files="…"`` of an
    evaluation, from beside the module, may lie outside ``top``.
    """
    found: set[Path] = set()
    for name in _hidden_folders(tree):
        found.update(_files_of(Path(os.path.normpath(folders[0] / os.path.expanduser(name)))))
    marked = {id(each) for node in ast.walk(tree) if _is_marker(node) for each in ast.walk(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in marked:
            continue
        name = re.split(r"[*?\[]", node.value)[0].rstrip("/")
        for folder in folders if _NAME.fullmatch(name) else ():
            place = Path(os.path.normpath(folder / name))
            if place.is_relative_to(top) and place not in (top, *folders):
                found.update(_files_of(place))
    return sorted(found)


def _hidden_folders(tree: ast.AST) -> Iterator[str]:
    """What is given as ``files="…"`` to any call."""
    for node in ast.walk(tree):
        for keyword in node.keywords if isinstance(node, ast.Call) else ():
            value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            if keyword.arg == "files" and isinstance(value, str) and _NAME.fullmatch(value):
                yield value


def _is_marker(node: ast.AST) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    return isinstance(function, ast.Attribute) and function.attr == "rollout"


def _files_of(place: Path) -> list[Path]:
    """A file, or those in a folder as far as they are few."""
    if place.is_file():
        return [place]
    inside = (Path(at, name) for at, _, names in os.walk(place) for name in names if "__pycache__" not in at)
    return sorted(path for path in itertools.islice(inside, _MAX_FILES) if path.is_file())


def _content(path: Path) -> str:
    """The digest of a file of the suite; of a large one, or one that can't be read, its size."""
    try:
        size = path.stat().st_size
        return hashlib.sha256(path.read_bytes()).hexdigest() if size <= _LARGEST else f"{size} bytes"
    except OSError:
        return "unreadable"


def _imported(path: Path, tree: ast.AST, modules: Mapping[str, ModuleType]) -> Iterator[Path]:
    """The files of the modules that a file names in its import statements."""
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
