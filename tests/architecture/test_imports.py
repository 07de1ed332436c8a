"""The import rule: imports point one way, and only the glue knows pytest.

Values know nothing of the machine; what acts on it knows values; a run puts it together; the console
tool and the pytest glue stand at the top and never know each other. The rule is read from the source,
so an import inside a function counts as well; one under TYPE_CHECKING does not.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import pytest_rollout

PACKAGE = Path(pytest_rollout.__file__).parent
NAME = "pytest_rollout"
MAX_FUNCTION, MAX_FILE = 60, 350

# The parts of the package, the lowest first: what each consists of, and what it may import beside
# itself. A part may import only parts above it in this table.
PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "values": (
        (
            *(
                "",
                "errors",
                "plain",
                "knobs",
                "identity",
                "limits",
                "task",
                "bundle",
                "diff",
                "evidence",
                "evaluated",
                "outcome",
            ),
            *("reward", "control", "bodylimit", "lastresort", "processes", "apart", "redaction"),
            *("retries", "breaker", "shard"),
        ),
        (),
    ),
    "settings": (("settings",), ("values",)),
    # Trees on disk: baselines, stages, reading them safely.
    "stage": (("stage",), ("values",)),
    # Workspaces out of repositories and archives.
    "sources": (("sources",), ("values", "stage")),
    # Where an agent acts. An executor provisions stages.
    "executors": (("executors",), ("values", "stage")),
    # How many agents run at once.
    "capacity": (("capacity", "waiting"), ("values", "stage", "executors")),
    # What acts. An agent is given an executor's stage, and says which paths it needs bound.
    "agents": (("agents",), ("values", "executors")),
    # The marker's arguments make a task; a workspace must not hold what agents may not see.
    "marker": (("marker",), ("values", "agents")),
    # The folders of runs: records, journals, reading them again.
    "store": (("store",), ("values", "stage")),
    # What a rollout left: shown as a difference, taken over, let go.
    "retained": (("retained",), ("values", "stage", "store")),
    # A candidate's work against checks, in sandboxes of their own.
    "evaluation": (("evaluation",), ("values", "stage", "executors", "agents")),
    # What was asked for, beside what was in force.
    "enforced": (("enforced", "findings"), ("values", "executors")),
    # What must be equal for two results to be comparable.
    "pins": (("pins",), ("values", "executors", "agents")),
    # Task, agent and executor make a bundle, with a way to judge it.
    "attempt": (
        ("attempt", "tries"),
        ("values", "stage", "executors", "capacity", "agents", "evaluation", "enforced", "pins", "store"),
    ),
    # What right, forged and spoilt work scores.
    "audit": (("audit",), ("values", "store")),
    # Figures, comparisons, gates.
    "decisions": (("decisions",), ("values", "settings", "store")),
    # What people and tools read of results.
    "report": (("report",), ("values", "store", "decisions")),
    # Stored bundles scored again.
    "rescoring": (
        ("rescoring",),
        ("values", "stage", "executors", "store", "retained", "evaluation", "attempt", "decisions"),
    ),
    # The runs of shards become one.
    "merging": (("merging",), ("values", "stage", "store", "report")),
    # One row a rollout, for others.
    "exporting": (("exporting",), ("values", "store")),
    # From a verdict to records.
    "recording": (("recording",), ("values", "store")),
    # Which rung of isolation a run has.
    "isolation": (("isolation",), ("values", "settings", "stage", "executors", "store")),
    # What agents are shown must not hold anything private.
    "shown": (("shown",), ("values", "executors", "agents")),
    # A session's settings, folder, agents and executor.
    "run": (
        ("run", "job"),
        (
            *("values", "settings", "sources", "stage", "executors", "capacity", "agents", "store", "attempt"),
            *("recording", "rescoring", "isolation", "shown"),
        ),
    ),
    # Whether the first rollout is worth its price.
    "preflight": (("preflight",), ("values", "executors", "agents", "store", "attempt", "run")),
    # A command in a view of what a rollout left.
    "inspection": (("inspection",), ("values", "stage", "executors", "agents")),
    # How well a machine isolates, and what to do about it.
    "doctor": (("doctor",), ("stage", "executors")),
    "cli": (
        ("cli",),
        (
            *("values", "stage", "store", "decisions", "report", "inspection", "retained", "doctor"),
            *("merging", "exporting"),
        ),
    ),
    # plugin.py and the files beside it that begin with an underscore: they translate for pytest.
    "glue": (
        ("plugin", "_*"),
        (
            *("values", "settings", "stage", "executors", "agents", "marker", "store", "evaluation", "attempt"),
            *("audit", "decisions", "report", "rescoring", "recording", "run", "capacity", "preflight", "pins"),
        ),
    ),
}
FRAMEWORK = {"pytest", "_pytest", "pluggy", "xdist", "execnet"}
# pytest finds what is in it by name, not by ``__all__``.
WITHOUT_ALL = {"plugin"}


@cache
def trees() -> dict[str, ast.Module]:
    """Every module by its name inside the package; the package itself is the empty name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text("utf-8"), str(path))
    return found


def part_of(module: str) -> str:
    """The part that a module belongs to."""
    head = module.partition(".")[0]
    for part, (members, _) in PARTS.items():
        if head in members or (head.startswith("_") and "_*" in members):
            return part
    raise AssertionError(f"{module} belongs to no part: write it into the table")


def statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports of a module that happen when it runs."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        yield from statements(child)


def imported(module: str) -> Iterator[tuple[str, str | None]]:
    """(module, name or None) of each import, with full names."""
    for statement in statements(trees()[module]):
        if isinstance(statement, ast.Import):
            yield from ((alias.name, None) for alias in statement.names)
        else:
            assert statement.level == 0, f"{module}: an import from here is not written with dots"
            assert statement.module is not None
            for alias in statement.names:
                whole = f"{statement.module}.{alias.name}"
                yield (whole, None) if whole.removeprefix(f"{NAME}.") in trees() else (statement.module, alias.name)


def own_imports(module: str) -> Iterator[tuple[str, str | None]]:
    """The imports of the package's own modules, by their names inside it."""
    for name, what in imported(module):
        if name == NAME or name.startswith(f"{NAME}."):
            yield name.removeprefix(NAME).removeprefix("."), what


def public_names(module: str) -> tuple[list[str], list[str] | None]:
    """The names that a module defines, and its ``__all__`` (None where there is none)."""
    names: list[str] = []
    listed: list[str] | None = None
    for node in trees()[module].body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name):
                names.append(target.id)
                if target.id == "__all__":
                    assert isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
                    listed = ast.literal_eval(node.value)
    return [name for name in names if not name.startswith("_")], listed


MODULES = sorted(trees())


def test_the_table_has_every_module_once_and_points_one_way() -> None:
    members = [member for members, _ in PARTS.values() for member in members]
    assert len(set(members)) == len(members)
    heads = {module.partition(".")[0] for module in MODULES}
    assert {"_*" if head.startswith("_") else head for head in heads} == set(members)
    above: list[str] = []
    for part, (_, may) in PARTS.items():
        assert set(may) <= set(above), part
        above.append(part)
    assert "cli" not in PARTS["glue"][1]
    assert "glue" not in PARTS["cli"][1]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_part_may(module: str) -> None:
    part = part_of(module)
    allowed = {part, *PARTS[part][1]}
    wrong = sorted({name for name, _ in own_imports(module) if part_of(name) not in allowed})
    assert wrong == [], f"{module} ({part}) may import {sorted(allowed)}"


def test_every_permission_of_the_table_is_used() -> None:
    used = {(part_of(module), part_of(name)) for module in MODULES for name, _ in own_imports(module)}
    unused = sorted((part, may) for part, (_, allowed) in PARTS.items() for may in allowed if (part, may) not in used)
    assert unused == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    edges = {module: {name for name, _ in own_imports(module) if name and name != module} for module in MODULES}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            for name in sorted(edges[module]):
                visit(name, (*path, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())


@pytest.mark.parametrize("module", [module for module in MODULES if part_of(module) != "glue"])
def test_only_the_glue_imports_pytest(module: str) -> None:
    found = sorted({name for name, _ in imported(module) if name.partition(".")[0] in FRAMEWORK})
    assert found == []


def is_guest(module: str) -> bool:
    """Whether a module runs inside the sandbox of an evaluation, beside code of a candidate's."""
    return f"{module}.".startswith("evaluation.guest.")


@pytest.mark.parametrize("module", MODULES)
def test_what_runs_beside_a_candidate_and_the_rest_import_nothing_of_each_other(module: str) -> None:
    other = {name for name, _ in own_imports(module) if is_guest(name) is not is_guest(module)}
    assert other == set()


@pytest.mark.parametrize("module", [module for module in MODULES if is_guest(module)])
def test_what_runs_beside_a_candidate_needs_nothing_that_is_installed(module: str) -> None:
    heads = {name.partition(".")[0] for name, _ in imported(module)}
    assert heads - sys.stdlib_module_names <= {NAME}


def test_the_glue_does_import_pytest_and_lies_at_the_top() -> None:
    glue = {module for module in MODULES if part_of(module) == "glue"}
    assert all("." not in module for module in glue)
    knows = {module for module in glue if any(name.partition(".")[0] in FRAMEWORK for name, _ in imported(module))}
    assert {"plugin", "_session", "_xdist"} <= knows


@pytest.mark.parametrize("module", MODULES)
def test_pytest_is_used_by_its_public_names(module: str) -> None:
    assert [name for name, _ in imported(module) if name.partition(".")[0] == "_pytest"] == []


@pytest.mark.parametrize("module", MODULES)
def test_private_names_stay_in_their_module(module: str) -> None:
    private = [f"{name}.{what}" for name, what in own_imports(module) if what and what.startswith("_")]
    assert [name for name in private if not name.endswith(".__version__")] == []


# The public names


def test_the_public_api_is_sorted_and_can_be_imported() -> None:
    assert pytest_rollout.__all__ == sorted(pytest_rollout.__all__)
    assert set(pytest_rollout.__all__) == {*pytest_rollout._HOME, "__version__"}
    assert dir(pytest_rollout) == pytest_rollout.__all__
    for name, home in pytest_rollout._HOME.items():
        module = import_module(f"{NAME}.{home}")
        assert getattr(pytest_rollout, name) is getattr(module, name)
        assert name in module.__all__


def test_a_type_checker_sees_the_same_api() -> None:
    (block,) = [node for node in trees()[""].body if isinstance(node, ast.If)]
    seen = {
        alias.name: (statement.module or "").removeprefix(f"{NAME}.")
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert seen == pytest_rollout._HOME


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'pytest_rollout' has no attribute 'Nothing'$"):
        pytest_rollout.Nothing  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    script = (
        "import sys; before = set(sys.modules); import pytest_rollout; "
        "print(sorted(m for m in set(sys.modules) - before if m.partition('.')[0] not in sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "['pytest_rollout']\n"


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is_for(module: str) -> None:
    text = ast.get_docstring(trees()[module])
    assert text
    assert text.splitlines()[0].endswith((".", ":"))


@pytest.mark.parametrize("module", MODULES)
def test_every_module_lists_its_public_names(module: str) -> None:
    names, listed = public_names(module)
    if module in WITHOUT_ALL:
        assert listed is None
    elif not names:
        assert not listed or module == ""
    else:
        assert listed, f"{module} defines {names} and has no __all__"
        assert len(set(listed)) == len(listed)
        there = {*names, *pytest_rollout._HOME, "__version__"} if module == "" else set(names)
        assert set(listed) <= there


# The size of things


@pytest.mark.parametrize("module", MODULES)
def test_functions_fit_on_a_screen(module: str) -> None:
    sizes = {
        node.name: (node.end_lineno or 0) - node.lineno + 1
        for node in ast.walk(trees()[module])
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: size for name, size in sizes.items() if size > MAX_FUNCTION} == {}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_hold_one_idea(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= MAX_FILE
