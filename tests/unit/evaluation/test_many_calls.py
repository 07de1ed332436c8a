"""``bundle.call_many``: one sandbox for many calls, and none of them learns what another was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_rollout.errors import CandidateError, EvaluatorError

if TYPE_CHECKING:
    from tests.unit.evaluation.conftest import Court

# Each of these leaves its argument somewhere, and gives what it finds there first.
LEAVING = r'''
import ctypes, fcntl, glob, json, mmap, os, resource, signal, socket, subprocess, sys, tempfile, time

KEPT = []
PARENT = os.getppid()
FOLDERS = ("/tmp", "/dev/shm", os.path.expanduser("~"))
LIBC = ctypes.CDLL(None, use_errno=True)

def each(folders, leave):
    found = []
    for folder in folders:
        found += sorted(glob.glob(f"{folder}/**", recursive=True, include_hidden=True))
        try:
            leave(folder)
        except OSError:
            pass
    return [path for path in found if "spoor" in path]

def file(word):
    return each(FOLDERS, lambda folder: open(f"{folder}/{word}", "w").close())

def temporary(word):
    return each([tempfile.gettempdir()], lambda folder: tempfile.mkdtemp(prefix=word))

def closed(word):
    def leave(folder):
        os.makedirs(f"{folder}/{word}/a/b")
        os.symlink("/usr", f"{folder}/{word}/a/link")
        os.mkfifo(f"{folder}/{word}/a/fifo")
        os.chmod(f"{folder}/{word}/a", 0)
        os.chmod(f"{folder}/{word}", 0)
    return each(FOLDERS, leave)

def of_tree(word):
    places = (".", os.path.dirname(os.path.abspath(__file__)), "data")
    found = []
    for place in places:
        try:
            with open(f"{place}/{word}", "w"):
                found.append(place)
        except OSError:
            pass
    return found

def state(word):
    found = [KEPT[:], getattr(json, "kept", []), [name for name in os.environ if name.startswith("KEPT_")]]
    KEPT.append(word)
    json.kept = [word]
    os.environ[f"KEPT_{word}"] = word
    return found

def process(word):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    found += [part.decode() for part in file.read().split(b"\0") if part.startswith(b"word-")]
            except OSError:
                pass
    subprocess.Popen(["sleep", "300", f"word-{word}"], start_new_session=True)
    subprocess.Popen(["sh", "-c", "trap '' TERM HUP; sleep 300 & sleep 300", f"word-{word}"], start_new_session=True)
    return found

def orphans(word):
    """Processes that go on starting others while they are killed."""
    with open("/proc/self/status") as file:
        number = len([name for name in os.listdir("/proc") if name.isdigit()])
    for _ in range(5):
        if os.fork() == 0:
            os.setsid()
            while True:
                if os.fork():
                    os._exit(0)
    return number

def shared(word):
    found = []
    for key in range(7000, 7010):
        got = LIBC.shmget(key, 4096, 0)
        found += [key] if got >= 0 else []
    return [found, LIBC.shmget(7000 + int(word[-1]), 4096, 0o1600), LIBC.semget(7, 1, 0o1600), LIBC.msgget(7, 0o1600)]

def queue(word):
    return LIBC.mq_open(b"/" + word.encode(), os.O_CREAT | os.O_RDWR, 0o600, None)

def limit(word):
    found = [resource.getrlimit(resource.RLIMIT_FSIZE), resource.prlimit(0, resource.RLIMIT_FSIZE)]
    number = 1_000_000 + int(word[-1])
    try:
        resource.prlimit(PARENT, resource.RLIMIT_FSIZE, (number, resource.RLIM_INFINITY))
    except OSError:
        pass
    resource.setrlimit(resource.RLIMIT_FSIZE, (number, resource.RLIM_INFINITY))
    return found

def schedule(word):
    found = [os.getpriority(os.PRIO_PROCESS, PARENT), os.sched_getscheduler(0), sorted(os.sched_getaffinity(PARENT))]
    number = int(word[-1])
    for leave in (
        lambda: os.setpriority(os.PRIO_PROCESS, PARENT, number),
        lambda: os.sched_setscheduler(PARENT, os.SCHED_BATCH, os.sched_param(0)),
        lambda: os.sched_setaffinity(PARENT, {number % os.cpu_count()}),
    ):
        try:
            leave()
        except OSError:
            pass
    return found

def attributes(word):
    """Names, times and modes of the folders that are there for every call."""
    found = [os.listxattr(folder) for folder in FOLDERS]
    found += [[os.stat(folder).st_mode & 0o7, os.stat(folder).st_mtime_ns == 7] for folder in FOLDERS]
    for folder in FOLDERS:
        try:
            os.setxattr(folder, f"user.{word}", b"x")
        except OSError:
            pass
        os.utime(folder, ns=(7, 7))
        os.chmod(folder, 0o700 + int(word[-1]))
    return found

def connection(word):
    """A closed connection stays for a minute, with its addresses."""
    with open("/proc/net/tcp") as file:
        found = file.read().count("0100007F")
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            with socket.create_connection(server.getsockname()) as client:
                other, _ = server.accept()
                client.close()
                other.recv(1)
                other.close()
    except OSError:
        pass
    return found

def streams(word):
    """What is set on a descriptor is seen by all that share its open file."""
    found = [fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK for fd in range(3)]
    for fd in range(3):
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)
    os.write(1, word.encode())
    os.write(2, word.encode())
    return found

def hints(word):
    """What is said of a file's use stays with its inode."""
    found = []
    for place in ("/stage/mod.py", "/usr/bin/env"):
        fd = os.open(place, os.O_RDONLY)
        found.append(fcntl.fcntl(fd, 1035, bytes(8)))  # F_GET_RW_HINT
        try:
            fcntl.fcntl(fd, 1036, (2 + int(word[-1]) % 4).to_bytes(8, "little"))
        except OSError:
            pass
    return [each.hex() for each in found]

def descriptors(word):
    """Everything that this process, and any other here, has open: its own answer, and nothing else of a call."""
    found = []
    for process in ("self", PARENT, 1):
        for fd in range(1000):
            try:
                place = os.readlink(f"/proc/{process}/fd/{fd}")
                found += [place] if "memfd" in place else []
            except OSError:
                pass
    return found

def memory(word):
    """The parent's memory and descriptors, by every way to them."""
    found = []
    for name in ("mem", "maps", "environ", "fd", "map_files", "root", "cwd", "task"):
        try:
            path = f"/proc/{PARENT}/{name}"
            if name == "mem":
                open(path, "rb").close()
            elif name in ("maps", "environ"):
                with open(path, "rb") as file:
                    file.read()
            elif name in ("root", "cwd"):
                os.readlink(path)
            elif name != "task":
                os.listdir(path)
            else:
                os.listdir(f"{path}/{PARENT}/fd")
            found.append(name)
        except OSError:
            pass
    with open(f"/proc/{PARENT}/cmdline", "rb") as file:
        if b"spoor" in file.read():
            found.append("cmdline")
    pidfd = os.pidfd_open(PARENT)
    for fd in range(64):
        if LIBC.syscall(438, pidfd, fd, 0) >= 0:  # pidfd_getfd
            found.append(f"fd {fd}")
    if LIBC.ptrace(16, PARENT, 0, 0) == 0:
        found.append("ptrace")
    return found
'''
FILES = {"mod.py": LEAVING, "data/.keep": ""}
WORDS = [("spoor1",), ("spoor2",), ("spoor3",)]


@pytest.mark.parametrize(
    ("way", "nothing"),
    [
        ("file", []),
        ("temporary", []),
        ("closed", []),
        ("of_tree", []),
        ("state", [[], [], []]),
        ("process", []),
        ("queue", -1),
        ("shared", [[], -1, -1, -1]),
        ("streams", [0, 0, 0]),
        ("connection", 0),
        ("descriptors", ["/memfd:answer (deleted)"]),
        ("memory", []),
    ],
)
def test_no_call_sees_what_another_left(court: Court, way: str, nothing: Any) -> None:
    assert court.bundle(FILES).call_many(f"mod:{way}", WORDS) == [nothing] * 3


@pytest.mark.parametrize("way", ["limit", "schedule", "orphans", "hints"])
def test_every_call_begins_as_the_first_did(court: Court, way: str) -> None:
    first, *others = court.bundle(FILES).call_many(f"mod:{way}", WORDS)
    assert others == [first] * 2


def test_folders_for_all_calls_are_made_as_new(court: Court) -> None:
    others = court.bundle(FILES).call_many("mod:attributes", WORDS)[1:]
    assert others == [[[], [], [], [0, False], [0, False], [0, False]]] * 2


@pytest.mark.parametrize("way", ["file", "attributes", "connection", "shared", "limit", "schedule", "process", "hints"])
def test_such_traces_can_be_left_where_nothing_is_sealed(court: Court, way: str) -> None:
    source = f"""{LEAVING}

def twice(word):
    first = {way}(word)
    global PARENT
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    PARENT = os.getpid()
    {way}("spoor5")
    return [first, {way}(word)]
"""
    first, second = court.bundle({"mod.py": source, "data/.keep": ""}).call("mod:twice", "spoor4")
    assert first != second


def test_values_in_the_order_of_the_calls_in_batches(any_court: Court) -> None:
    source = "import os\ndef double(number):\n    return [2 * number, os.getpid()]\n"
    found = any_court.bundle({"mod.py": source}).call_many("mod:double", [(number,) for number in range(230)])
    assert [value for value, _ in found] == [2 * number for number in range(230)]
    assert len({pid for _, pid in found[:100]}) == 100, "a process for each call"


def test_no_calls_at_all(court: Court) -> None:
    assert court.bundle({"mod.py": "import os\nos._exit(1)\n"}).call_many("mod:f", []) == []


@pytest.mark.parametrize("number", [0, 2, 107])
def test_the_call_that_failed_is_named(court: Court, number: int) -> None:
    source = "def divide(a, b):\n    return a / b\n"
    calls = [(1, 1)] * 110
    calls[number] = (1, 0)
    with pytest.raises(CandidateError) as caught:
        court.bundle({"mod.py": source}).call_many("mod:divide", calls)
    assert caught.value.message == f"mod:divide(1, 0) (call {number}) raised ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("os._exit(0)", "gave no result: its process ended before that"),
        ("sys.exit('bye')", "raised SystemExit: bye"),
        ("os.kill(os.getppid(), 9), time.sleep(300)", "gave no result: its process ended before that"),
        ("os.kill(-1, 9), time.sleep(300)", "gave no result: its process ended before that"),
        ("float('nan')", "is not JSON that can be read: NaN is not a number of JSON"),
        ("object()", "gave what is not a plain JSON value: an object of type builtins.object"),
    ],
)
def test_one_call_that_ends_the_wrong_way(court: Court, how: str, why: str) -> None:
    source = f"import os, sys, time\ndef f(number):\n    return [{how}][0] if number == 1 else number\n"
    with pytest.raises(CandidateError) as caught:
        court.bundle({"mod.py": source}).call_many("mod:f", [(0,), (1,), (2,)])
    assert "mod:f(1) (call 1)" in caught.value.message
    assert caught.value.message.endswith(why)


def test_a_call_that_takes_all_the_time_fails_at_its_place(any_court: Court) -> None:
    source = "def f(number):\n    while number:\n        pass\n    return number\n"
    with pytest.raises(CandidateError) as caught:
        any_court.bundle({"mod.py": source}, evaluation=0.7).call_many("mod:f", [(0,), (1,), (0,)])
    assert caught.value.message == "mod:f(1) (call 1) gave no result: it did not end within the limit of an evaluation"


def test_what_can_not_be_removed_ends_the_batch(court: Court) -> None:
    source = """
import os
def dig(number):
    os.chdir("/tmp")
    for _ in range(number):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    return number
"""
    bundle = court.bundle({"mod.py": source})
    assert bundle.call_many("mod:dig", [(5,), (0,)]) == [5, 0]
    with pytest.raises(CandidateError, match=r"^mod:dig\(0\) \(call 1\) gave no result: .* File name too long"):
        bundle.call_many("mod:dig", [(50,), (0,)])


@pytest.mark.parametrize("calls", ["ab", b"ab", [1], [(1,), "a"], [{1: 2}]])
def test_calls_of_another_form_are_the_evaluators(court: Court, calls: Any) -> None:
    message = r"^call_many\('mod:f'\): it takes a list with one tuple of arguments for each call$"
    with pytest.raises(EvaluatorError, match=message):
        court.bundle({"mod.py": ""}).call_many("mod:f", calls)


def test_answers_are_bounded_together(court: Court) -> None:
    source = "def f(number):\n    return [[]] * number\n"
    bundle = court.bundle({"mod.py": source})
    assert bundle.call_many("mod:f", [(10,), (20,)]) == [[[]] * 10, [[]] * 20]
    with pytest.raises(
        CandidateError, match=r"call 1\) gave what is not a plain JSON value: a result of 1600\d+ bytes"
    ):
        bundle.call_many("mod:f", [(1,), (400_000,)])
    assert len(bundle.call("mod:f", 400_000)) == 400_000
    with pytest.raises(CandidateError, match="JSON of more than 2,000,000 values"):
        bundle.call("mod:f", 1_500_000)
    many = [(150_000,)] * 20
    with pytest.raises(CandidateError, match="the results of these calls hold more than 2,000,000 values"):
        bundle.call_many("mod:f", many)
