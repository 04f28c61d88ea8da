"""Deployments that stand in files: the patch that a step would make, shown or really written."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import yaml

from kvgate.api.words import Capability
from kvgate.core.steps import Enable, Recommend, Revert, Step
from kvgate.core.world import Pool
from kvgate.dynamo.patch import ApplyProblem, apply_to_document, revert
from kvgate.dynamo.recommend import kustomize_patch
from kvgate.dynamo.shape import Target
from kvgate.dynamo.steps import Change, Steps
from kvgate.dynamo.steps import Step as EnvStep
from kvgate.dynamo.toggle import plan_steps
from kvgate.edge.errors import EdgeError
from kvgate.edge.objects import Objects, Source
from kvgate.edge.observe import target_document, target_of
from kvgate.edge.yamlfiles import FileProblem, patch_document


def change_of(step: Enable | Revert | Recommend) -> Change:
    """What a step writes, and what it lets go of."""
    if isinstance(step, Revert):
        return revert(step.capability, step.baseline)
    return Change(step.capability, tuple(EnvStep(s.component, s.env, s.to) for s in step.steps))


def write_change(source: Source, step: Enable | Revert) -> bool:
    """Patch the file that holds the deployment; False when it held the values already. Raises EdgeError."""
    patched = patch_document(source.document, change_of(step))
    if isinstance(patched, FileProblem):
        raise EdgeError(patched.message)
    return patched.written


def recommendation(source: Source, step: Recommend) -> str:
    """A kustomize-ready patch of the manifest. Raises EdgeError."""
    text = kustomize_patch(source.body, change_of(step))
    if isinstance(text, ApplyProblem):
        raise EdgeError(f"{source.where}: {text.message}")
    return text


def preview(pool: Pool, objects: Objects, steps: Iterable[Step]) -> str:
    """The difference that the patches among the steps would make to the manifest, as a unified diff."""
    source = target_document(pool, objects)
    patches = [step for step in steps if isinstance(step, Enable | Revert | Recommend)]
    if source is None:
        return ""
    return "".join(difference(source, change_of(step)) for step in patches)


def difference(source: Source, change: Change) -> str:
    """What the change would make of the manifest, as a unified diff."""
    after = apply_to_document(source.body, change)
    if isinstance(after, ApplyProblem):
        return ""
    before_lines, after_lines = (_lines(body) for body in (source.body, after))
    return "".join(difflib.unified_diff(before_lines, after_lines, source.path.name, source.path.name, n=2))


def planned_difference(source: Source, capability: Capability) -> str:
    """What switching the capability on would make of the manifest, as a unified diff; empty where it is on already.

    Raises EdgeError for a deployment that cannot be read or switched.
    """
    target = target_of(source)
    steps = plan_steps(target, capability) if isinstance(target, Target) else None
    if not isinstance(steps, Steps):
        raise EdgeError(f"DynamoGraphDeployment {source.path.name} cannot be switched: see TargetResolved of the pool")
    return difference(source, Change(capability, steps.on))


def _lines(body: object) -> list[str]:
    return yaml.safe_dump(body, sort_keys=False).splitlines(keepends=True)
