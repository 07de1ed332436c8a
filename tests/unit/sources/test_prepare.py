"""Workspaces out of repositories and archives: once for a machine, safe with many, and nothing more than was asked."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_rollout.errors import ConfigError, StageError
from pytest_rollout.sources import archive as unpacking
from pytest_rollout.sources import prepare as module
from pytest_rollout.sources.onecommit import commit_tree
from pytest_rollout.sources.prepare import prepared_source
from pytest_rollout.task import Archive, Folder, Git
from tests.unit.sources.conftest import GitCommand


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def nobody(name: str) -> None:
    """Holds nothing: nobody prunes here."""


def files(folder: Folder) -> dict[str, str]:
    """The files below a prepared workspace, without its repository."""
    top = Path(folder.path)
    found = {}
    for path in sorted(top.rglob("*")):
        name = path.relative_to(top)
        if name.parts[0] != ".git" and not path.is_dir():
            found[str(name)] = f"-> {os.readlink(path)}" if path.is_symlink() else path.read_text()
    return found


def refusal(asked: Git | Archive, cache: Path) -> str:
    with pytest.raises((ConfigError, StageError)) as caught:
        prepared_source(asked, cache, "run", nobody)
    return caught.value.message


def test_a_commit_and_nothing_else_of_its_repository(repository: Path, cache: Path, git: GitCommand) -> None:
    made = prepared_source(Git(str(repository), "v1"), cache, "run", nobody)
    assert files(made) == {
        "calc.py": "def add(a, b):\n    return a - b\n",
        "pkg/link": "-> ../calc.py",
        "pkg/run.sh": "#!/bin/sh\necho run\n",
    }
    assert (made.source, made.commit, made.notes) == (f"git {repository}", git(repository, "rev-parse", "v1"), ())
    assert os.access(f"{made.path}/pkg/run.sh", os.X_OK)
    top = Path(made.path)
    assert git(top, "rev-list", "--all", "--count") == "1"
    assert git(top, "remote") == ""
    everything = b"".join(path.read_bytes() for path in (top / ".git").rglob("*") if path.is_file())
    for word in (b"the answer is 42", b"token", b"someone", b"the solution", b"a + b", str(repository).encode()):
        assert word not in everything
    secret = git(repository, "rev-parse", "v1~1:secret.txt")
    assert "Not a valid object" in git(top, "cat-file", "-p", secret, check=False)


def test_revisions(repository: Path, cache: Path, git: GitCommand) -> None:
    commit = git(repository, "rev-parse", "fix")
    for rev in ("fix", commit, commit[:12], "trunk", "HEAD"):
        made = prepared_source(Git(str(repository), rev), cache, "run", nobody)
        assert made.commit == git(repository, "rev-parse", rev)
    assert len(list(cache.glob("git-*/tree"))) == 2
    other = repository.parent / "bare"
    git(repository, "clone", "-q", "--bare", str(repository), str(other))
    assert prepared_source(Git(str(other), "fix"), cache, "run", nobody).commit == commit


def test_what_is_not_there(repository: Path, cache: Path, tmp_path: Path) -> None:
    assert (
        refusal(Git(str(repository), "v9"), cache) == f"Git({str(repository)!r}, 'v9'): there is no commit 'v9' in it"
    )
    (tmp_path / "plain").mkdir()
    plain = str(tmp_path / "plain")
    assert refusal(Git(plain), cache).startswith(f"Git({plain!r}): {plain} is not a git repository")
    far = f"file://{tmp_path}/none.git"
    assert refusal(Git(far, "main"), cache).startswith(f"Git({far!r}, 'main') can't be fetched: ")
    assert list(cache.glob(".fetch-*")) == []


def test_a_repository_far_away(repository: Path, cache: Path, git: GitCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"file://{repository}"
    made = prepared_source(Git(url, "trunk"), cache, "run", nobody)
    assert made.commit == git(repository, "rev-parse", "trunk")
    assert prepared_source(Git(url, git(repository, "rev-parse", "fix")), cache, "run", nobody).commit is not None
    (repository / "calc.py").write_text("new\n")
    git(repository, "commit", "-qam", "later")
    assert prepared_source(Git(url, "trunk"), cache, "run", nobody).commit == made.commit, "a run sees one commit"
    assert prepared_source(Git(url, "trunk"), cache, "another", nobody).commit == git(repository, "rev-parse", "trunk")
    monkeypatch.setattr(module, "open_repository", None)  # a commit that is there is not fetched again
    assert made.commit is not None
    assert prepared_source(Git(url, made.commit), cache, "third", nobody) == made
    assert list(cache.glob(".fetch-*")) == []


def test_many_at_once_make_one(repository: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def make(tree: Path) -> str:
        made.append(tree)
        return commit_tree(tree)

    monkeypatch.setattr(module, "commit_tree", make)
    with ThreadPoolExecutor(8) as threads:
        found = list(
            threads.map(lambda _: prepared_source(Git(str(repository), "v1"), cache, "run", nobody), range(16))
        )
    assert len({folder.path for folder in found}) == len(made) == 1


def test_what_was_left_half_made_is_not_taken_for_whole(
    repository: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(tree: Path) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "commit_tree", killed)
        patched.setattr(module, "remove_tree", lambda path: None)
        with pytest.raises(KeyboardInterrupt):
            prepared_source(Git(str(repository), "v1"), cache, "run", nobody)
    assert len(list(cache.glob(".git-*"))) == 1
    made = prepared_source(Git(str(repository), "v1"), cache, "run", nobody)
    assert "calc.py" in files(made)
    assert list(cache.glob(".git-*")) == []


def test_submodules_and_lfs_pointers_are_told(repository: Path, cache: Path, tmp_path: Path, git: GitCommand) -> None:
    git(repository, "submodule", "add", "-q", str(repository), "vendor/sub")
    (repository / "model.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "more")
    made = prepared_source(Git(str(repository)), cache, "run", nobody)
    assert made.notes == (
        "vendor/sub is a submodule: its folder is empty",
        "model.bin is a pointer of Git LFS: its content is not there",
    )
    assert (Path(made.path) / "vendor/sub").is_dir()


def test_a_repository_runs_nothing_of_its_own(repository: Path, cache: Path, tmp_path: Path, git: GitCommand) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    trap.chmod(0o755)
    for name in (
        "core.fsmonitor",
        "core.sshCommand",
        "filter.x.smudge",
        "diff.external",
        "core.pager",
        "uploadpack.packObjectsHook",
    ):
        git(repository, "config", name, str(trap))
    (repository / ".gitattributes").write_text("* filter=x export-subst ident\ncalc.py export-ignore\n")
    for hook in ("post-checkout", "post-index-change", "reference-transaction"):
        (repository / ".git/hooks").mkdir(exist_ok=True)
        (repository / ".git/hooks" / hook).symlink_to(trap)
    made = prepared_source(Git(str(repository), "v1"), cache, "run", nobody)
    assert "calc.py" in files(made)
    assert not (tmp_path / "ran").exists()


# Archives


def tar(path: Path, members: dict[str, bytes | tuple[bytes, str]], mode: str = "w:gz") -> Archive:
    """A tar with files, and with members of a type that point somewhere."""
    with tarfile.open(path, mode) as made:  # type: ignore[call-overload]
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, tuple):
                member.type, member.linkname = content
                made.addfile(member)
            else:
                member.size, member.mode = len(content), 0o755 if name.endswith(".sh") else 0o600
                made.addfile(member, io.BytesIO(content))
    return Archive(str(path))


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tar(tmp_path: Path, cache: Path, mode: str) -> None:
    members: dict[str, bytes | tuple[bytes, str]] = {"./a.txt": b"1", "b/run.sh": b"2"}
    members |= {"b/link": (tarfile.SYMTYPE, "../a.txt"), "hard": (tarfile.LNKTYPE, "./a.txt")}
    made = prepared_source(tar(tmp_path / "x", members, mode), cache, "run", nobody)
    assert files(made) == {"a.txt": "1", "b/link": "-> ../a.txt", "b/run.sh": "2", "hard": "1"}
    modes = {name: stat.S_IMODE(os.stat(f"{made.path}/{name}").st_mode) for name in ("a.txt", "b/run.sh")}
    assert modes == {"a.txt": 0o644, "b/run.sh": 0o755}
    assert made.commit is None
    assert made.source is not None and made.source.startswith("archive sha256:")
    assert not (Path(made.path) / ".git").exists()


def test_a_zip(tmp_path: Path, cache: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("a/b.txt", "1")
        link = zipfile.ZipInfo("a/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        made.writestr(link, "b.txt")
        run = zipfile.ZipInfo("run.sh")
        run.external_attr = (stat.S_IFREG | 0o755) << 16
        made.writestr(run, "2")
        made.mkdir("empty") if hasattr(made, "mkdir") else made.writestr("empty/", "")
    found = prepared_source(Archive(str(tmp_path / "x.zip")), cache, "run", nobody)
    assert files(found) == {"a/b.txt": "1", "a/link": "-> b.txt", "run.sh": "2"}
    assert os.access(f"{found.path}/run.sh", os.X_OK)
    assert (Path(found.path) / "empty").is_dir()


OUTSIDE = "lies outside of it"
POINTS = "points outside of it"


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("../x", b"1", OUTSIDE),
        ("/etc/x", b"1", OUTSIDE),
        ("a/../../x", b"1", OUTSIDE),
        ("a\\..\\..\\x", b"1", OUTSIDE),
        ("C:/x", b"1", OUTSIDE),
        ("link", (tarfile.SYMTYPE, "/etc/passwd"), POINTS),
        ("a/link", (tarfile.SYMTYPE, "../../x"), POINTS),
        ("a/link", (tarfile.SYMTYPE, "b/../../.."), POINTS),
        ("link", (tarfile.SYMTYPE, ""), POINTS),
        ("fifo", (tarfile.FIFOTYPE, ""), "is not a file, a folder or a link"),
        ("device", (tarfile.CHRTYPE, ""), "is not a file, a folder or a link"),
        ("hard", (tarfile.LNKTYPE, "/etc/passwd"), "the member '/etc/passwd' lies outside of it"),
        ("hard", (tarfile.LNKTYPE, "a/none"), "the hard link 'hard' names no file before it"),
        ("hard", (tarfile.LNKTYPE, "a"), "the hard link 'hard' names no file before it"),
    ],
)
def test_members_that_are_refused(
    tmp_path: Path, cache: Path, name: str, content: bytes | tuple[bytes, str], why: str
) -> None:
    assert why in refusal(tar(tmp_path / "x.tar.gz", {"a/first": b"1", name: content}), cache)
    assert list(cache.glob("*/tree")) == []
    assert list(cache.glob(".archive-*")) == []


def test_a_link_is_not_written_through(tmp_path: Path, cache: Path) -> None:
    members: dict[str, bytes | tuple[bytes, str]] = {"here": (tarfile.SYMTYPE, "there"), "here/x": b"1"}
    assert "is in it twice" in refusal(tar(tmp_path / "x.tar", members, "w"), cache)
    assert "is in it twice" in refusal(tar(tmp_path / "y.tar", {"a": b"1", "./a": b"2"}, "w"), cache)


def test_bombs_are_counted_as_they_unpack(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MAX_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as made:
        for number in range(3):
            made.writestr(f"zeros-{number}", bytes(400_000))
    assert "it holds more than" in refusal(Archive(str(tmp_path / "x.zip")), cache)
    monkeypatch.setattr(unpacking, "MAX_MEMBERS", 2)
    assert "more than 2 members" in refusal(tar(tmp_path / "y.tar", {"a": b"", "b": b"", "c": b""}, "w"), cache)


@pytest.mark.parametrize(
    "data", [b"", b"no archive", b"PK\x03\x04broken", b"\x1f\x8b\x08broken", b"\xfd7zXZ\x00broken"]
)
def test_what_is_no_archive(tmp_path: Path, cache: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    assert refusal(Archive(str(tmp_path / "x")), cache).startswith(
        f"Archive({str(tmp_path / 'x')!r}): it can't be read: "
    )


def test_a_truncated_archive(tmp_path: Path, cache: Path) -> None:
    whole = tar(tmp_path / "x.tar.gz", {"a": os.urandom(100_000)})
    data = Path(whole.path).read_bytes()
    Path(whole.path).write_bytes(data[: len(data) // 2])
    assert "it can't be read" in refusal(whole, cache)
    assert refusal(Archive(str(tmp_path / "none")), cache).endswith("can't be read: No such file or directory")


def test_a_tree_that_writes_through_its_own_link(
    repository: Path, cache: Path, tmp_path: Path, git: GitCommand
) -> None:
    """git's own checks refuse such a tree; an object can be written all the same."""
    (tmp_path / "outside").mkdir()
    blob = git(repository, "rev-parse", "v1:calc.py")
    inner = _object(repository, git, "tree", b"100644 planted\0" + bytes.fromhex(blob))
    link = _object(repository, git, "blob", str(tmp_path / "outside").encode())
    entries = b"120000 a\0" + bytes.fromhex(link) + b"40000 a\0" + bytes.fromhex(inner)
    tree = _object(repository, git, "tree", entries)
    commit = git(repository, "commit-tree", "-m", "evil", tree)
    assert "holds 'a/planted' twice, or a file for its folder" in refusal(Git(str(repository), commit), cache)
    assert list((tmp_path / "outside").iterdir()) == []


def _object(repository: Path, git: GitCommand, kind: str, data: bytes) -> str:
    place = repository.parent / "object"
    place.write_bytes(data)
    return git(repository, "hash-object", "-t", kind, "-w", "--literally", str(place))


def test_the_environment_and_replaced_objects_change_nothing(
    repository: Path, cache: Path, tmp_path: Path, git: GitCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    (other / "x").touch()
    git(other, "add", "-A")
    git(other, "commit", "-qm", "x")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    git(repository, "replace", git(repository, "rev-parse", "v1:calc.py"), git(repository, "rev-parse", "fix:calc.py"))
    assert files(prepared_source(Git(str(repository), "v1"), cache, "run", nobody))["calc.py"].endswith(
        "return a - b\n"
    )


def test_links_below_links_of_an_archive(tmp_path: Path, cache: Path) -> None:
    link = tarfile.SYMTYPE
    members: dict[str, bytes | tuple[bytes, str]] = {
        "a/b/c/l": (link, "../.."),
        "a/b/c/l/m": (link, "../../x"),
    }
    assert "'a/b/c/l/m' lies below a link" in refusal(tar(tmp_path / "x.tar", members, "w"), cache)
    twice: dict[str, bytes | tuple[bytes, str]] = {"a": (link, "b"), "./a": (link, "c")}
    assert "is in it twice" in refusal(tar(tmp_path / "y.tar", twice, "w"), cache)


def test_the_repository_of_an_archive_is_left_out(tmp_path: Path, cache: Path, repository: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as made:
        made.add(repository, "project")
    found = prepared_source(Archive(str(tmp_path / "x.tar")), cache, "run", nobody)
    assert found.notes == ("the repository (.git) of the archive is left out",)
    assert sorted(files(found)) == ["project/calc.py", "project/pkg/link", "project/pkg/run.sh"]
    assert not (Path(found.path) / "project/.git").exists()


def test_a_source_that_was_altered_is_made_again(
    repository: Path, cache: Path, tmp_path: Path, git: GitCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Git | Archive] = {
        "commit": Git(str(repository), git(repository, "rev-parse", "v1")),
        "branch": Git(str(repository), "fix"),
        "archive": tar(tmp_path / "x.tar", {"calc.py": b"1"}, "w"),
    }
    held: list[str] = []
    for kind, source in asked.items():
        made = prepared_source(source, cache, "run", held.append)
        assert Path(made.path).parent.name in held
        right = files(made)
        for alter in (Path.unlink, lambda place: place.write_text("x")):
            alter(Path(made.path) / "calc.py")
            module._looked_at.clear()  # another process
            again = prepared_source(source, cache, "run", nobody)
            assert files(again) == right, kind
            assert again.notes == ("what was made ready of it had been altered on this machine, and was made again",)
        module._looked_at.clear()
        module._altered.clear()
        assert prepared_source(source, cache, "run", nobody) == made
    assert not [path.name for path in cache.iterdir() if path.name.startswith(".")]
