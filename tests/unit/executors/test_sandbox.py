"""What an agent sees from inside the sandbox, and what it can't do there."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_rollout.agents.paths import resolve_paths
from pytest_rollout.executors.bwrap import Bwrap
from pytest_rollout.executors.prelude import MAX_PROCESSES
from pytest_rollout.executors.protocol import Bind, ExecutorInfo
from pytest_rollout.stage.root import NOBODY

if TYPE_CHECKING:
    from tests.unit.conftest import Lab

ROOT = os.geteuid() == 0
PATH = "/usr/local/bin:/usr/bin:/bin"
OF_A_SHELL = {"SHLVL", "_", "OLDPWD"}  # set by /bin/sh itself, where that is bash
SECRETS = {
    "HTTP_PROXY": "http://secret-of-the-host",
    "PYTHONPATH": "/secret-of-the-host",
    "LD_PRELOAD": "/secret-of-the-host.so",
    "GIT_DIR": "/secret-of-the-host",
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-host",
    "PYTEST_OF_THE_HOST": "secret-of-the-host",
}


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's environment has credentials, and variables that change programs."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def test_what_is_recorded_of_the_executor(sandbox: Lab, bwrap: Bwrap) -> None:
    info = sandbox.executor.info
    assert info == ExecutorInfo(
        name="sandbox", trusted=True, rung=1, path=bwrap.origin, version=bwrap.version, digest=bwrap.digest
    )
    assert info.describe() == f"sandbox (rung 1, bwrap {bwrap.version})"


def test_what_is_observed(sandbox: Lab) -> None:
    assert sandbox.run("true").ended.observed == {"network": "none", "pid_namespace": "private"}
    assert sandbox.run("true", network="host").ended.observed == {"network": "host", "pid_namespace": "private"}
    assert sandbox.run("true").ended.tree_dead is True


# -- environment and processes


@pytest.mark.usefixtures("secrets")
def test_the_environment_is_exactly_what_is_given(sandbox: Lab) -> None:
    trial = sandbox.run(["env", "-0"], env={"GIVEN": "yes"})
    found = dict(item.split("=", 1) for item in trial.text.split("\0") if item)
    assert {name: value for name, value in found.items() if name not in OF_A_SHELL} == {
        "PATH": PATH,
        "HOME": "/home/agent",
        "TMPDIR": "/tmp",
        "PWD": "/stage",
        "GIVEN": "yes",
    }
    assert trial.stderr == b""  # the loader complains of LD_PRELOAD where it is set


@pytest.mark.usefixtures("secrets")
def test_nothing_of_the_caller_is_to_be_seen(sandbox: Lab) -> None:
    trial = sandbox.run(
        "env; cat /proc/*/environ /proc/*/cmdline /proc/*/task/*/environ; cat /proc/keys; mount",
        env={"TOKEN": "given-to-the-agent"},
        over={"a": "x"},
        prompt="the prompt",
    )
    assert "given-to-the-agent" in trial.text
    seen = trial.text.replace("\0", "\n")
    for secret in ("secret-of-the-host", "PYTEST", str(sandbox.folder), "workspace-1"):
        assert secret not in seen
    with open(f"/proc/{os.getpid()}/cmdline") as file:
        assert file.read().split("\0")[0] not in seen.splitlines()


def test_its_reaper_and_the_keys_of_the_host_are_not_to_be_seen(sandbox: Lab) -> None:
    trial = sandbox.run("ls -A /proc/1 | wc -l; touch /proc/1/x; cat /proc/keys | wc -c; cat /proc/2/comm")
    assert trial.text == "0\n0\nsh\n"


def test_only_its_own_processes_are_there(sandbox: Lab) -> None:
    started = "sleep 60 & until grep -qa ^sleep /proc/$!/cmdline; do :; done; "
    trial = sandbox.run(started + "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>&1; echo; done")
    lines = [line.strip() for line in trial.text.splitlines() if line.strip()]
    assert "sleep 60" in lines
    others = [line for line in lines if line != "sleep 60" and "for p in" not in line and not line.startswith("tr ")]
    assert [line for line in others if "No such file" not in line and "can't open" not in line] == []


def test_no_process_of_the_host_can_be_signalled(sandbox: Lab) -> None:
    trial = sandbox.run(f"kill -0 {os.getpid()} 2>&1; echo $?; kill -0 1 && echo reaper; echo $$")
    status, reaper, own = trial.text.splitlines()[-3:]
    assert (status, reaper) == ("1", "reaper")
    assert int(own) < 50


def test_it_can_not_kill_its_reaper(sandbox: Lab) -> None:
    trial = sandbox.run("kill -9 1; kill -TERM 1; sleep 0.1; echo alive")
    assert (trial.end, trial.text) == (("completed", 0, None), "alive\n")


# -- rights


def test_it_is_no_root_and_holds_no_capability(sandbox: Lab) -> None:
    trial = sandbox.run("id -u; id -g; grep -E '^(Cap|NoNewPrivs|Uid)' /proc/self/status; hostname")
    lines = trial.text.splitlines()
    assert lines[:2] == ["1000", "1000"]
    rights = dict(line.split(":", 1) for line in lines[2:-1])
    assert {name: int(rights[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {
        "CapInh": 0, "CapPrm": 0, "CapEff": 0, "CapBnd": 0, "CapAmb": 0,
    }  # fmt: skip
    assert rights["NoNewPrivs"].strip() == "1"
    assert lines[-1] == "stage"


@pytest.mark.skipif(not ROOT, reason="an ordinary user's agents run as that user")
def test_on_the_host_it_is_nobody(sandbox: Lab) -> None:
    trial = sandbox.run("echo x > file; mkdir folder")
    for name in ("file", "folder"):
        info = os.lstat(f"{trial.stage.path}/u/{name}")
        assert (info.st_uid, info.st_gid) == (NOBODY, NOBODY)


@pytest.mark.parametrize(
    "script",
    [
        "unshare --user true",
        "unshare --map-root-user true",
        "unshare --mount true",
        "unshare --net true",
        "mount -t tmpfs x /tmp",
        "mount -o remount,rw /usr",
        "umount /stage",
        "umount -l /proc",
        "/usr/sbin/chroot / true",
        "mknod n c 1 3",
        "chown 0 .",
        "setpriv --reuid 0 true",
        "hostname other",
    ],
)
def test_what_it_is_not_allowed_to(sandbox: Lab, script: str) -> None:
    trial = sandbox.run(script)
    assert trial.ended.termination == "exit_code"
    assert b"not found" not in trial.stderr
    assert trial.changes == {}


def test_a_setuid_program_gives_no_right(sandbox: Lab) -> None:
    trial = sandbox.run("cp /usr/bin/id i; chmod 4755 i; ./i -u; ./i -ru")
    assert trial.text == "1000\n1000\n"


# -- files


def test_the_root_holds_little_and_can_not_be_written(sandbox: Lab) -> None:
    trial = sandbox.run(
        "ls -A /; "
        "for f in /x /dev/x /home/x /etc/x /usr/x /rollout/x /rollout/prompt.txt /proc/sys/kernel/hostname; "
        "do echo x > $f && echo wrote $f; done; touch /dev/null; echo x > /dev/null && echo null"
    )
    *names, null = trial.text.splitlines()
    assert set(names) - {"lib32", "lib64"} == {
        "bin", "dev", "etc", "home", "lib", "proc", "rollout", "sbin", "stage", "tmp", "usr",
    }  # fmt: skip
    assert null == "null"


def test_its_own_places_can_be_written_and_are_bounded(sandbox: Lab) -> None:
    trial = sandbox.run(
        "for d in /stage /tmp /home/agent /dev/shm $HOME $TMPDIR; do echo x > $d/x || echo no $d; done; "
        "df -k --output=size /tmp /home/agent /dev/shm | tail -n +2 | tr -d ' '; ls -ld $HOME | cut -c1-10"
    )
    assert trial.text.splitlines() == [str(1 << 20)] * 3 + ["drwx------"]
    assert trial.changes == {"x": "added file"}


def test_what_it_must_not_read_is_not_there(sandbox: Lab, tmp_path: Path) -> None:
    other = sandbox.run("echo of-another-attempt > file")
    (tmp_path / "results.jsonl").write_text("of-the-results")
    (sandbox.root.path / "secret").write_text("of-the-stage-root")
    places = [
        f"{other.stage.path}/u/file",
        str(tmp_path / "results.jsonl"),
        str(sandbox.root.path / "secret"),
        other.stage.baseline.path,
        str(sandbox.root.path),
        __file__,
        os.path.expanduser("~"),
        "/etc/shadow",
        "/etc/hostname",
        "/root",
        "/var",
        "/run",
        "/sys",
        "/mnt",
        "/oldroot",
    ]
    trial = sandbox.run(["sh", "-c", 'for f; do test -e "$f" && echo there "$f"; cat "$f"; done', "sh", *places])
    assert trial.text == ""
    assert b"of-a" not in trial.stderr


# -- network


@pytest.fixture
def server() -> Iterator[int]:
    """A server on the loopback of the host, and its port."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"of-the-host")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield listening.server_address[1]
        listening.shutdown()
        thread.join()


FETCH = """
import sys, urllib.request
try:
    print(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/", timeout=10).read().decode())
except OSError as error:
    print("refused", error)
"""


def test_without_network_there_is_only_lo(sandbox: Lab, server: int, python: tuple[str, tuple[Bind, ...]]) -> None:
    trial = sandbox.run("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; cat /proc/net/route | tail -n +2")
    assert trial.text == "lo\n"
    trial = sandbox.run([python[0], "-c", FETCH, str(server)], binds=python[1])
    assert trial.text.startswith("refused"), trial.stderr
    assert "Connection refused" in trial.text  # of its own loopback


def test_with_the_network_of_the_host_it_is_reached(
    sandbox: Lab, server: int, python: tuple[str, tuple[Bind, ...]]
) -> None:
    trial = sandbox.run([python[0], "-c", FETCH, str(server)], binds=python[1], network="host")
    assert trial.text == "of-the-host\n", trial.stderr


def test_no_unix_socket_of_the_host_is_reached(
    sandbox: Lab, private_folder: Path, python: tuple[str, tuple[Bind, ...]]
) -> None:
    import socket

    script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
        abstract.bind(f"\0rollout-{os.getpid()}")
        named.bind(str(private_folder / "s"))
        os.chmod(private_folder / "s", 0o777)
        abstract.listen()
        named.listen()
        for address in (f"\0rollout-{os.getpid()}", str(private_folder / "s")):
            with socket.socket(socket.AF_UNIX) as own:
                own.connect(address)  # it is there
            trial = sandbox.run([python[0], "-c", script.replace("sys.argv[1]", repr(address))], binds=python[1])
            assert trial.ended.termination == "exit_code"
            assert b"ConnectionRefusedError" in trial.stderr or b"FileNotFoundError" in trial.stderr


# -- interpreters outside /usr


@pytest.fixture
def venv(private_folder: Path) -> Path:
    """A virtual environment below a home folder that others can't enter."""
    place = private_folder / "home/venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (private_folder / "home").chmod(0o700)
    return place


def test_a_virtual_environment_below_a_closed_home_works(sandbox: Lab, venv: Path) -> None:
    trial = sandbox.run(
        [f"{venv}/bin/python", "-c", "import sys, json; print(sys.prefix); print(sys.executable)"],
        binds=resolve_paths([str(venv)], Path("/"), "this test"),
    )
    assert trial.text.splitlines() == [str(venv), f"{venv}/bin/python"], trial.stderr
    assert str(sandbox.root.path) not in Path("/proc/self/mountinfo").read_text()  # nothing was mounted on the host
    assert trial.changes == {}
    assert sandbox.run("ls -A " + str(venv.parent.parent)).text == ""


def test_a_bound_environment_can_not_be_written(sandbox: Lab, venv: Path) -> None:
    trial = sandbox.run(
        f"touch {venv}/x; rm -rf {venv}/bin; touch {venv.parent}/x; ls {venv}/pyvenv.cfg",
        binds=resolve_paths([str(venv)], Path("/"), "this test"),
    )
    assert trial.text == f"{venv}/pyvenv.cfg\n"
    assert sorted(entry.name for entry in venv.parent.iterdir()) == ["venv"]
    assert (venv / "bin/python").exists()


def test_a_bound_file_below_a_closed_home_is_read(sandbox: Lab, private_folder: Path) -> None:
    (private_folder / "home").mkdir()
    (private_folder / "home/model.bin").write_text("weights")
    (private_folder / "home/private").write_text("private")
    (private_folder / "home").chmod(0o700)
    path = f"{private_folder}/home/model.bin"
    bind = Bind(source=path, target="/opt/model.bin")
    trial = sandbox.run(f"cat /opt/model.bin; cat {private_folder}/home/private", binds=(bind,))
    assert trial.text == "weights"


def test_a_dropped_stage_leaves_the_bound_folder_alone(sandbox: Lab, venv: Path) -> None:
    binds = resolve_paths([str(venv)], Path("/"), "this test")
    trial = sandbox.run([f"{venv}/bin/python", "-c", "print(1)"], binds=binds)
    assert sandbox.executor.drop(trial.stage) is None
    assert (venv / "bin/python").exists()
    assert not os.path.lexists(trial.stage.path)


# -- limits that are no task's own


def test_processes_are_bounded_and_no_core_is_dumped(sandbox: Lab) -> None:
    trial = sandbox.run("cat /proc/self/limits | grep -E 'processes|core'; kill -SEGV $$")
    limits = {line.split("  ")[0]: line[26:].split()[:2] for line in trial.text.splitlines()}
    assert limits == {"Max processes": [str(MAX_PROCESSES + 9)] * 2, "Max core file size": ["0", "0"]}
    assert trial.changes == {}


@pytest.mark.slow
def test_a_fork_bomb_is_bounded(sandbox: Lab) -> None:
    trial = sandbox.run("f() { f | f & }; echo up; f; sleep 60", wall=0.5)
    assert trial.text.startswith("up\n")
    assert trial.ended.termination in ("wall_limit", "exit_code", "completed")
    assert sandbox.run("echo usable").text == "usable\n"
