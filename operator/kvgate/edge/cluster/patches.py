"""The cluster's part in patches: what is written into deployments, and what became of each pool's last patch."""

from __future__ import annotations

from dataclasses import replace

from kvgate.core.steps import Enable, Recommend, Revert
from kvgate.core.world import World
from kvgate.edge.cluster import writing
from kvgate.edge.cluster.client import Client
from kvgate.edge.cluster.reading import ReadPool
from kvgate.edge.cluster.refusals import Unavailable
from kvgate.edge.errors import EdgeError, WriteConflictError

Step = Enable | Revert | Recommend


class Patches:
    """Remembers, by the pool's uid, which operation's patch was accepted last, and which was refused and why."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._denied: dict[str, tuple[str, str]] = {}
        self._landed: dict[str, str] = {}

    def seen(self, pool: ReadPool, world: World) -> World:
        """The world with what became of the operation that the status means."""
        return replace(world, patch_problem=self._denial(pool), patch_landed=self._landed.get(pool.uid, ""))

    def forget(self, uid: str) -> None:
        self._denied.pop(uid, None)
        self._landed.pop(uid, None)

    def do(self, pool: ReadPool, step: Step) -> None:
        """A refusal is remembered for the condition; what another look or another try may mend is none."""
        operation = "" if isinstance(step, Recommend) else step.operation_id
        try:
            if isinstance(step, Recommend):
                writing.recommend(self._client, pool, step)
            else:
                writing.patch(self._client, pool, step)
        except EdgeError as error:
            if not isinstance(error, WriteConflictError | Unavailable):
                self._denied[pool.uid] = (operation, str(error))
            raise
        self._denied.pop(pool.uid, None)
        if operation:
            self._landed[pool.uid] = operation

    def _denial(self, pool: ReadPool) -> str:
        """Why the operation that the status means could not be written; of a recommendation, which is none, as well."""
        operation, why = self._denied.get(pool.uid, ("", ""))
        if operation == (pool.status.operation.id if pool.status.operation else ""):
            return why
        self._denied.pop(pool.uid, None)
        return ""
