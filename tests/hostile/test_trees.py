"""Trees of every kind, in one session: what the bundle lists, reads and refuses, and which bound it says was hit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.hostile.sessions import PASSED, SIZES, Ends, ends, run
from tests.plugin.support import left_of_stages

if TYPE_CHECKING:
    from tests.plugin.conftest import Suite

KINDS = r"""
    import os
    import pytest
    from pytest_rollout import Limits

    def rollout(agent):
        return pytest.mark.rollout(agent=agent, workspace="space", limits=Limits(wall="1m"))

    def refused(call, *arguments):
        with pytest.raises(AssertionError) as caught:
            call(*arguments)
        return str(caught.value)

    def kept(bundle):
        return sum(os.stat(os.path.join(at, name)).st_blocks * 512
                   for at, _, names in os.walk(bundle.folder) for name in names)

    @rollout("ln -s /etc/passwd a; ln -s ../../etc/passwd r; ln -s l2 l1; ln -s l1 l2; ln -s . here; mkfifo p;"
             "ln -s p q; ln -s a chain; ln -s /proc/self/root root; ln -s /proc/1/environ e; ln -s nowhere gone")
    def test_links(bundle):
        for name in ("a", "r", "l1", "here", "q", "chain", "root", "e", "gone"):
            assert refused(bundle.read_text, name) == f"{name}: is a symbolic link"
            assert bundle.exists(name)
        assert refused(bundle.read_text, "root/etc/passwd") == "root/etc/passwd: root is a symbolic link"
        assert refused(bundle.read_text, "here/here/p") == "here/here/p: here is a symbolic link"
        assert not bundle.exists("here/p")
        made = ["a", "chain", "e", "gone", "here", "l1", "l2", "p", "q", "r", "root"]
        assert sorted(bundle.glob("**")) == sorted([*made, *SPACE])
        assert {c.path: c.target for c in bundle.changes if c.type == "symlink"} == {
            "a": "/etc/passwd", "r": "../../etc/passwd", "l1": "l2", "l2": "l1", "here": ".", "q": "p", "chain": "a",
            "root": "/proc/self/root", "e": "/proc/1/environ", "gone": "nowhere",
        }
        assert bundle.diff.lines_changed == 0

    @rollout("mkfifo answer.txt")
    def test_fifo(bundle):
        assert refused(bundle.read_text, "answer.txt") == "answer.txt: is a FIFO, not a file"

    @rollout("mknod n c 1 5; mknod z c 0 0; mknod b b 7 0; cp -a /dev/zero d; ln /dev/zero h; ls")
    def test_devices(bundle):
        assert set(bundle.stdout.split()) < set(SPACE)
        assert bundle.changes == ()

    @rollout("truncate -s 1T big; truncate -s 64M a b c; printf end >> c; truncate -s 64M d; echo x > small")
    def test_sparse(bundle):
        assert refused(bundle.read_bytes, "big") == "big is larger than 67108864 bytes, the most that is read"
        assert refused(bundle.read_json, "a") == "a is larger than 16777216 bytes, the most that is read"
        assert {c.path: c.stored for c in bundle.changes} == {
            "a": True, "b": True, "big": False, "c": False, "d": True, "small": True,
        }
        assert kept(bundle) < 2**20
        assert bundle.diff.lines_changed == 1

    @rollout("mkdir d; touch d/f; chmod 500 d; mkdir e; echo i > e/i; chmod 000 e/i e; echo s > s; chmod 000 s;"
             "truncate -s 2M h; chmod 000 h; rm -r folder; mkdir folder; echo new > folder/new; chmod 000 folder .")
    def test_closed(bundle):
        assert [bundle.read_text(name) for name in ("s", "e/i", "folder/new")] == ["s\n", "i\n", "new\n"]
        assert {c.path: (c.kind, c.mode) for c in bundle.changes} == {
            "d": ("added", "0500"), "d/f": ("added", "0644"), "e": ("added", "0000"), "e/i": ("added", "0000"),
            "folder": ("modified", "0000"), "folder/new": ("added", "0644"), "folder/old": ("deleted", None),
            "h": ("added", "0000"), "s": ("added", "0000"),
        }
        assert not bundle.exists("folder/old")

    NAMES = {  # as printf writes them, as the bundle shows them, and as a test names them
        r"a\nb": (r"a\x0ab", "a\nb"), r"\377\376": (r"\xff\xfe", "\udcff\udcfe"), "-rf": ("-rf", "-rf"),
        r"\355\240\200": (r"\xed\xa0\x80", "\udced\udca0\udc80"), r"\033[2J": (r"\x1b[2J", "\033[2J"),
        "]]>": ("]]>", "]]>"), "::error::x": ("::error::x", "::error::x"), "##vso[x]": ("##vso[x]", "##vso[x]"),
        r"\342\200\256x": (r"\xe2\x80\xaex", "\u202ex"), r"back\\slash": (r"back\x5cslash", r"back\slash"),
        r"\r": (r"\x0d", "\r"), " ": (" ", " "), r"\302\233m": (r"\xc2\x9bm", "\x9bm"), "...": ("...", "..."),
    }

    @rollout("".join(f"printf 1 > \"$(printf -- '{name}x' | sed '$s/x$//')\"; " for name in NAMES))
    def test_names(bundle):
        assert {c.path for c in bundle.changes} == {shown for shown, _ in NAMES.values()}
        for shown, name in NAMES.values():
            assert bundle.read_text(name) == "1"
        assert set(bundle.glob("*")) >= {name for _, name in NAMES.values()} - {"..."}
        assert bundle.diff.lines_changed == len(NAMES)
        print(*bundle.glob("**"), str(bundle.diff), sep="\n")
        raise AssertionError("".join(bundle.glob("**")) + str(bundle.diff))

    @rollout("cp /bin/true t; chmod 6755 t; ln t u; mkdir g; chmod 2777 g; chmod +t .")
    def test_setuid_and_hard_links(bundle):
        assert {c.path: (c.mode, c.links) for c in bundle.changes} == {
            "g": ("2777", None), "t": ("6755", 2), "u": ("6755", 2),
        }
        for at, _, names in os.walk(bundle.folder / "changes"):
            for name in names:
                assert os.stat(os.path.join(at, name)).st_mode & 0o7177 == 0

    @rollout("rm -r ./* .[!.]*; ls -A")
    def test_removes_all(bundle):
        assert {c.path: c.kind for c in bundle.changes} == dict.fromkeys(SPACE, "deleted")
        assert bundle.glob("**") == []
"""
OF_KINDS: Ends = {
    "test_links": ("completed", ["special"]),
    "test_fifo": ("completed", ["special"]),
    "test_devices": ("completed", []),
    "test_sparse": ("completed", ["changes.bytes", "changes.bytes"]),
    "test_closed": ("completed", []),
    "test_names": ("completed", []),
    "test_setuid_and_hard_links": ("completed", ["hardlink", "hardlink", "setuid", "setuid", "setuid"]),
    "test_removes_all": ("completed", []),
}

# More than is listed. A chain of folders is moved to the end of another, deeper than a shell can go.
BOUNDS = r"""
    import os
    import pytest
    from pytest_rollout import Limits

    def rollout(agent):
        return pytest.mark.rollout(agent=agent, workspace="space", limits=Limits(wall="1m"))

    def refused(call, *arguments):
        with pytest.raises(AssertionError) as caught:
            call(*arguments)
        return str(caught.value)

    @rollout("p=$(printf 'd/%.0s' $(seq 1000)); "
             "for _ in 1 2 3 4; do mkdir -p $p; test ! -d x || mv x $p/x; mv d x; done;"
             "echo 'def add(a, b): return a + b' > calc.py; echo x > x/x")
    def test_deep(bundle):
        why = "the changes can't be told: the listing stopped at 200 levels of folders"
        assert refused(lambda: bundle.changes) == refused(lambda: bundle.diff) == why
        assert refused(bundle.glob, "**/x") == "the stage is deeper than 200 folders"
        assert bundle.read_text("x/x") == "x\n"
        assert bundle.call("calc:add", 2, 3) == 5

    @rollout("n=$(printf 'n%.0s' $(seq 250)); p=$n/$n/$n/$n/$n/$n/$n; "
             "for _ in 1 2 3; do mkdir -p $p; test ! -d x || mv x $p/x; mv $n x; done;"
             "echo x > answer")
    def test_long(bundle):
        assert refused(lambda: bundle.changes) == "the changes can't be told: the listing stopped: File name too long"
        assert "can't be listed: " in refused(bundle.glob, "**")
        assert bundle.read_text("answer") == "x\n"

    @rollout("seq -f many/%.0f 60000 > $TMPDIR/list; mkdir many; xargs touch < $TMPDIR/list; echo x > z")
    def test_many(bundle):
        assert refused(lambda: bundle.changes) == "the changes can't be told: the listing stopped at 50000 entries"
        assert "can't be listed: more than 50000 entries" in refused(bundle.glob, "**")
        assert bundle.read_text("z") == "x\n"
"""
OF_BOUNDS: Ends = {
    "test_deep": ("completed", ["changes.depth"]),
    "test_long": ("completed", ["changes.unreadable"]),
    "test_many": ("completed", ["changes.entries"]),
}


@pytest.mark.parametrize("files", SIZES)
def test_kinds(suite: Suite, files: int) -> None:
    ran = run(suite, KINDS, files)
    assert ran.verdicts == {**dict.fromkeys(OF_KINDS, PASSED), "test_names": ("failed", None, 0.0)}, ran.text
    assert ends(ran) == OF_KINDS
    assert left_of_stages(suite) == []
    for line in ran.lines:
        assert not line.lstrip().startswith("::"), line
        assert "##vso[" not in line or '"##vso[x]"' in line, line
    assert not set(ran.text) & {"\x1b", "\r", "\x9b", "\u202e", "\udcff"}


@pytest.mark.slow
def test_bounds(suite: Suite) -> None:
    ran = run(suite, BOUNDS, 3000)
    assert ran.verdicts == dict.fromkeys(OF_BOUNDS, PASSED), ran.text
    assert ends(ran) == OF_BOUNDS
    assert left_of_stages(suite) == []
