"""A namespace of a real API server with the sample pool in it, as the edge's own tests have it."""

from __future__ import annotations

from tests.edge.cluster.conftest import kinds, yard

__all__ = ["kinds", "yard"]
