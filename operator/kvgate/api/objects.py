"""Whole objects as they are stored: metadata, spec and status of our four kinds."""

from __future__ import annotations

from typing import Literal, TypeVar

from pydantic import Field

from kvgate.api.approval import ApprovalSpec
from kvgate.api.benchmark import BenchmarkReportSpec
from kvgate.api.complaints import Complaint
from kvgate.api.meta import Meta
from kvgate.api.pool import PoolSpec
from kvgate.api.report import ReportSpec
from kvgate.api.status import PoolStatus
from kvgate.api.validate import faults
from kvgate.api.wire import Wire


class InferencePool(Wire):
    api_version: Literal["kvgate.dev/v1alpha1"] = "kvgate.dev/v1alpha1"
    kind: Literal["InferencePool"] = "InferencePool"
    metadata: Meta
    spec: PoolSpec
    status: PoolStatus = Field(default_factory=PoolStatus)


class FabricReport(Wire):
    api_version: Literal["kvgate.dev/v1alpha1"] = "kvgate.dev/v1alpha1"
    kind: Literal["FabricReport"] = "FabricReport"
    metadata: Meta
    spec: ReportSpec


class BenchmarkReport(Wire):
    api_version: Literal["kvgate.dev/v1alpha1"] = "kvgate.dev/v1alpha1"
    kind: Literal["BenchmarkReport"] = "BenchmarkReport"
    metadata: Meta
    spec: BenchmarkReportSpec


class GateApproval(Wire):
    api_version: Literal["kvgate.dev/v1alpha1"] = "kvgate.dev/v1alpha1"
    kind: Literal["GateApproval"] = "GateApproval"
    metadata: Meta
    spec: ApprovalSpec


T = TypeVar("T", InferencePool, FabricReport, BenchmarkReport, GateApproval)


def read_pool(document: object) -> InferencePool | tuple[Complaint, ...]:
    """The pool, or what is wrong with it. Fields that it does not know are dropped, as the API server drops them."""
    return _read(InferencePool, document)


def read_report(document: object) -> FabricReport | tuple[Complaint, ...]:
    """The report, or what is wrong with it."""
    return _read(FabricReport, document)


def read_benchmark(document: object) -> BenchmarkReport | tuple[Complaint, ...]:
    """The report of an A/B, or what is wrong with it."""
    return _read(BenchmarkReport, document)


def read_approval(document: object) -> GateApproval | tuple[Complaint, ...]:
    """The approval, or what is wrong with it."""
    return _read(GateApproval, document)


def _read(model: type[T], document: object) -> T | tuple[Complaint, ...]:
    stored, complaints = faults(document, model.__name__)
    return complaints or model.model_validate(stored)
