"""Works out a small function from its syntax tree, so that nothing of the candidate's is run or imported.

It follows names, ``if``, ``return``, arithmetic on numbers, comparisons, indexing, and the functions in FUNCTIONS.
There are no loops and no calls of the candidate's own functions, lists cannot grow and whole numbers are bounded, so
every call ends soon. What it cannot follow, and what goes wrong inside, is an AssertionError: the candidate's failure.
"""

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

LONGEST_SOURCE = 20_000
LARGEST_NUMBER = 10**9
FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (abs, bool, float, int, len, list, max, min, sorted, sum)
}
OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def call(source: str, name: str, values: Sequence[float]) -> object:
    """What ``name(values)`` gives, for a function that stands in ``source`` and takes one argument."""
    try:
        function = _find(source, name)
        outcome = _run(function.body, {function.args.args[0].arg: list(values)})
    except (SyntaxError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise AssertionError(f"{name}({list(values)}) ends with {type(error).__name__}: {error}") from None
    return outcome[0] if outcome else None


def _find(source: str, name: str) -> ast.FunctionDef:
    """The function of that name, in a module that holds functions and nothing else."""
    assert len(source) <= LONGEST_SOURCE, f"the file has more than {LONGEST_SOURCE} characters"
    found: dict[str, ast.FunctionDef] = {}
    for node in ast.parse(source).body:
        if _is_text(node):
            continue
        assert isinstance(node, ast.FunctionDef), f"line {node.lineno}: only functions were asked for here"
        assert node.name not in found and node.name not in FUNCTIONS, f"line {node.lineno}: {node.name} is taken"
        found[node.name] = node
    assert name in found, f"there is no function {name} any more"
    function = found[name]
    plain = ast.arguments(posonlyargs=[], args=function.args.args, kwonlyargs=[], kw_defaults=[], defaults=[])
    simple = len(plain.args) == 1 and not function.decorator_list and ast.dump(function.args) == ast.dump(plain)
    assert simple, f"{name} is not a plain function of one argument"
    return function


def _run(body: list[ast.stmt], names: dict[str, Any]) -> tuple[Any] | None:
    """The value that was returned, in a tuple; None where the end of the body was reached."""
    for node in body:
        match node:
            case ast.Return(value=value):
                return (None if value is None else _value(value, names),)
            case ast.If(test=test, body=then, orelse=orelse):
                outcome = _run(then if _value(test, names) else orelse, names)
                if outcome:
                    return outcome
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names[name] = _value(value, names)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                names[name] = _value(value, names)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                names[name] = _arithmetic(node, op, names.get(name), _value(value, names))
            case _ if not _is_text(node):
                raise _unclear(node)
    return None


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | None as value):
            return _bounded(value)
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_number(node, _value(item, names)) for item in items]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, names)
        case ast.UnaryOp(op=op, operand=operand):
            return _arithmetic(node, op, _value(operand, names))
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(node, op, _value(left, names), _value(right, names))
        case ast.BoolOp(op=op, values=operands):
            return _first_that_decides(isinstance(op, ast.Or), operands, names)
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _compare(node, [_value(operand, names) for operand in (left, *others)], ops)
        case ast.IfExp(test=test, body=then, orelse=orelse):
            return _value(then if _value(test, names) else orelse, names)
        case ast.Subscript(value=sequence, slice=ast.Slice(lower=lower, upper=upper, step=step)):
            bounds = [None if bound is None else _value(bound, names) for bound in (lower, upper, step)]
            return _value(sequence, names)[slice(*bounds)]
        case ast.Subscript(value=sequence, slice=index):
            return _value(sequence, names)[_value(index, names)]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords) if name in FUNCTIONS.keys() - names:
            options = {keyword.arg or "**": _value(keyword.value, names) for keyword in keywords}
            return _bounded(FUNCTIONS[name](*(_value(argument, names) for argument in arguments), **options))
    raise _unclear(node)


def _first_that_decides(wanted: bool, operands: list[ast.expr], names: dict[str, Any]) -> Any:
    value = None
    for operand in operands:
        value = _value(operand, names)
        if bool(value) is wanted:
            break
    return value


def _compare(node: ast.AST, values: list[Any], ops: list[ast.cmpop]) -> bool:
    pairs = zip(values, ops, values[1:], strict=False)
    return all(_operator(node, op)(left, right) for left, op, right in pairs)


def _arithmetic(node: ast.AST, op: ast.AST, *operands: Any) -> Any:
    return _bounded(_operator(node, op)(*(_number(node, operand) for operand in operands)))


def _operator(node: ast.AST, op: ast.AST) -> Callable[..., Any]:
    if type(op) not in OPERATORS:
        raise _unclear(node)
    return OPERATORS[type(op)]


def _number(node: ast.AST, value: Any) -> Any:
    if not isinstance(value, int | float):
        raise _unclear(node)
    return value


def _bounded(value: Any) -> Any:
    assert not isinstance(value, int) or abs(value) <= LARGEST_NUMBER, "a number grows too large"
    return value


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _unclear(node: ast.AST) -> AssertionError:
    return AssertionError(f"line {getattr(node, 'lineno', '?')}: the checks cannot follow {ast.unparse(node)[:80]!r}")
