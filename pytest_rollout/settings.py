"""Settings: one resolver for every knob, from the command line, the ini file and the defaults.

Resolved once, on the controller, and sent to workers as JSON. A marker's arguments are read with
each task; ``docs/reference/settings.md`` has the one table of precedence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pytest_rollout.errors import ConfigError
from pytest_rollout.plain import clean_text, nearest
from pytest_rollout.retries import DEFAULT_RETRIES, read_retries

__all__ = ["CHANGEABLE", "COMPARED", "Settings", "resolve"]

EXECUTORS = ("sandbox", "local")
ISOLATIONS = ("required", "preferred", "none")
RUNGS = ("1", "2", "3", "4", "5")
KEEPS = ("failed", "all", "none")
CONTROLS = ("auto", "none")
_OF_AGENTS = ("agent", "samples", "pin", "audit", "slots", "retries", "retry_forgeable", "resume", "preflight")
GITHUBS = ("auto", "none")
COMPARED = (  # what a run that is resumed must still have
    *("plugin_version", "executor", "executor_version", "executor_digest", "rung"),
    *("agent", "agent_digest", "agent_version", "policy_revision", "model", "sampling", "extra"),
    *("task_digest", "seed", "environment_revision", "evaluator_revision", "shard"),
)
CHANGEABLE = (*COMPARED, "all")
_MOST = 1_000_000
_MAX_INFRA = 10
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_POOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Every setting of a session, checked. Paths are absolute."""

    agent: str | None
    agent_from: str
    samples: int | None
    samples_from: Literal["command line", "ini", "default"]
    agent_forced: bool
    pins: dict[str, str]
    executor: str
    isolation: str
    keep: str
    dir: str
    stage_root: str | None
    config: str
    config_given: bool
    keep_runs: int
    root: str
    audit: bool = False
    audit_repeats: int = 3
    controls: str = "auto"
    github: str = "auto"
    slots: int | None = None
    pools: dict[str, int] = field(default_factory=dict)
    redact: list[str] = field(default_factory=list)
    rung: int | None = None
    gate: list[str] = field(default_factory=list)
    gate_from: Literal["command line", "ini"] = "ini"
    gate_untrusted: bool = False
    rescore: str | None = None
    retries: dict[str, int] = field(default_factory=lambda: dict(DEFAULT_RETRIES))
    retry_forgeable: bool = False
    max_infra: int = _MAX_INFRA
    preflight: bool = False
    resume: str | None = None
    resume_changed: list[str] = field(default_factory=list)
    shard: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a worker; ``Settings(**values)`` is the way back."""
        return asdict(self)


def resolve(
    options: Mapping[str, Any], ini: Mapping[str, Any], *, root: Path, invoked: Path, ini_folder: Path
) -> Settings:
    """The settings of a session; ``options`` and ``ini`` are by name of the knob, missing or None where not given.

    A path of the command line is relative to ``invoked``, one of the ini file to ``ini_folder``.
    Raises ConfigError that names the value, where it came from, and what is valid.
    """
    given = _Given(options, ini)
    config, config_from = given.path("config", invoked, ini_folder)
    folder, _ = given.path("dir", invoked, ini_folder)
    stage_root, _ = given.path("stage_root", invoked, ini_folder)
    agent, agent_from = given.text("agent")
    isolation = given.choice("isolation", ISOLATIONS)
    executor, rung = given.place(isolation)
    samples, samples_from = given.count("samples", least=1)
    keep_runs, _ = given.count("keep_runs", least=1)
    audit_repeats, _ = given.count("audit_repeats", least=1)
    slots, _ = given.count("slots", least=1)
    gate, gate_from = given.lines("gate")
    max_infra, max_infra_from = given.count("max_infra", least=0)
    resume, resume_changed = given.resumed()
    return Settings(
        agent=agent,
        agent_from=agent_from,
        agent_forced=options.get("agent") is not None,
        samples=samples,
        samples_from="command line" if options.get("samples") else "ini" if samples_from else "default",
        pins=given.pins(),
        executor=executor,
        isolation=isolation,
        keep=given.choice("keep", KEEPS),
        dir=str(folder or root / ".rollout"),
        stage_root=None if stage_root is None else str(stage_root),
        config=str(config or ini_folder / "rollout.toml"),
        config_given=config is not None and bool(config_from),
        keep_runs=keep_runs or 50,
        root=str(root),
        audit=bool(options.get("audit")),
        audit_repeats=audit_repeats or 3,
        controls=given.choice("controls", CONTROLS),
        github=given.choice("github", GITHUBS),
        slots=slots,
        pools=given.pools(),
        redact=given.variables("redact"),
        rung=rung,
        gate=gate,
        gate_from=gate_from,
        gate_untrusted=bool(options.get("gate_untrusted")),
        rescore=given.rescored(),
        retries=given.retries(),
        retry_forgeable=bool(options.get("retry_forgeable")),
        max_infra=(max_infra or 0) if max_infra_from else _MAX_INFRA,
        preflight=bool(options.get("preflight")),
        resume=resume,
        resume_changed=resume_changed,
        shard=given.text("shard")[0],
    )


class _Given:
    """What the user said, and where."""

    def __init__(self, options: Mapping[str, Any], ini: Mapping[str, Any]) -> None:
        self._options, self._ini = options, ini

    def text(self, name: str) -> tuple[str | None, str]:
        """The text that was given, and a word for where; ``(None, "")`` where it was not."""
        option = f"--rollout-{name.replace('_', '-')}"
        if self._options.get(name) == "":
            raise ConfigError(f"{option}: the value is empty")
        for source, prefix in ((self._options, option), (self._ini, f"rollout_{name} in the ini file")):
            value = source.get(name)
            if value is not None and value != "" and value != []:
                text = str(value).strip()
                if not text:
                    raise ConfigError(f"{prefix}: {value!r} is empty")
                return text, prefix
        return None, ""

    def choice(self, name: str, valid: tuple[str, ...], default: str | None = None) -> str:
        text, where = self.text(name)
        if text is None:
            return default or valid[0]
        if text not in valid:
            raise ConfigError(f"{where}: unknown {name} {text!r}; valid: {', '.join(valid)}.{nearest(text, valid)}")
        return text

    def place(self, isolation: str) -> tuple[str, int | None]:
        """Where agents run: the executor, and the rung of isolation if one is named."""
        rung, where = self.text("rung")
        if rung is not None:
            self.choice("rung", RUNGS)
        apart = isolation == "none" if rung is None else rung == RUNGS[-1]
        executor = self.choice("executor", EXECUTORS, default="local" if apart else "sandbox")
        said, where_executor = self.text("executor")
        if rung is not None and said is not None and (executor == "local") is not apart:
            raise ConfigError(f"{where}: the executor {executor!r} ({where_executor}) does not have rung {rung}")
        if executor == "local" and isolation == "required":
            what = f"{where_executor}: the executor 'local'" if said is not None else f"{where}: rung {rung}"
            raise ConfigError(
                f"{what} does not isolate the agent",
                hint="Allow it with --rollout-isolation=none; its results are then marked untrusted.",
            )
        return executor, None if rung is None else int(rung)

    def rescored(self) -> str | None:
        """The run that is scored again; refused beside what is about agents, of which none runs."""
        selector, where = self.text("rescore")
        if selector is not None:
            for name in _OF_AGENTS:
                if self._options.get(name) not in (None, False, []):
                    raise ConfigError(
                        f"{where}: it can't be used with --rollout-{name.replace('_', '-')}: no agent runs, and "
                        "samples and pins are those of the stored run"
                    )
        return selector

    def count(self, name: str, *, least: int) -> tuple[int | None, str]:
        text, where = self.text(name)
        if text is None:
            return None, ""
        if not text.isascii() or not text.isdigit() or len(text) > 9 or not least <= int(text) <= _MOST:
            raise ConfigError(f"{where}: {text!r} is not a whole number from {least} to {_MOST}")
        return int(text), where

    def pools(self) -> dict[str, int]:
        """The sizes of the named pools."""
        found: dict[str, int] = {}
        for line in self._ini.get("pools") or ():
            name, equals, size = (part.strip() for part in str(line).partition("="))
            if not equals or not _POOL.fullmatch(name) or not size.isascii() or not size.isdigit() or int(size) < 1:
                raise ConfigError(f"rollout_pools in the ini file: {line!r} is not of the form 'gpu = 2'")
            if name in found or name == "slots":
                why = "is there twice" if name in found else "is what rollout_slots is for"
                raise ConfigError(f"rollout_pools in the ini file: the pool {name!r} {why}")
            found[name] = min(int(size), _MOST)
        return found

    def lines(self, name: str) -> tuple[list[str], Literal["command line", "ini"]]:
        """The values of a repeated option, or else the lines of the ini key; and which of them."""
        given, lines = self._options.get(name) or [], self._ini.get(name) or []
        if any(not item.strip() for item in given):
            raise ConfigError(f"--rollout-{name}: the value is empty")
        found = [str(item).strip() for item in given or lines]
        return [item for item in found if item], "command line" if given else "ini"

    def retries(self) -> dict[str, int]:
        """Retries by kind: what the command line says, over what the ini file says, over the defaults."""
        said = [(self._ini.get("retries"), "rollout_retries in the ini file")]
        said += [(self._options.get("retries"), "--rollout-retries")]
        if self._options.get("retries") == "":
            raise ConfigError("--rollout-retries: the value is empty")
        return read_retries([(str(text).strip(), where) for text, where in said if text is not None and text != ""])

    def variables(self, name: str) -> list[str]:
        """Names of variables, any number a line."""
        found = [word for line in self._ini.get(name) or () for word in str(line).split()]
        for word in found:
            if not _VARIABLE.fullmatch(word):
                raise ConfigError(f"rollout_{name} in the ini file: {word!r} is not the name of a variable")
        return list(dict.fromkeys(found))

    def path(self, name: str, invoked: Path, ini_folder: Path) -> tuple[Path | None, str]:
        text, where = self.text(name)
        if text is None:
            return None, ""
        base = invoked if where.startswith("--") else ini_folder
        return Path(os.path.normpath(base / os.path.expanduser(text))), where

    def resumed(self) -> tuple[str | None, list[str]]:
        """The run to go on with, and the pins that may have changed in it."""
        resume, _ = self.text("resume")
        for other in ("audit", "rescore"):
            if resume is not None and self._options.get(other):
                raise ConfigError(f"--rollout-resume does not go together with --rollout-{other}, which runs no agent")
        found = list(dict.fromkeys(self._options.get("resume_changed") or ()))
        for name in found:
            if name not in CHANGEABLE:
                valid = ", ".join(CHANGEABLE)
                raise ConfigError(
                    f"--rollout-resume-changed: unknown pin {name!r}; valid: {valid}.{nearest(name, CHANGEABLE)}"
                )
        if found and resume is None:
            raise ConfigError("--rollout-resume-changed says something only beside --rollout-resume")
        return resume, found

    def pins(self) -> dict[str, str]:
        """Pins of the ini file, then of the command line; the last of one key wins."""
        found: dict[str, str] = {}
        pairs = [(line.strip(), "rollout_pin in the ini file") for line in self._ini.get("pin") or [] if line.strip()]
        pairs += [(item, "--rollout-pin") for item in self._options.get("pin") or []]
        for item, where in pairs:
            key, equals, value = item.partition("=")
            if not equals or not key.strip():
                raise ConfigError(f"{where}: {item!r} is not KEY=VALUE")
            found[clean_text(key.strip())] = clean_text(value.strip())
        return found
