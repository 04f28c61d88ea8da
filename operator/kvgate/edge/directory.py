"""A directory of YAML as the ground of the ring: manifests are read, deployments patched, status kept in .kvgate."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

import yaml

from kvgate.api.objects import InferencePool
from kvgate.api.status import PoolStatus
from kvgate.api.wire import API_VERSION
from kvgate.api.words import Capability
from kvgate.core.evidence import Evidence
from kvgate.core.steps import Enable, Measure, Recommend, Revert, Step
from kvgate.core.world import Pool, World
from kvgate.edge.errors import EdgeError
from kvgate.edge.files import Read, objects_of, read_directory
from kvgate.edge.objects import Objects
from kvgate.edge.observe import ConfigReader, no_worker_asked, pool_of, target_document, world_of
from kvgate.edge.targets import change_of, difference, recommendation, write_change
from kvgate.edge.yamlfiles import PARTIAL
from kvgate.edge.yamlnodes import read_own, written
from kvgate.probe.reports import superseded, to_reports

_FOLDER = ".kvgate"
_HALF = ".half"

RateReader = Callable[[Pool], float | None]


class Measurer(Protocol):
    """Runs a sweep and gives its evidence. Raises MeasureError when it cannot be run from here."""

    def __call__(self, pool: Pool, objects: Objects, step: Measure) -> Evidence: ...


class Directory:
    """The ground of `kvgate reconcile -f` and of the demo. Hold `locked()` around every use."""

    def __init__(
        self,
        root: Path,
        measure: Measurer,
        observed_rate: RateReader = lambda _: None,
        worker_config: ConfigReader = no_worker_asked,
    ) -> None:
        self.root = root
        self.done: list[str] = []
        self.patches: list[str] = []
        self._measure = measure
        self._observed_rate = observed_rate
        self._worker_config = worker_config
        self._seen = Objects()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One kvgate at a time on a directory. Raises EdgeError when another holds it or it cannot be written."""
        try:
            (self.root / _FOLDER).mkdir(exist_ok=True)
            handle = (self.root / _FOLDER / "lock").open("a", encoding="utf-8")
        except OSError as error:
            raise EdgeError(f"{self.root}: cannot be written ({error.strerror}); make it writable") from error
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise EdgeError(f"{self.root}: another kvgate is at work there; wait for it or stop it") from error
            self._clear_halves()
            yield

    def _clear_halves(self) -> None:
        """What a kvgate that was killed had begun to write; nobody else writes while the lock is held."""
        for half in (*(self.root / _FOLDER).rglob(f"*{_HALF}"), *self.root.glob(f".*.*.*{PARTIAL}")):
            if not half.is_dir():
                half.unlink(missing_ok=True)

    def load(self) -> Objects:
        """Everything in the directory and what kvgate keeps beside it. Raises EdgeError for what cannot be used."""
        objects = objects_of(self._read())
        return replace(objects, pools=tuple(self._with_status(stored) for stored in objects.pools))

    def _read(self) -> Read:
        given = read_directory(self.root)
        folder = self._reports
        kept = read_directory(folder) if folder.is_dir() else Read((), ())
        return Read((*given.sources, *kept.sources), (*given.problems, *kept.problems))

    def _with_status(self, stored: InferencePool) -> InferencePool:
        """The pool with the status that kvgate wrote; one in its manifest counts as little as in `kubectl apply`."""
        path = self._status_path(stored.metadata.namespace, stored.metadata.name)
        bare = stored.model_copy(update={"status": PoolStatus()})
        try:
            kept = read_own(path.read_text(encoding="utf-8"))
            if kept["metadata"]["uid"] != stored.metadata.uid:
                return bare
            return stored.model_copy(update={"status": PoolStatus.model_validate(kept["status"])})
        except FileNotFoundError:
            return bare
        except (OSError, ValueError, KeyError, TypeError, RecursionError, yaml.YAMLError) as error:
            what = "holds no status that can be read; it is kvgate's memory: restore it, or remove it to start anew"
            raise EdgeError(f"{path}: {what}") from error

    def pools(self) -> tuple[str, ...]:
        return tuple(pool_of(stored).key for stored in self.load().pools)

    def observe(self, key: str) -> tuple[Pool, World]:
        objects = self._seen = self.load()
        pools = {pool.key: pool for pool in map(pool_of, objects.pools)}
        if key not in pools:
            raise EdgeError(f"{self.root}: pool {key} is gone")
        pool = pools[key]
        world = world_of(pool, objects, self._worker_config)
        return pool, replace(world, observed_requests_per_second=self._observed_rate(pool))

    def write_status(self, pool: Pool, status: PoolStatus) -> None:
        document = {
            "apiVersion": API_VERSION,
            "kind": "InferencePool",
            "metadata": {"name": pool.name, "namespace": pool.namespace, "uid": pool.uid},
            "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        self._keep(self._status_path(pool.namespace, pool.name), document)

    def carry_out(self, pool: Pool, world: World, step: Step) -> None:
        """Measure, or patch the deployment as `observe` saw it. Raises EdgeError when its document changed since."""
        if isinstance(step, Measure):
            self._store(pool, self._measure(pool, self.load(), step))
        elif isinstance(step, Enable | Revert | Recommend):
            self._patch(pool, self._seen, step)

    def _patch(self, pool: Pool, objects: Objects, step: Enable | Revert | Recommend) -> None:
        source = target_document(pool, objects)
        if source is None:
            raise EdgeError(
                f"{self.root}: DynamoGraphDeployment {pool.spec.target_ref.name} is gone; nothing was patched"
            )
        if isinstance(step, Recommend):
            self._recommend(pool, step.capability, recommendation(source, step))
        elif write_change(source, step):
            self.patches.append(difference(source, change_of(step)))
            self.done.append(f"{_verb(step)} {step.capability} in {source.path.name}")

    def _recommend(self, pool: Pool, capability: Capability, text: str) -> None:
        name = f"{pool.namespace}.{pool.name}.{capability.lower()}.yaml"
        path = self.root / _FOLDER / "recommendations" / name
        if not path.is_file() or path.read_bytes() != text.encode():
            self._write(path, text)
            self.done.append(f"Wrote the patch to {path.relative_to(self.root)}")

    def _store(self, pool: Pool, evidence: Evidence) -> None:
        for report in to_reports(evidence, pool.name):
            document = {
                "apiVersion": API_VERSION,
                "kind": "FabricReport",
                "metadata": {"name": report.name, "namespace": pool.namespace},
                "spec": report.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True),
            }
            self._keep(self._reports / f"{pool.namespace}.{report.name}.yaml", document)
        self._forget(pool, evidence.measured_at)

    def _forget(self, pool: Pool, stored_at: datetime) -> None:
        """Remove sweeps beyond `reports.keep`, index first, so that no index ever names a missing shard; and shards
        that no index names, for the sweep that wrote them never ended."""
        own = [r for r in self.load().reports if r.spec.pool_ref.uid == pool.uid]
        fabric = pool.spec.fabric
        for report in superseded(own, fabric.reports.keep, fabric.evidence_ttl.delta, stored_at):
            (self._reports / f"{pool.namespace}.{report.metadata.name}.yaml").unlink(missing_ok=True)

    def _keep(self, path: Path, document: object) -> None:
        self._write(path, written(document))

    def _write(self, path: Path, text: str) -> None:
        """Whole or not at all."""
        half = path.with_suffix(_HALF)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            half.write_text(text, encoding="utf-8")
            half.replace(path)
        except OSError as error:
            raise EdgeError(
                f"{path}: cannot be written ({error.strerror}); make room for it, and its directory writable"
            ) from error

    @property
    def _reports(self) -> Path:
        return self.root / _FOLDER / "reports"

    def _status_path(self, namespace: str, name: str) -> Path:
        return self.root / _FOLDER / "status" / f"{namespace}.{name}.yaml"


def _verb(step: Enable | Revert) -> str:
    return "Enabled" if isinstance(step, Enable) else "Reverted"
