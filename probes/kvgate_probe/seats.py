"""Names of walkers: each has that of its node, and the second one on a node that of its companion."""

from __future__ import annotations

_SECOND = "/2"
"""No node's name holds a slash."""


def companion_of(node: str) -> str:
    """The walker to which the node's own sends over a path that does not leave the node."""
    return f"{node}{_SECOND}"


def node_of(walker: str) -> str:
    """The node on which a walker stands."""
    return walker.removesuffix(_SECOND)


def walker_at(node: str, *, companion: bool) -> str:
    """What a schedule calls the node's walker, or its companion."""
    return companion_of(node) if companion else node


def is_companion(walker: str) -> bool:
    return walker.endswith(_SECOND)
