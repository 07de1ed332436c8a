"""The facade over the evidence: every attribute, what reading refuses, what counts as looking, and the diff."""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rollout.bundle import BundleRecord, Captured, Change, Finding
from pytest_rollout.diff import Diff
from pytest_rollout.errors import EvaluatorError, EvidenceError
from pytest_rollout.evidence import Bundle, Judging, looked, parse_json

MOST = 64 * 2**20


class FakeReader:
    """A stage and its baseline in memory, with the answers of a real reader."""

    def __init__(self, files: dict[str, bytes], baseline: dict[str, bytes] | None = None) -> None:
        self.files, self.baseline = files, baseline or {}

    def read(self, path: str, limit: int = MOST) -> bytes:
        if path not in self.files:
            raise EvidenceError(f"{path}: there is no such file in the stage")
        if len(self.files[path]) > limit:
            raise EvidenceError(f"{path} is larger than {limit} bytes, the most that is read")
        return self.files[path]

    def read_baseline(self, path: bytes, limit: int) -> bytes | None:
        data = self.baseline.get(os.fsdecode(path))
        return None if data is None or len(data) > limit else data

    def exists(self, path: str) -> bool:
        return path in self.files

    def glob(self, pattern: str) -> list[str]:
        return sorted(fnmatch.filter(self.files, pattern))


@pytest.fixture
def make_bundle(make_record: Callable[..., BundleRecord], tmp_path: Path) -> Callable[..., Bundle]:
    (tmp_path / "stdout").write_bytes(b"out\xff\n")
    (tmp_path / "stderr").write_bytes("größe".encode())

    def make(files: dict[str, bytes] | None = None, **changes: Any) -> Bundle:
        return Bundle(make_record(**changes), FakeReader(files or {}), tmp_path)

    return make


def failure(call: Callable[[], object]) -> str:
    with pytest.raises(EvidenceError) as caught:
        call()
    assert isinstance(caught.value, AssertionError)
    return str(caught.value)


# Attributes


def test_every_attribute_says_what_the_record_says(make_bundle: Callable[..., Bundle]) -> None:
    bundle = make_bundle()
    record = bundle._record
    assert {name: getattr(bundle, name) for name in ATTRIBUTES} == {
        "folder": bundle._folder,
        "rollout_id": "3f9ac01d-test-add-x-5be1a09c44-s1",
        "task_id": "test_calc.py::test_add[x]",
        "sample": 1,
        "attempt": 2,
        "seed": 8,
        "pins": record.pins,
        "exit_code": 3,
        "signal": None,
        "termination": "exit_code",
        "truncated": False,
        "duration": 1.5,
        "usage": record.usage,
        "findings": record.findings,
        "changes": record.changes,
        "trajectory": None,
        "stdout": "out\N{REPLACEMENT CHARACTER}\n",
        "stderr": "größe",
        "stdout_bytes": b"out\xff\n",
        "stderr_bytes": "größe".encode(),
    }
    assert repr(bundle) == "<Bundle 3f9ac01d-test-add-x-5be1a09c44-s1>"


def test_a_limit_leaves_no_exit_code(make_bundle: Callable[..., Bundle]) -> None:
    bundle = make_bundle(exit_code=None, termination="wall_limit", truncated=True)
    assert (bundle.exit_code, bundle.termination, bundle.truncated) == (None, "wall_limit", True)
    killed = make_bundle(exit_code=137, signal=9, termination="signal")
    assert (killed.exit_code, killed.signal, killed.termination) == (137, 9, "signal")


def test_the_captured_streams_are_the_files_that_the_record_names(
    make_bundle: Callable[..., Bundle], tmp_path: Path
) -> None:
    (tmp_path / "other").write_bytes(b"\0")
    assert make_bundle(stdout=Captured(file="other")).stdout_bytes == b"\0"


def test_nothing_of_it_can_be_set(make_bundle: Callable[..., Bundle]) -> None:
    with pytest.raises(AttributeError):
        make_bundle().exit_code = 0  # type: ignore[misc]


# Looking

IDENTITY = ("rollout_id", "task_id", "sample", "attempt", "seed", "pins", "folder")
EVIDENCE = (
    "exit_code", "signal", "termination", "truncated", "duration", "usage", "findings", "changes", "trajectory",
    "stdout", "stderr", "stdout_bytes", "stderr_bytes",
)  # fmt: skip
ATTRIBUTES = (*IDENTITY, *EVIDENCE)
# What is asked of the evaluator, with what it is asked.
JUDGING: dict[str, tuple[Callable[[Bundle], object], tuple[Any, ...]]] = {
    "run_tests": (lambda bundle: bundle.run_tests("f", ["t"], ["m"]), ("f", ["t"], ["m"])),
    "call": (lambda bundle: bundle.call("m:f", 1, target=2), ("m:f", (1,), {"target": 2})),
    "call_many": (lambda bundle: bundle.call_many("m:f", [(1,), (2,)]), ("m:f", [(1,), (2,)])),
    "run": (lambda bundle: bundle.run(["a"], "in"), (["a"], "in")),
    "evaluate": (lambda bundle: bundle.evaluate("make", {"a": "b"}), ("make", {"a": "b"})),
}


class FakeEvaluator:
    """Gives back what it was asked."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        return lambda *args: (name, *args)


def test_every_attribute_is_tried() -> None:
    public = {name for name in vars(Bundle) if not name.startswith("_")}
    assert public == {*ATTRIBUTES, "diff", "exists", "glob", "read_bytes", "read_json", "read_text", *JUDGING}


@pytest.mark.parametrize("name", IDENTITY)
def test_whose_evidence_it_is_is_not_evidence(make_bundle: Callable[..., Bundle], name: str) -> None:
    bundle = make_bundle()
    assert getattr(bundle, name) is not None
    repr(bundle)
    assert not looked(bundle)


@pytest.mark.parametrize("name", [*EVIDENCE, "diff"])
def test_an_attribute_of_the_evidence_is_a_look(make_bundle: Callable[..., Bundle], name: str) -> None:
    bundle = make_bundle()
    assert not looked(bundle)
    getattr(bundle, name)
    assert looked(bundle)


@pytest.mark.parametrize("method", ["read_bytes", "read_text", "read_json", "exists", "glob"])
@pytest.mark.parametrize("path", ["there", "missing"])
def test_a_read_is_a_look_also_where_it_fails(make_bundle: Callable[..., Bundle], method: str, path: str) -> None:
    bundle = make_bundle({"there": b"1"})
    if path == "missing" and method.startswith("read"):
        assert failure(lambda: getattr(bundle, method)(path)) == "missing: there is no such file in the stage"
    else:
        getattr(bundle, method)(path)
    assert looked(bundle)


# Trusted evaluation


@pytest.mark.parametrize("name", JUDGING)
def test_what_is_run_over_the_stage_is_asked_of_the_evaluator(make_bundle: Callable[..., Bundle], name: str) -> None:
    call, asked = JUDGING[name]
    record = make_bundle()._record
    bundle = Bundle(record, FakeReader({}), Path("/"), cast(Judging, FakeEvaluator()))
    assert not looked(bundle)
    assert call(bundle) == (name, *asked)
    assert looked(bundle)


def test_what_a_test_leaves_out_is_left_to_the_evaluator(make_bundle: Callable[..., Bundle]) -> None:
    bundle = Bundle(make_bundle()._record, FakeReader({}), Path("/"), cast(Judging, FakeEvaluator()))
    assert cast(object, bundle.run_tests()) == ("run_tests", None, None, ())
    assert cast(object, bundle.run("a")) == ("run", "a", "")
    assert cast(object, bundle.evaluate("a")) == ("evaluate", "a", None)


@pytest.mark.parametrize("name", JUDGING)
def test_without_a_stage_nothing_can_be_run(make_bundle: Callable[..., Bundle], name: str) -> None:
    bundle = make_bundle()
    with pytest.raises(EvaluatorError) as caught:
        JUDGING[name][0](bundle)
    assert str(caught.value) == "this bundle has no stage any more, so nothing can be run over it"


# Reading


def test_reading(make_bundle: Callable[..., Bundle]) -> None:
    bundle = make_bundle(
        {"a": "é\r\n\0".encode(), "b": b"\xff", "c.json": b' {"k": [1, 2.5, null, true, "\\ud800"]}\n'}
    )
    assert bundle.read_bytes("b") == b"\xff"
    assert bundle.read_text("a") == "é\r\n\0"
    assert bundle.read_json("c.json") == {"k": [1, 2.5, None, True, "\ud800"]}
    assert (bundle.exists("a"), bundle.exists("z")) == (True, False)
    assert bundle.glob("*") == ["a", "b", "c.json"]


def test_a_text_that_is_not_utf8_is_the_candidates_failure(make_bundle: Callable[..., Bundle]) -> None:
    bundle = make_bundle({"a": b"ok\xffok", "b": b"\xe2\x82"})
    assert failure(lambda: bundle.read_text("a")) == "a is not UTF-8: invalid start byte at byte 2"
    assert failure(lambda: bundle.read_json("b")) == "b is not UTF-8: unexpected end of data at byte 0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x is not JSON that can be read: Expecting value: line 1 column 1 (char 0)"),
        (
            '{"a"',
            "x is not JSON that can be read: Expecting ':' delimiter: line 1 column 5 (char 4)",
        ),
        ("1 2", "x is not JSON that can be read: Extra data: line 1 column 3 (char 2)"),
        (
            "\ufeff1",
            "x is not JSON that can be read: Unexpected UTF-8 BOM (decode using utf-8-sig): line 1 column 1 (char 0)",
        ),
        ("[" * 100_000, "x is JSON that is nested too deeply"),
        ("[" * 100_000 + "]" * 100_000, "x is JSON that is nested too deeply"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "x is JSON that is nested too deeply"),
        ("[" * 201 + "]" * 201, "x is JSON that is nested deeper than 200 levels"),
        ('{"a":' * 201 + "1" + "}" * 201, "x is JSON that is nested deeper than 200 levels"),
        ("9" * 5000, "x is not JSON that can be read: a number of 5000 digits"),
        ("[-" + "9" * 4001 + "]", "x is not JSON that can be read: a number of 4001 digits"),
        ("1." + "9" * 5000, "x is not JSON that can be read: a number of 5001 digits"),
        ("1e999", "x is not JSON that can be read: 1e999 is beyond the numbers that can be held"),
        ('{"a": -1e400}', "x is not JSON that can be read: -1e400 is beyond the numbers that can be held"),
        ("NaN", "x is not JSON that can be read: NaN is not a number of JSON"),
        ("[Infinity]", "x is not JSON that can be read: Infinity is not a number of JSON"),
        ("[-Infinity]", "x is not JSON that can be read: -Infinity is not a number of JSON"),
    ],
    ids=lambda value: value[:20],
)
def test_json_that_is_refused(text: str, message: str) -> None:
    assert failure(lambda: parse_json(text, "x")) == message


def test_json_at_the_bounds_is_read() -> None:
    deep = parse_json("[" * 200 + "]" * 200, "x")
    for _ in range(199):
        (deep,) = deep
    assert deep == []
    assert parse_json("9" * 4000, "x") == int("9" * 4000)
    assert parse_json("-" + "9" * 4000, "x") == -int("9" * 4000)
    assert parse_json("0." + "0" * 3998 + "1", "x") == 0.0
    assert parse_json("1.7976931348623157e308", "x") == 1.7976931348623157e308
    assert parse_json("[" + "[]," * 5000 + '"[[[["]', "x")[-1] == "[[[["
    assert parse_json('{"a": 1, "a": 2}', "x") == {"a": 2}
    assert parse_json("[[]," + "[" * 199 + "]" * 199 + "]", "x")[0] == []
    assert parse_json("[" * 199 + '{"a": "[[[["}' + "]" * 199, "x") is not None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_is_read_as_it_was_written(value: Any) -> None:
    assert parse_json(json.dumps(value), "x") == value


# The diff


def diff(old: bytes | None, new: bytes | None, *, path: str = "f", kind: Any = None, what: Any = "file") -> Diff:
    kind = kind or ("added" if old is None else "deleted" if new is None else "modified")
    reader = FakeReader({} if new is None else {path: new}, {} if old is None else {path: old})
    return Diff([Change(path=path, kind=kind, type=what)], reader)


@pytest.mark.parametrize(
    ("old", "new", "text", "added", "removed"),
    [
        (None, b"a\nb\n", "--- a/f\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n", 2, 0),
        (b"a\nb\n", None, "--- a/f\n+++ b/f\n@@ -1,2 +0,0 @@\n-a\n-b\n", 0, 2),
        (b"a\nb\nc\n", b"a\nB\nc\n", "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n", 1, 1),
        (
            b"a",
            b"a\n",
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n",
            1,
            1,
        ),
        (
            b"a\n",
            b"b",
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n",
            1,
            1,
        ),
        (
            b"".join(b"%d\n" % number for number in range(9)),
            b"".join(b"%d\n" % number for number in (*range(4), 44, *range(5, 9))),
            "--- a/f\n+++ b/f\n@@ -2,7 +2,7 @@\n 1\n 2\n 3\n-4\n+44\n 5\n 6\n 7\n",
            1,
            1,
        ),
        (b"a\r\n", b"a\n", "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\r\n+a\n", 1, 1),
        (None, b"a\x0cb\x85\rc\n", "--- a/f\n+++ b/f\n@@ -0,0 +1 @@\n+a\x0cb\N{REPLACEMENT CHARACTER}\rc\n", 1, 0),
        (None, "a\u2028b\n".encode(), "--- a/f\n+++ b/f\n@@ -0,0 +1 @@\n+a\u2028b\n", 1, 0),
        (None, b"--- x\n+++ y\n", "--- a/f\n+++ b/f\n@@ -0,0 +1,2 @@\n+--- x\n++++ y\n", 2, 0),
        (b"a\n", b"a\n", "", 0, 0),
        (None, b"", "", 0, 0),
        (b"", None, "", 0, 0),
    ],
)
def test_a_diff_of_text(old: bytes | None, new: bytes | None, text: str, added: int, removed: int) -> None:
    made = diff(old, new)
    assert str(made) == text
    (file,) = made.files
    assert (file.path, file.text, file.added, file.removed) == ("f", text, added, removed)
    assert made.lines_changed == added + removed
    assert repr(made) == f"<Diff of 1 files, {added + removed} lines>"


@pytest.mark.parametrize(
    ("old", "new", "kind", "what"),
    [
        (None, b"a\0b", "added", "file"),
        (b"\0", b"a\n", "modified", "file"),
        (b"\0", None, "deleted", "file"),
        (b"a\n", b"x" * (2**20 + 1), "modified", "file"),
        (b"x" * (2**20 + 1), b"a\n", "modified", "file"),
        (None, b"\n" * 20_001, "added", "file"),
        (None, None, "added", "symlink"),
        (None, None, "modified", "file"),
    ],
)
def test_what_is_not_compared_is_named(old: bytes | None, new: bytes | None, kind: str, what: str) -> None:
    made = diff(old, new, kind=kind, what=what, path="d/f")
    assert str(made) == f"{kind}: d/f ({what}, not compared as text)\n"
    assert (made.files[0].added, made.files[0].removed, made.lines_changed) == (None, None, 0)


def test_the_largest_file_that_is_compared() -> None:
    assert diff(None, b"x" * 2**20).lines_changed == 1
    assert diff(None, b"\n" * 20_000).lines_changed == 20_000


@pytest.mark.parametrize(
    ("path", "shown"), [("a\\b", "a\\x5cb"), ("\udcff\n", "\\xff\\x0a"), ("a\\x5cb", "a\\x5cx5cb")]
)
def test_a_file_of_an_odd_name_is_compared_too(path: str, shown: str) -> None:
    reader = FakeReader({path: b"new\n", shown: b"another file\nof the name as it is shown\n"}, {path: b"old\n"})
    made = Diff([Change(path=shown, kind="modified", type="file")], reader)
    assert str(made) == f"--- a/{shown}\n+++ b/{shown}\n@@ -1 +1 @@\n-old\n+new\n"
    assert made.lines_changed == 2


@pytest.mark.parametrize("what", ["dir", "fifo", "socket", "device"])
def test_what_has_no_content_is_left_out(what: str) -> None:
    made = diff(None, None, kind="added", what=what)
    assert (made.files, str(made), made.lines_changed) == ((), "", 0)


def test_the_diff_of_a_bundle_has_its_files_in_their_order(make_bundle: Callable[..., Bundle]) -> None:
    changes = (
        Change(path="a", kind="added", type="file"),
        Change(path="b", kind="added", type="dir"),
        Change(path="b/c", kind="added", type="file"),
    )
    bundle = make_bundle({"a": b"1\n", "b/c": b"2\n3\n"}, changes=changes)
    assert [(file.path, file.kind) for file in bundle.diff.files] == [("a", "added"), ("b/c", "added")]
    assert bundle.diff.lines_changed == 3
    assert str(bundle.diff) == ("--- a/a\n+++ b/a\n@@ -0,0 +1 @@\n+1\n--- a/b/c\n+++ b/b/c\n@@ -0,0 +1,2 @@\n+2\n+3\n")
    assert bundle.diff is bundle.diff


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_two_contents_have_a_diff(old: bytes, new: bytes) -> None:
    made = diff(old, new)
    (file,) = made.files
    if b"\0" in old + new:
        assert file.added is None
    elif old.decode("utf-8", "replace") == new.decode("utf-8", "replace"):
        assert (file.text, made.lines_changed) == ("", 0)
    else:
        assert file.text.startswith("--- a/f\n+++ b/f\n@@ ")
        assert file.text.endswith("\n")
        assert 0 < made.lines_changed <= (old + b"\n").count(b"\n") + (new + b"\n").count(b"\n")


def test_a_diff_that_would_take_minutes_counts_as_replaced() -> None:
    lines = [f"line {number % 110}\n" for number in range(20_000)]  # a comparison of these took over 300 s
    file = diff("".join(lines).encode(), "".join(sorted(lines)).encode()).files[0]
    assert (file.added, file.removed) == (20_000, 20_000)
    assert "not compared as text" in file.text
    edited = [f"line {number}\n" for number in range(20_000)]
    edited[10_000] = "another\n"
    file = diff("".join(f"line {number}\n" for number in range(20_000)).encode(), "".join(edited).encode()).files[0]
    assert (file.added, file.removed) == (1, 1)


@pytest.mark.parametrize("code", ["changes.entries", "changes.depth", "changes.paths", "changes.unreadable"])
def test_a_list_of_changes_that_was_cut_short_is_not_given(make_bundle: Callable[..., Bundle], code: str) -> None:
    cut = make_bundle(findings=(Finding(code=code, message="the listing stopped"),))
    assert failure(lambda: cut.changes) == "the changes can't be told: the listing stopped"
    assert failure(lambda: cut.diff) == "the changes can't be told: the listing stopped"
