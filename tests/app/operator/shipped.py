"""What ships to run the operator, as documents."""

from __future__ import annotations

import copy
from pathlib import Path

import yaml

from tests.cluster.access import Document

ROOT = Path(__file__).parents[3]
NAMESPACE = "kvgate-system"
HELMS_LABELS = ("app.kubernetes.io/managed-by", "helm.sh/chart")


def base(directory: Path = ROOT / "manifests") -> list[Document]:
    """What kustomize makes of a base without patches: the files that it lists."""
    listed = next(p for p in (directory / "kustomization.yaml", directory / "Kustomization") if p.exists())
    found: list[Document] = []
    for name in yaml.safe_load(listed.read_text())["resources"]:
        path = (directory / name).resolve()
        found += base(path) if path.is_dir() else [d for d in yaml.safe_load_all(path.read_text()) if d]
    return found


def by_name(documents: list[Document]) -> dict[str, Document]:
    named = {}
    for document in documents:
        metadata = document["metadata"]
        named[f"{document['kind']} {metadata.get('namespace', '')}/{metadata['name']}"] = document
    assert len(named) == len(documents)
    return named


def plain(document: Document) -> Document:
    """Without what only one of the two says: Helm's labels, our own name as label, the settings' layout."""
    bare = copy.deepcopy(document)
    labels = bare["metadata"].get("labels", {})
    for label in (*HELMS_LABELS, "app.kubernetes.io/name"):
        labels.pop(label, None)
    bare["metadata"]["labels"] = labels
    if bare["kind"] == "ConfigMap":
        bare["data"] = {key: yaml.safe_load(text) for key, text in bare["data"].items()}
    return bare


def one(documents: list[Document], kind: str) -> Document:
    (found,) = [document for document in documents if document["kind"] == kind]
    return found
