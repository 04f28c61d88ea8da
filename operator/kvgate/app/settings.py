"""The operator's settings: what the cluster's administrator decides for all pools, read from a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError, model_validator

from kvgate.api.complaints import Complaint, child, place
from kvgate.api.prepare import prepared, unknown_fields
from kvgate.api.quantities import Duration
from kvgate.api.rules import broken_rules
from kvgate.api.schema import JSON, schema_of
from kvgate.api.selectors import NodeSelector
from kvgate.api.structure import misshapen
from kvgate.api.wire import Wire, Word
from kvgate.app.settings_values import (
    ByteSize,
    FilePath,
    Image,
    LogLevel,
    ProbeCapability,
    interval,
    matcher,
    names,
    url,
)
from kvgate.core.vetoes import KNOWN, Sign, Signal
from kvgate.edge.promql import DEFAULT_MATCHER, PrometheusEndpoint, read_matchers
from kvgate.edge.yamlnodes import YamlRefusedError, compose, construct

KEY = "settings.yaml"
LARGEST_TEXT_BYTES = 256 * 1024


class ProbeSettings(Wire):
    """What the measuring pods may be and do."""

    image: Image | None = None
    """The image of the measuring pods. Without it no sweep is started in a cluster."""
    allowed_node_selector: NodeSelector | None = None
    """The nodes that may be measured at all; a pool's own selectors only narrow it. Without it: any node."""
    allow_host_network: bool = False
    """Whether a pool may ask for pods on the node's own network."""
    allowed_capabilities: Annotated[tuple[ProbeCapability, ...], Field(max_length=3)] = ()
    """Linux capabilities that measuring pods get where the namespace's Pod Security admits them."""
    max_concurrent_sweeps: Annotated[int, Field(ge=1, le=16)] = 1
    """How many sweeps may run at a time, over all pools."""
    max_bytes_per_sweep: ByteSize | None = None
    """How much one sweep may send over all its paths. Without it: no limit but its time."""
    min_interval: Annotated[Duration, AfterValidator(interval)] = Duration("1h")
    """The least time between two scheduled sweeps of a pool, from 1m to 720h."""


class VetoSettings(Wire):
    """What one more health tool sets on a node that speaks against it."""

    tool: Annotated[str, Field(min_length=1, max_length=63)]
    """What the tool is called in messages."""
    sign: Sign
    """Where it leaves its word: a Condition (of this type), a Taint or a Label (of this key)."""
    key: Annotated[str, Field(min_length=1, max_length=317)]
    """The condition's type, or the key of the taint or label."""
    values: Annotated[tuple[Word, ...], Field(max_length=16)] = ()
    """The values that speak against the node; of a condition True where none is named, else any."""
    remedy: Annotated[str, Field(min_length=1, max_length=256)] = "ask who runs the tool"
    """Who lifts it, and how."""

    @property
    def signal(self) -> Signal:
        any_value = ("True",) if self.sign is Sign.CONDITION else ()
        return Signal(self.tool, self.sign, self.key, self.values or any_value, self.remedy)


class NodeHealthSettings(Wire):
    """Which words of health tools count against a node, beside those that kvgate knows."""

    ignore: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=63)], ...], Field(max_length=16)] = ()
    """Tools of the known list that are not listened to, by the name that messages give them."""
    vetoes: Annotated[tuple[VetoSettings, ...], Field(max_length=32)] = ()
    """What other tools set."""

    @model_validator(mode="after")
    def _ignores_the_known(self) -> NodeHealthSettings:
        known = sorted({signal.tool for signal in KNOWN})
        if any(tool not in known for tool in self.ignore):
            raise ValueError(f"ignore names a tool that is not known; known are {', '.join(known)}")
        return self

    @property
    def signals(self) -> tuple[Signal, ...]:
        known = tuple(signal for signal in KNOWN if signal.tool not in self.ignore)
        return (*known, *(veto.signal for veto in self.vetoes))


class TLSSettings(Wire):
    """How the connection is trusted, and who we say we are."""

    ca_file: FilePath | None = None
    """A file of CA certificates in PEM, instead of the well-known ones."""
    insecure_skip_verify: bool = False
    """Takes any certificate: whoever is in between can answer in Prometheus's place."""
    bearer_token_file: FilePath | None = None
    """A file that holds a bearer token; it is read anew at each query."""

    @model_validator(mode="after")
    def _one_trust(self) -> TLSSettings:
        if self.ca_file and self.insecure_skip_verify:
            raise ValueError("caFile and insecureSkipVerify exclude each other")
        if self.bearer_token_file and self.insecure_skip_verify:
            raise ValueError("bearerTokenFile and insecureSkipVerify exclude each other: anyone could take the token")
        return self


class PrometheusSettings(Wire):
    """One Prometheus that pools may refer to by name."""

    url: Annotated[str, Field(min_length=1, max_length=512), AfterValidator(url)]
    """http or https, with a host, without user, password, query or fragment."""
    tls: TLSSettings = Field(default_factory=TLSSettings)
    """Of an https url alone."""
    namespace_matcher: Annotated[str, Field(max_length=512), AfterValidator(matcher)] = DEFAULT_MATCHER
    """The label matchers that narrow each query to one pool's deployment."""

    @model_validator(mode="after")
    def _tls_needs_https(self) -> PrometheusSettings:
        if self.tls != TLSSettings() and not self.url.startswith("https://"):
            raise ValueError("tls needs an https url")
        return self


class Settings(Wire):
    """All that a pool's author may not decide."""

    probe: ProbeSettings = Field(default_factory=ProbeSettings)
    """What the measuring pods may be and do."""
    node_health: NodeHealthSettings = Field(default_factory=NodeHealthSettings)
    """Which words of the cluster's health tools count against a node."""
    prometheus: Annotated[dict[str, PrometheusSettings], Field(max_length=16), AfterValidator(names)] = Field(
        default_factory=dict
    )
    """The Prometheus servers, by the name that monitor.prometheusRef gives."""
    workers: Annotated[int, Field(ge=1, le=32)] = 4
    """How many pools are looked at at a time."""
    log_level: LogLevel = LogLevel.INFO
    """The least severity that is logged."""

    def endpoint(self, name: str) -> PrometheusEndpoint | None:
        """What `monitor.prometheusRef` of that name refers to; None when there is none."""
        found = self.prometheus.get(name)
        if found is None:
            return None
        return PrometheusEndpoint(
            name=name,
            url=found.url,
            matchers=read_matchers(found.namespace_matcher),
            ca_file=found.tls.ca_file or "",
            insecure_skip_verify=found.tls.insecure_skip_verify,
            bearer_token_file=found.tls.bearer_token_file or "",
        )


def read_settings(text: str) -> Settings | tuple[Complaint, ...]:
    """The settings that a text holds: plain YAML, or a ConfigMap with them under the key settings.yaml; else all that
    is wrong with it. Total over any text, whose values are never repeated in a complaint."""
    try:
        document = _document(text)
        if isinstance(document, Mapping) and "kind" in document:
            document = _document(_inside_config_map(document))
    except _NoSettingsError as error:
        return (error.complaint,)
    if not isinstance(document, Mapping):
        return (Complaint("", "must be a mapping of settings; {} takes all defaults"),)
    schema = settings_schema()
    complaints = (*_nulls(document, ""), *unknown_fields(document, schema, "", schema), *_faults(document))
    return complaints or Settings.model_validate(prepared(document, schema))


class _NoSettingsError(Exception):
    """The text holds no settings at all."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.complaint = Complaint(path, message)


def _document(text: str) -> object:
    try:
        size = len(text.encode())
        if size > LARGEST_TEXT_BYTES:
            raise _NoSettingsError("", f"is {size} bytes long; the limit is {LARGEST_TEXT_BYTES} bytes")
        roots = compose(text)
        if len(roots) > 1:
            raise _NoSettingsError("", f"holds {len(roots)} YAML documents; the settings are one")
        return construct(roots[0]) if roots and roots[0] else None
    except YamlRefusedError as error:
        raise _NoSettingsError("", str(error)) from None
    except UnicodeEncodeError:
        raise _NoSettingsError("", "is not text that UTF-8 can write") from None


def _inside_config_map(document: Mapping[object, object]) -> str:
    if document["kind"] != "ConfigMap" or document.get("apiVersion") != "v1":
        raise _NoSettingsError("kind", "must be a ConfigMap of apiVersion v1, or be left out")
    data = document.get("data")
    inner = data.get(KEY) if isinstance(data, Mapping) else None
    if not isinstance(inner, str):
        raise _NoSettingsError("data", f"must hold the settings as a text, under {KEY}")
    return inner


@cache
def settings_schema() -> JSON:
    """The structural schema of the settings: fields, bounds, defaults and descriptions."""
    return schema_of(Settings)


def _nulls(document: Mapping[object, object], path: str) -> Iterator[Complaint]:
    """A value that was left empty, often by a wrong indent, would else be the default and so might allow more."""
    for name, item in document.items():
        if item is None:
            yield Complaint(child(path, name), "has no value; give one, or leave the field out for its default")
        elif isinstance(item, Mapping):
            yield from _nulls(item, child(path, name))


def _faults(document: Mapping[object, object]) -> tuple[Complaint, ...]:
    schema = settings_schema()
    stored = prepared(document, schema)
    shape = tuple(misshapen(stored, schema, ""))
    broken = tuple(broken_rules(stored, schema, "", bad={complaint.path for complaint in shape}))
    return (*shape, *broken) or tuple(_unread(stored))


def _unread(stored: object) -> Iterator[Complaint]:
    try:
        Settings.model_validate(stored)
    except ValidationError as error:
        for fault in error.errors(include_input=False, include_url=False):
            yield Complaint(place("", fault["loc"]), fault["msg"].removeprefix("Value error, "))
