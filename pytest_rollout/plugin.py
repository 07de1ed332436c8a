"""The pytest plugin: options, fixtures, and hooks that only translate.

Loaded in every pytest session, so it imports pytest and two small tables. What a hook decides is
decided in the modules that it calls, which are imported when the first rollout is met.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pytest_rollout._marks import MARKER, concerns_us
from pytest_rollout.knobs import KNOBS, TAG

if TYPE_CHECKING:
    from pytest_rollout._session import RolloutSession
    from pytest_rollout.evidence import Bundle
    from pytest_rollout.reward import Reward
    from pytest_rollout.task import Task

_SESSION = pytest.StashKey["RolloutSession"]()
_TAGGED = pytest.StashKey[dict[Path, bool]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rollout", "agent rollouts (pytest-rollout)")
    for knob in KNOBS:
        if knob.flag:
            assert knob.option is not None
            group.addoption(knob.option, dest=f"rollout_{knob.name}", action="store_true", help=knob.help)
            continue
        if knob.option is not None:
            group.addoption(
                knob.option,
                dest=f"rollout_{knob.name}",
                metavar=knob.metavar,
                default=None,
                action="append" if knob.repeated else "store",
                help=knob.help,
            )
        if not knob.ini:
            continue
        kind: Literal["linelist", "string"] = "linelist" if knob.repeated else "string"
        parser.addini(f"rollout_{knob.name}", knob.help, type=kind, default=[] if knob.repeated else "")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "rollout(agent, prompt, workspace, limits, …): an agent evaluation task; see pytest-rollout"
    )
    if config.getoption("rollout_shard", None) is not None:
        from pytest_rollout._sharding import PLUGIN, Sharding, shard_of

        config.pluginmanager.register(Sharding(config, shard_of(config)), PLUGIN)
    if hasattr(config.option, "dist") and not hasattr(config, "workerinput"):  # xdist, by whatever name it was loaded
        from pytest_rollout._xdist import Controller

        config.pluginmanager.register(Controller(config), "rollout-controller")
    if _asks_for_gates(config):
        from pytest_rollout._gates import Gates

        Gates.register(config)


def _asks_for_gates(config: pytest.Config) -> bool:
    """Whether a gate was given, here where the exit status is made; a bad ini value is one that is looked at."""
    if hasattr(config, "workerinput"):
        return False
    try:
        return bool(config.getoption("rollout_gate", None) or config.getini("rollout_gate"))
    except (TypeError, ValueError):
        return True


def session_of(config: pytest.Config) -> RolloutSession:
    """The state of this process's session, made when first asked for."""
    if _SESSION not in config.stash:
        from pytest_rollout._session import RolloutSession

        config.stash[_SESSION] = RolloutSession(config)
    return config.stash[_SESSION]


def active(config: pytest.Config) -> RolloutSession | None:
    """The state of the session, where a rollout was met."""
    return config.stash.get(_SESSION, None)


# -- fixtures


@pytest.fixture
def _rollout_sample(request: pytest.FixtureRequest) -> Any:
    """Which sample of the task this test is; parametrized by the plugin."""
    return getattr(request, "param", None)


@pytest.fixture
def rollout_task(request: pytest.FixtureRequest, _rollout_sample: Any) -> Task:
    """The task of this test, from its marker. Override it to change the task: ``rollout_task.replace(…)``."""
    return session_of(request.config).task(request.node)


@pytest.fixture
def rollout_agent(request: pytest.FixtureRequest) -> Any:
    """The agent of this test. Override it with a command, a name, or a callable that takes a live stage."""
    return session_of(request.config).agent(request.node)


@pytest.fixture
def bundle(
    request: pytest.FixtureRequest, _rollout_sample: Any, rollout_task: Task, rollout_agent: Any
) -> Iterator[Bundle]:
    """The evidence of one rollout: provisions a stage, runs the agent in it, and collects what it left."""
    session = session_of(request.config)
    yield session.run(request.node, rollout_task, rollout_agent)
    session.put_away(request.node)


@pytest.fixture
def reward(request: pytest.FixtureRequest) -> Reward:
    """The score of this rollout: ``reward.check``, ``reward.add``, ``reward.set``, ``reward.metric``."""
    return session_of(request.config).reward(request.node)


# -- collection


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    """Refuse an argument inside a folder of results, before pytest runs a conftest that a candidate wrote."""
    here = Path(early_config.invocation_params.dir)
    for argument in early_config.known_args_namespace.file_or_dir or [""]:
        place = Path(os.path.realpath(here / argument.partition("::")[0]))
        found = next((folder for folder in place.parents if _is_tagged(folder)), None)
        if found is not None:
            raise pytest.UsageError(f"rollout: {place} is in {found}: what candidates wrote is never collected")
    return (yield)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Never collect anything in a folder of results: it holds files that candidates wrote."""
    known = config.stash.setdefault(_TAGGED, {})
    for folder in (collection_path, *collection_path.parents):
        if folder not in known:
            known[folder] = _is_tagged(folder)
        if known[folder]:
            return True
    return None


def _is_tagged(folder: Path) -> bool:
    """Whether a folder of results, or of stages, begins here."""
    try:
        return TAG in (folder / "CACHEDIR.TAG").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker(MARKER) is None or "_rollout_sample" not in metafunc.fixturenames:
        return
    from pytest_rollout._items import parametrize

    session = session_of(metafunc.config)
    parametrize(metafunc, lambda: session.run_of_session)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    failed = session.testsfailed and not session.config.option.continue_on_collection_errors
    if failed and not hasattr(session.config, "workerinput"):
        return  # pytest ends the session here, so nothing is started
    if isinstance(sys.exception(), KeyboardInterrupt | pytest.exit.Exception):  # it calls this even then
        return
    if any(concerns_us(item) for item in session.items):
        session_of(session.config).begin(session)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    session = active(config)
    return session.header() if session is not None and config.get_verbosity() >= 0 else []


# -- running and reporting


def _phase(item: pytest.Item) -> Generator[None, Any, Any]:
    """Know a phase of a test while it lasts: a report that is made in it is a subtest's.

    Of an interrupt no report comes, so what was not judged before is recorded here.
    """
    session = active(item.config)
    if session is None or not session.knows(item):
        return (yield)
    state = session.state(item)
    state.in_phase = True
    try:
        return (yield)
    except (KeyboardInterrupt, pytest.exit.Exception):
        session.interrupted(state)
        raise
    finally:
        state.in_phase = False


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Leave a rollout alone that a worker died with, and that pytest-xdist hands out, or of a run that ends."""
    session = active(item.config)
    known = session is not None and session.knows(item)
    return True if session is not None and known and session.state(item).left_alone else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    session = active(item.config)
    if session is None or not session.knows(item):
        return (yield)
    with session.state(item).clock.running(waiting=True):
        return (yield from _phase(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _phase(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _phase(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    session = active(pyfuncitem.config)
    if session is None or not session.knows(pyfuncitem):
        return (yield)
    state = session.state(pyfuncitem)
    session.judge_of_session.before_body(pyfuncitem.funcargs)
    with state.clock.running():
        result = yield
    session.judge_of_session.after_body(state)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    session = active(item.config)
    if session is not None and session.knows(item):
        session.judge_of_session.judge(session.state(item), call, report)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, str | tuple[str, Mapping[str, bool]]] | None:
    audited = getattr(report, "rollout_audit", None)
    if isinstance(audited, dict):
        return report.outcome, "." if report.passed else "F", audited["verdict"].upper()
    found = getattr(report, "rollout", None)
    if not isinstance(found, dict) or hasattr(report, "wasxfail") or (report.when == "teardown" and report.passed):
        return None
    if found["outcome"] == "infra":
        return "error", "I", (found["word"], {"red": True})
    if report.outcome == found["outcome"]:
        return report.outcome, "." if report.passed else "F", found["word"]
    return None


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(config: pytest.Config) -> Generator[None, Any, Any]:
    data = yield
    if active(config) is None:
        return data
    from pytest_rollout.plain import clean

    return clean(data)
