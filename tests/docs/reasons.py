"""Every reason that the code can put into a condition, a finding or the history, read from the code itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import kvgate
from kvgate.core.switching import Held
from kvgate.dynamo.shape import ProblemReason
from kvgate.dynamo.steps import REDUCED_CAPACITY, RefusalReason

_ROOT = Path(kvgate.__file__).parent
_TELLERS = frozenset({"true", "false", "unknown"})
_FINDERS = frozenset({"Finding", "_finding"})
_NOTERS = frozenset({"_noted", "_ended"})
WITH_A_WORD = frozenset({"Approval", "HeldBy", "HoldingFor"})
"""Reasons that end in a word of a closed set: an approval's state, or what holds a capability."""

Found = tuple[str, str]
"""Outcome and reason."""


@cache
def _trees(room: str) -> tuple[ast.Module, ...]:
    return tuple(ast.parse(path.read_text(encoding="utf-8")) for path in sorted((_ROOT / room).rglob("*.py")))


def _calls(node: ast.AST, names: frozenset[str], place: int) -> Iterator[ast.Call]:
    """The calls of these functions that have an argument at that place."""
    for call in ast.walk(node):
        named = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in names
        if isinstance(call, ast.Call) and named and len(call.args) > place:
            yield call


def _words(node: ast.expr) -> Iterator[str]:
    """The words that an expression can come to, as far as they stand in it."""
    match node:
        case ast.Constant(value=str(word)):
            yield word
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*_words(body), *_words(orelse))
        case ast.JoinedStr(values=[ast.Constant(value=str(start)), _]) if start not in WITH_A_WORD:
            raise ValueError(f"line {node.lineno}: {start} begins a reason that no table of words ends")
        case _:
            return


def told(module: str) -> dict[str, frozenset[str]]:
    """The reasons that each function of a module of core gives of itself, without those it hands on."""
    tree = ast.parse((_ROOT / "core" / f"{module}.py").read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    said = {f.name: [w for c in _calls(f, _TELLERS, 0) for w in _words(c.args[0])] for f in functions}
    return {name: frozenset(words) for name, words in said.items() if words}


def found() -> frozenset[Found]:
    """Outcome and reason of every finding that a criterion or a target can give."""
    calls = [call for tree in _trees("core") for call in _calls(tree, _FINDERS, 2)]
    pairs = {(_outcome(call.args[1]), word) for call in calls for word in _words(call.args[2])}
    unknown = {("Unknown", word) for word in _of_problems("KVUnknown")}
    errors = {("Error", word) for word in (*_of_problems("TargetProblem"), *ProblemReason, *RefusalReason)}
    return frozenset(pairs | unknown | errors | {("Inconclusive", REDUCED_CAPACITY)})


def looks() -> frozenset[Found]:
    """Progress and reason of every look at a link of the chain after a patch, but for the empty ones."""
    calls = [call for tree in _trees("core") for call in _calls(tree, frozenset({"Look"}), 1)]
    return frozenset(
        (state, word) for call in calls for state in _states(call.args[0]) for word in _words(call.args[1]) if word
    )


def _states(node: ast.expr) -> Iterator[str]:
    """The progress that a look gives, where it stands in the code."""
    found = (part for part in ast.walk(node) if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name))
    yield from (
        part.attr.capitalize() for part in found if isinstance(part.value, ast.Name) and part.value.id == "Progress"
    )


def _of_problems(problem: str) -> frozenset[str]:
    trees = (*_trees("core"), *_trees("edge"))
    calls = [call for tree in trees for call in _calls(tree, frozenset({problem}), 0)]
    return frozenset(word for call in calls for word in _words(call.args[0]))


def noted() -> frozenset[str]:
    """Reasons of history entries that stand in the code; a rollback's reason is that of a finding."""
    calls = [call for tree in _trees("core") for call in _calls(tree, _NOTERS, 4)]
    return frozenset(word for call in calls for word in _words(call.args[4]))


def held() -> frozenset[str]:
    """The words of `heldBy` that some rule uses."""
    attributes = [node for tree in _trees("core") for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    used = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "Held"}
    return frozenset(Held[name].value for name in used if Held[name])


def _outcome(node: ast.expr) -> str:
    if not isinstance(node, ast.Attribute):
        raise TypeError(f"line {node.lineno}: the outcome of a finding must be written as Outcome.NAME")
    return node.attr.capitalize()
