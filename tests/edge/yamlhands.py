"""YAML files of the tests: written, read back, refused, patched and compared."""

from __future__ import annotations

from pathlib import Path

from kvgate.api.words import Capability
from kvgate.dynamo.shape import Target, read_target
from kvgate.dynamo.steps import Change, EnvRef, Step, Steps
from kvgate.dynamo.toggle import plan_steps
from kvgate.edge.yamlfiles import (
    Document,
    FileProblem,
    Patched,
    patch_document,
    read_documents,
)

ROOT = Path(__file__).parents[2]
SAMPLE = (ROOT / "manifests" / "samples" / "dgd-qwen3.yaml").read_text(encoding="utf-8")
ROUTER_ENV, SPLIT_ENV = "DYN_ROUTER_MODE", "DYN_VLLM_DISAGGREGATION_MODE"
ROUTING, SPLIT = Capability.ROUTING, Capability.DISAGGREGATION
KV = Change(ROUTING, (Step("Frontend", ROUTER_ENV, "kv"),))
RELEASE = Change(ROUTING, (), (EnvRef("Frontend", ROUTER_ENV),))


def written(folder: Path, text: str, name: str = "dgd.yaml") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def documents(path: Path) -> tuple[Document, ...]:
    found = read_documents(path)
    assert not isinstance(found, FileProblem), found
    return found


def refused(path: Path) -> FileProblem:
    problem = read_documents(path)
    assert isinstance(problem, FileProblem)
    assert problem.message.startswith(f"{path} ")
    assert "\n" not in problem.message
    return problem


def steps_of(document: Document, capability: Capability) -> Steps:
    target = read_target(document.body)
    assert isinstance(target, Target)
    steps = plan_steps(target, capability)
    assert isinstance(steps, Steps), steps
    return steps


def patched(document: Document, change: Change) -> Patched:
    answer = patch_document(document, change)
    assert isinstance(answer, Patched), answer
    return answer


def differing(before: str, after: str) -> list[tuple[str, str]]:
    lines = zip(before.splitlines(), after.splitlines(), strict=True)
    return [(old.strip(), new.strip()) for old, new in lines if old != new]
