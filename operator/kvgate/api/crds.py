"""The four CustomResourceDefinitions, compiled from the models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel

from kvgate.api.approval import APPROVAL_RULES, ApprovalSpec
from kvgate.api.benchmark import BenchmarkReportSpec
from kvgate.api.pool import FOREIGN_FIELDS, POOL_RULES, PoolSpec
from kvgate.api.report import REPORT_RULES, ReportSpec
from kvgate.api.schema import JSON, schema_of
from kvgate.api.status import PoolStatus
from kvgate.api.wire import GROUP, VERSION, Cel, with_rules


@dataclass(frozen=True)
class Column:
    """One column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0

    def document(self) -> JSON:
        named = {"name": self.name, "jsonPath": self.path, "type": self.type}
        return named | ({"priority": self.priority} if self.priority else {})


@dataclass(frozen=True)
class Kind:
    """All that Kubernetes must know of one kind."""

    kind: str
    plural: str
    short_names: tuple[str, ...]
    spec: type[BaseModel]
    columns: tuple[Column, ...]
    description: str
    rules: tuple[Cel, ...] = ()
    status: type[BaseModel] | None = None
    categories: tuple[str, ...] = ("kvgate",)
    selectable: tuple[str, ...] = ()
    """Fields that a list can be narrowed by, where the cluster is of Kubernetes 1.31 or newer."""
    required_by_rule: bool = False


def _condition(kind: str, field: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


POOL = Kind(
    kind="InferencePool",
    plural="inferencepools",
    short_names=("kvpool",),
    categories=("kvgate", "inference"),
    description="A request to gate one DynamoGraphDeployment on measured fabric evidence.",
    spec=PoolSpec,
    status=PoolStatus,
    rules=POOL_RULES,
    required_by_rule=True,
    selectable=(".spec.targetRef.name",),
    columns=(
        Column("Mode", ".spec.mode"),
        Column("Routing", _condition("RoutingEnabled")),
        Column("Split", _condition("DisaggregationEnabled")),
        Column("Worst Path", ".status.fabric.link.worst.bytesPerSecond", "integer"),
        Column("Ready", _condition("Ready")),
        Column("Reason", _condition("Ready", "reason")),
    ),
)
REPORT = Kind(
    kind="FabricReport",
    plural="fabricreports",
    short_names=("fabrep",),
    description="The whole evidence of one sweep: immutable shards, and an index that names them.",
    spec=ReportSpec,
    rules=REPORT_RULES,
    columns=(
        Column("Pool", ".spec.poolRef.name"),
        Column("Run", ".spec.runID"),
        Column("Paths", ".spec.paths", "integer"),
        Column("Measured", ".spec.measured", "integer"),
    ),
)
BENCHMARK = Kind(
    kind="BenchmarkReport",
    plural="benchmarkreports",
    short_names=("benchrep",),
    description="The whole evidence of one routing A/B: immutable shards, and an index that names and sums them up.",
    spec=BenchmarkReportSpec,
    rules=REPORT_RULES,
    columns=(
        Column("Pool", ".spec.poolRef.name"),
        Column("Run", ".spec.runID"),
        Column("Workload", ".spec.workload"),
        Column("Blocks", ".spec.blocks", "integer"),
        Column("Improvement %", ".spec.improvementPercent"),
    ),
)
APPROVAL = Kind(
    kind="GateApproval",
    plural="gateapprovals",
    short_names=("gapp",),
    description="A person's approval of one plan, by its hash.",
    spec=ApprovalSpec,
    rules=APPROVAL_RULES,
    columns=(
        Column("Pool", ".spec.poolRef.name"),
        Column("Capability", ".spec.capability"),
        Column("Approver", ".spec.approver"),
        Column("Expires", ".spec.expiresAt"),
    ),
)
KINDS = (POOL, REPORT, BENCHMARK, APPROVAL)
_AGE = Column("Age", ".metadata.creationTimestamp", "date")


def spec_schema(kind: Kind) -> JSON:
    """The schema of `spec`, with the rules that span its fields."""
    schema = with_rules(schema_of(kind.spec), *kind.rules)
    if not kind.required_by_rule:
        return schema
    foreign = {name: dict(declared) for name, (declared, _) in FOREIGN_FIELDS.items()}
    schema["properties"] = schema["properties"] | foreign
    schema.pop("required", None)
    return schema


def crd(kind: Kind) -> dict[str, Any]:
    """The manifest of one kind."""
    columns = [column.document() for column in (*kind.columns, _AGE)]
    version = {"name": VERSION, "served": True, "storage": True}
    status: JSON = {"subresources": {"status": {}}} if kind.status else {}
    selectable: JSON = {"selectableFields": [{"jsonPath": path} for path in kind.selectable]} if kind.selectable else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": _names(kind),
            "versions": [
                version
                | status
                | selectable
                | {"additionalPrinterColumns": columns, "schema": {"openAPIV3Schema": root_schema(kind)}}
            ],
        },
    }


def _names(kind: Kind) -> JSON:
    return {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "shortNames": list(kind.short_names),
        "categories": list(kind.categories),
    }


def root_schema(kind: Kind) -> JSON:
    """The schema of the whole object."""
    properties: JSON = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec_schema(kind),
    }
    if kind.status:
        properties["status"] = schema_of(kind.status) | {"default": {"observedGeneration": -1}}
    return {"type": "object", "description": kind.description, "required": ["spec"], "properties": properties}


HEADER = "# generated by `kvgate crds`; edit operator/kvgate/api\n"


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def render() -> dict[str, str]:
    """The text of each manifest by its file name."""
    return {f"{GROUP}_{kind.plural}.yaml": HEADER + _text(crd(kind)) for kind in KINDS}


def _text(document: JSON) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
