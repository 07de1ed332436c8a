"""Spoilt variants of a right solution: half of it, and the whole of it made wrong.

Checks that take one of these measure less than they seem to. Only lines that the solution added are
touched; comments and blank lines of code are no half of anything.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from pytest_rollout.audit.work import Solution, Work

__all__ = ["variants"]

_COMMENT = re.compile(r"\s*(#|//|/\*|\*|--|;|$)")
_CODE = (".py", ".js", ".ts", ".c", ".h", ".cpp", ".go", ".rs", ".java", ".rb", ".sh", ".php", ".cs", ".kt", ".swift")
_SWAPS = {
    "==": "!=", "!=": "==", "<=": ">", ">=": "<", "<": ">=", ">": "<=", "+": "-", "-": "+", "*": "+", "/": "*",
    "//": "*", "%": "+", "and": "or", "or": "and", "True": "False", "False": "True", "true": "false",
    "false": "true", "not": "", "min": "max", "max": "min",
}  # fmt: skip
_TOKEN = re.compile(
    r"""("[^"\n]*"|'[^'\n]*')|(->|=>|\+=|-=|\*\*|&&|\|\||//|[=!<>]=|[<>+\-*/%])|(\b\d+\b)|(\b[A-Za-z_]\w*\b)"""
)

Piece = tuple[str, int]  # a path, and the number of the added line in it; -1 is a file that is no text


def variants(solution: Solution) -> Iterator[Work]:
    """The halves and the wrong one, those that differ from the solution."""
    pieces = [piece for path in sorted(solution.new) for piece in _pieces(solution, path)]
    pieces += [(path, -1) for path in solution.deleted]
    middle = len(pieces) // 2
    halves = {"first half": set(pieces[:middle]), "last half": set(pieces[middle:])}
    for name, kept in halves.items():
        if len(pieces) > 1:
            yield _kept(solution, f"truncated: {name}", kept)
    if len(pieces) == 1:
        yield _cut(solution, pieces[0])
    wrong = {path: _wrong(solution, path) for path in solution.new}
    if any(wrong[path] != data for path, data in solution.new.items()):
        yield Work(
            name="wrong",
            what="the oracle's change with other operators, numbers and words in it",
            files=wrong,
            programs=solution.programs,
            script=solution.script(),
        )


def _kept(solution: Solution, name: str, kept: set[Piece]) -> Work:
    """A solution with only these pieces in it."""
    files = {path: _partly(solution, path, kept) for path in solution.new}
    deleting = [path for path in solution.deleted if (path, -1) in kept]
    partly = Solution(new={}, old={}, deleted=tuple(deleting), links=solution.links)
    return Work(
        name=name,
        what="half of what the oracle changed",
        files={path: data for path, data in files.items() if data is not None},
        programs=solution.programs,
        script=partly.script(),
    )


def _cut(solution: Solution, piece: Piece) -> Work:
    """A solution of one line, or one file, cut in its middle."""
    path, number = piece
    if path in solution.deleted:
        return _kept(solution, "truncated", set())
    if number < 0:
        data = solution.new[path][: len(solution.new[path]) // 2]
    else:
        lines = _lines(solution.new[path])
        text = lines[number]
        bare = text.rstrip("\n")
        lines[number] = bare[: len(bare) // 2] + text[len(bare) :]
        data = "".join(lines).encode()
    return Work(
        name="truncated",
        what="half of what the oracle changed",
        files={**solution.new, path: data},
        programs=solution.programs,
        script=solution.script(),
    )


def _lines(data: bytes) -> list[str]:
    return data.decode().splitlines(keepends=True)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def _blocks(solution: Solution, path: str) -> list[tuple[str, int, int, int, int]]:
    old, new = _lines(solution.old.get(path, b"")), _lines(solution.new[path])
    return list(difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes())


def _texts(solution: Solution, path: str) -> bool:
    return _is_text(solution.new[path]) and _is_text(solution.old.get(path, b""))


def _pieces(solution: Solution, path: str) -> list[Piece]:
    """The added lines of a file that mean something; a file that is no text is one piece."""
    if not _texts(solution, path):
        return [(path, -1)]
    lines = _lines(solution.new[path])
    found = [n for tag, _, _, start, end in _blocks(solution, path) if tag != "equal" for n in range(start, end)]
    return [(path, n) for n in found if not (path.endswith(_CODE) and _COMMENT.match(lines[n]))]


def _partly(solution: Solution, path: str, kept: set[Piece]) -> bytes | None:
    """A file with only the kept pieces of its change; None where nothing of a new file is kept."""
    if not _texts(solution, path):
        return solution.new[path] if (path, -1) in kept else solution.old.get(path)
    old, new = _lines(solution.old.get(path, b"")), _lines(solution.new[path])
    own = set(_pieces(solution, path))
    if path not in solution.old and not own & kept:
        return None
    out: list[str] = []
    for tag, first, last, start, end in _blocks(solution, path):
        taken = [new[n] for n in range(start, end) if (path, n) in kept or (path, n) not in own]
        if tag == "equal" or (tag != "delete" and any((path, n) in kept for n in range(start, end))):
            out += new[start:end] if tag == "equal" else taken
        else:
            out += old[first:last]
    return "".join(out).encode()


def _wrong(solution: Solution, path: str) -> bytes:
    """The file with every added line made wrong; one that is no text is turned over."""
    data = solution.new[path]
    if not _texts(solution, path):
        return bytes(255 - byte for byte in data)
    lines = _lines(data)
    added = [n for tag, _, _, start, end in _blocks(solution, path) if tag != "equal" for n in range(start, end)]
    mutate = _mutate_code if path.endswith(_CODE) else _mutate_text
    mutated = {n: mutate(lines[n]) for n in added}
    if all(mutated[n] == lines[n] for n in added):
        mutated = {n: _rotate(lines[n]) for n in added}
    return "".join(mutated.get(n, line) for n, line in enumerate(lines)).encode()


def _mutate_code(line: str) -> str:
    if _COMMENT.match(line):
        return line

    def changed(match: re.Match[str]) -> str:
        text, operator, number, word = match.groups()
        if text is not None:
            return text[0] + _rotate(text[1:-1]) + text[-1]
        if number is not None:
            return str(int(number) + 1)
        return _SWAPS.get(operator or word, match[0])

    return _TOKEN.sub(changed, line)


def _mutate_text(line: str) -> str:
    """Other digits; a line without any is left."""
    return re.sub(r"\d", lambda match: str((int(match[0]) + 1) % 10), line)


def _rotate(text: str) -> str:
    """Other letters and digits of the same kinds."""
    return "".join(_next(character) for character in text)


def _next(character: str) -> str:
    for first, count in (("a", 26), ("A", 26), ("0", 10)):
        place = ord(character) - ord(first)
        if 0 <= place < count:
            return chr(ord(first) + (place + 1) % count)
    return character
