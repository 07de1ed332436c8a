"""Every block of the README and the documents is run, parsed or compared.

A page is read from top to bottom, in an empty folder of its own. What happens to a fenced block is
said by HTML comments on the lines right above it; ``docs/README.md`` lists them. A block without one
is refused, unless it is a diagram (its language is ``text``).
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_rollout.agents import config
from pytest_rollout.knobs import KNOBS
from pytest_rollout.stage.removal import remove_tree

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "CHANGELOG.md"]
FOLDER = "/home/you/evals"  # how pages write the folder that they run in
DIRECTIVES = ("file", "copy", "run", "output", "excerpt", "check", "commands", "quickstart")
_COMMENT = re.compile(r"<!-- (\w+)(?:: (.*?))? -->")
_FENCE = re.compile(r"(`{3,})(\w*)")
_SECONDS = 180
XDIST = find_spec("xdist") is not None


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, its line, and the directives above it."""

    language: str
    text: str
    line: int
    directives: tuple[tuple[str, str], ...]


def read_blocks(text: str) -> list[Block]:
    """The blocks of a page; raises ValueError where a directive has no block, or a fence no end."""
    blocks: list[Block] = []
    pending: list[tuple[str, str]] = []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        comment, fence = _COMMENT.fullmatch(line), _FENCE.fullmatch(line)
        if comment is not None:
            pending.append((comment[1], comment[2] or ""))
        elif fence is not None:
            body = _until(lines, fence[1], number)
            blocks.append(Block(fence[2], "".join(f"{each}\n" for each in body), number, tuple(pending)))
            pending = []
        elif pending or line.lstrip().startswith(("```", "~~~")):
            raise ValueError(f"line {number}: a directive without a block, or a fence that can't be read: {line!r}")
    if pending:
        raise ValueError("the last directive has no block")
    return blocks


def _until(lines: Iterator[tuple[int, str]], fence: str, start: int) -> list[str]:
    body: list[str] = []
    for _, line in lines:
        if line == fence:
            return body
        body.append(line)
    raise ValueError(f"line {start}: the block does not end")


_VOLATILE: tuple[tuple[str, str], ...] = (
    (r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ-[0-9a-f]{8}", "RUN"),
    (r"\b[0-9a-f]{8}(?=-[a-z0-9-]+-[0-9a-f]{10}-s\d)", "DIGITS"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(?:\+00:00)?", "TIME"),
    (r"sha256:[0-9a-f]+…?", "DIGEST"),
    (r"\b\d+\.\d+ ?s\b", "SECONDS"),
    (r'\btime="[\d.]+"', 'time="SECONDS"'),
    (r'\bhostname="[^"]*"', 'hostname="HOST"'),
    (r"\bbwrap \d[\d.]*", "bwrap VERSION"),
    (r"/var/tmp/pytest-rollout-\d+/kept/[0-9a-f]+", "KEPT"),
    (r"^([=_-])\1+ (.*?) \1+$", r"\1 \2 \1"),
    (r"^([=_-])\1{9,}$", r"\1"),
    (r" +\[ *\d+%\]$", " [PERCENT]"),
    (r"[ \t]+$", ""),
)


def normal(text: str, folder: Path) -> list[str]:
    """The lines of ``text`` with what changes from run to run replaced."""
    text = text.replace(str(folder), FOLDER)
    for pattern, word in _VOLATILE:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text.splitlines()


def fits(shown: Sequence[str], real: Sequence[str]) -> bool:
    """Whether the lines of a page are the real ones; a line ``...`` stands for any number of them."""
    parts: list[list[str]] = [[]]
    for line in shown:
        if line.strip() == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    if len(parts) == 1:
        return list(real) == parts[0]
    first, *middle, last = parts
    end = len(real) - len(last)
    if list(real[: len(first)]) != first or end < len(first) or list(real[end:]) != last:
        return False
    at = len(first)
    for part in middle:
        found = next((n for n in range(at, end - len(part) + 1) if list(real[n : n + len(part)]) == part), None)
        if found is None:
            return False
        at = found + len(part)
    return True


class Runner:
    """Does what the directives of one page say, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output: str | None = None
        self.ran: set[str] = set()

    def do(self, block: Block) -> None:
        for name, value in block.directives:
            action: Callable[[Block, str], None] = getattr(self, f"_{name}")
            action(block, value)

    def _file(self, block: Block, value: str) -> None:
        name, _, executable = value.partition(" ")
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(block.text, encoding="utf-8")
        assert executable in ("", "executable"), value
        place.chmod(0o755 if executable else 0o644)

    def _copy(self, block: Block, value: str) -> None:
        ignored = shutil.ignore_patterns(".rollout", "__pycache__", ".pytest_cache")
        shutil.copytree(ROOT / value, self.folder / value, ignore=ignored)

    def _run(self, block: Block, value: str) -> None:
        assert block.language in ("console", "python"), block.language
        program = ["sh", "-e"] if block.language == "console" else [sys.executable]
        done = subprocess.run(
            [*program, "-c", block.text],
            cwd=self.folder,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=False,
        )
        self.output = done.stdout.decode("utf-8", "replace")
        self.ran |= set(block.text.splitlines())
        assert f"exit {done.returncode}" == value, f"{block.text}gave exit {done.returncode}:\n{self.output}"

    def _output(self, block: Block, value: str) -> None:
        assert self.output is not None, "there is no output to compare"
        shown, real = normal(block.text, self.folder), normal(self.output, self.folder)
        assert fits(shown, real), f"shown:\n{block.text}\nreal:\n{self.output}"

    def _excerpt(self, block: Block, value: str) -> None:
        """The block is a part of a file that was made: its lines, in order, with ``...`` around."""
        (place,) = self.folder.glob(value)
        text = place.read_text(encoding="utf-8")
        if place.suffix == ".xml":
            root = ET.fromstring(text)
            ET.indent(root)
            text = ET.tostring(root, encoding="unicode")
        shown = [line.strip() for line in normal(block.text, self.folder)]
        real = [line.strip() for line in normal(text, self.folder)]
        assert fits(["...", *shown, "..."], real), f"shown:\n{block.text}\nreal:\n{text}"

    def _check(self, block: Block, value: str) -> None:
        if block.language == "toml":
            tables = tomllib.loads(block.text)["agents"].values()
            assert {key for table in tables for key in table} <= set(config._KEYS)
        elif block.language == "ini":
            parser = configparser.ConfigParser()
            parser.read_string(block.text)
            ours = {key for key in parser["pytest"] if key.startswith("rollout")}
            assert ours
            assert ours <= {f"rollout_{knob.name}" for knob in KNOBS if knob.ini}
        else:
            assert block.language == "json", block.language
            json.loads(block.text)

    def _commands(self, block: Block, value: str) -> None:
        """A CI system's file is YAML, and its commands that are ours are ones that the page has run."""
        assert yaml.safe_load(block.text)
        lines = [line.partition("run: ")[2] or line.strip().removeprefix("- ") for line in block.text.splitlines()]
        ours = [line for line in lines if line.startswith("pytest")]
        assert ours
        assert set(ours) <= self.ran, f"{set(ours) - self.ran} was never run on this page"

    def _quickstart(self, block: Block, value: str) -> None:
        """Its shape is checked below; ``test_quickstart.py`` runs it in a fresh clone."""


def clean_environment() -> dict[str, str]:
    """That of a user at a terminal of 80 columns, with this interpreter's programs, our plugin and xdist."""
    dropped = re.compile(r"PYTEST|ROLLOUT_|COV_|CI$|BUILD_NUMBER$|FORCE_COLOR$|PY_COLORS$|TOX")
    kept = {name: value for name, value in os.environ.items() if not dropped.match(name)}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p rollout" + (" -p xdist" if XDIST else "")}
    return {**kept, **plugins, "PATH": path, "COLUMNS": "80", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


def remove_kept(folder: Path) -> None:
    """Remove the stages that the runs of a page kept outside its folder."""
    for bundle in folder.glob("**/.rollout/runs/*/rollouts/*/*/*/bundle.json"):
        stage = json.loads(bundle.read_bytes())["stage"]
        if stage is not None:
            assert "/kept/" in stage
            remove_tree(stage)


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_blocks_have_directives(page: Path) -> None:
    for block in read_blocks(page.read_text(encoding="utf-8")):
        unknown = [name for name, _ in block.directives if name not in DIRECTIVES]
        assert not unknown, f"line {block.line}: unknown directives {unknown}"
        assert block.directives or block.language == "text", f"line {block.line}: no test runs this block"


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if "\n```" in page.read_text(encoding="utf-8")], ids=_name)
def test_page(page: Path, tmp_path: Path) -> None:
    runner, blocks = Runner(tmp_path), read_blocks(page.read_text(encoding="utf-8"))
    if not XDIST and any(" -n " in block.text for block in blocks if block.language == "console"):
        pytest.skip("the page needs pytest-xdist")
    try:
        for block in blocks:
            try:
                runner.do(block)
            except Exception as error:
                raise AssertionError(f"{_name(page)}:{block.line}: {error}") from error
    finally:
        remove_kept(tmp_path)


def test_the_readme_begins_with_the_two_commands() -> None:
    blocks = read_blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    consoles = [block for block in blocks if block.language == "console"]
    first, second = consoles[:2]
    assert blocks[:2] == [first, second]
    assert (first.directives, second.directives) == ((("quickstart", "example"),), (("quickstart", "tests"),))
    assert re.fullmatch(
        r"python3 -m venv \.venv\n\.venv/bin/pip install -q -e '\.\[sandbox,test\]'\n\.venv/bin/pytest example_suite\n",
        first.text,
    )
    assert second.text == ".venv/bin/pytest\n"


# The tools of this file


def _block(language: str, text: str, *directives: tuple[str, str]) -> Block:
    return Block(language, text, 1, directives)


def test_reading_blocks() -> None:
    text = "a\n<!-- file: x.py -->\n<!-- run: exit 0 -->\n```python\n1\n\n2\n```\n```text\nd\n```\n"
    found = read_blocks(text)
    assert [(block.language, block.text, block.line) for block in found] == [
        ("python", "1\n\n2\n", 4),
        ("text", "d\n", 9),
    ]
    assert found[0].directives == (("file", "x.py"), ("run", "exit 0"))


@pytest.mark.parametrize(
    "text", ["<!-- run: exit 0 -->\n\n```console\nx\n```\n", "<!-- run -->\n", "```\nx\n", "```a b\n", " ```\nx\n"]
)
def test_pages_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="block"):
        read_blocks(text)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (["a", "b", "c"], True),
        (["a", "..."], True),
        (["...", "b", "..."], True),
        (["a", "...", "c"], True),
        (["...", "a", "b", "c", "..."], True),
        (["a", "b"], False),
        (["...", "c", "...", "b", "..."], False),
        (["a", "b", "...", "b", "c"], False),
        (["...", "d", "..."], False),
    ],
)
def test_fitting(shown: list[str], expected: bool) -> None:
    assert fits(shown, ["a", "b", "c"]) is expected


def test_normal_hides_only_what_changes(tmp_path: Path) -> None:
    text = f"""\
====== 1 passed in 0.42s ======
results: .rollout/runs/2026-11-29T22-08-01Z-3f9ac01d
3f9ac01d-test-add-x-5be1a09c44-s0  reward 0.25
{tmp_path}/x  sha256:00ff
test_a.py .                              [ 25%]
"""
    assert normal(text, tmp_path) == [
        "= 1 passed in SECONDS =",
        "results: .rollout/runs/RUN",
        "DIGITS-test-add-x-5be1a09c44-s0  reward 0.25",
        "/home/you/evals/x  DIGEST",
        "test_a.py . [PERCENT]",
    ]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (_block("console", "exit 3\n", ("run", "exit 0")), "gave exit 3"),
        (_block("console", "echo a\n", ("run", "exit 0"), ("output", "")), "shown:"),
        (_block("python", "print(1/0)\n", ("run", "exit 0")), "ZeroDivisionError"),
        (_block("toml", "[agents.a]\ncomand = 'x'\n", ("check", "")), "comand"),
        (_block("ini", "[pytest]\nrollout_agnet = x\n", ("check", "")), "rollout_agnet"),
        (_block("json", "{,}\n", ("check", "")), "Expecting"),
        (_block("yaml", "- run: pytest x\n", ("commands", "")), "never run on this page"),
        (_block("yaml", "- run: pytest x\n run: y\n", ("commands", "")), "expected <block end>"),
        (_block("xml", "<b/>\n", ("file", "x.xml"), ("excerpt", "y.xml")), "unpack"),
    ],
)
def test_a_wrong_block_fails(block: Block, message: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=re.escape(message)):
        Runner(tmp_path).do(block)


def test_every_directive_has_an_action() -> None:
    actions: dict[str, Any] = {name: getattr(Runner, f"_{name}") for name in DIRECTIVES}
    text = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert [name for name in actions if f"`<!-- {name}" not in text] == []
