"""What an operator's settings may say, and how a fault in them is told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvgate.api.complaints import Complaint
from kvgate.api.selectors import LabelSelector
from kvgate.app.settings import LARGEST_TEXT_BYTES, Settings, read_settings, settings_schema
from kvgate.app.settings_values import ByteSize, LogLevel, ProbeCapability
from kvgate.core.vetoes import KNOWN, Sign, Signal
from kvgate.edge.promql import PrometheusEndpoint, read_matchers

ROOT = Path(__file__).resolve().parents[2]
SECRET = "hunter2"
FULL = """
probe:
  image: registry.example.com/kvgate-probe@sha256:0123456789abcdef
  allowedNodeSelector: {matchLabels: {pool: gpu}}
  allowHostNetwork: true
  allowedCapabilities: [IPC_LOCK]
  maxConcurrentSweeps: 2
  maxBytesPerSweep: 1.5TiB
  minInterval: 30m
nodeHealth:
  ignore: [autopilot]
  vetoes: [{tool: rackwatch, sign: Label, key: example.com/rack, values: [hot], remedy: call the data hall}]
prometheus:
  default: {url: "http://prometheus.monitoring:9090/prom/"}
  other:
    url: https://other:9091
    tls: {caFile: /etc/ca.crt, bearerTokenFile: /etc/token}
    namespaceMatcher: cluster="eu",ns="{namespace}",pod=~"{deployment}-.*"
workers: 8
logLevel: Debug
"""


def settings(text: str) -> Settings:
    found = read_settings(text)
    assert isinstance(found, Settings), found
    return found


def complaints(text: str) -> tuple[Complaint, ...]:
    found = read_settings(text)
    assert isinstance(found, tuple), found
    return found


def prometheus(fields: str) -> str:
    return f"prometheus: {{default: {{{fields}}}}}"


def config_map(inner: str) -> str:
    indented = "\n".join(f"    {line}" for line in inner.splitlines())
    return (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: kvgate-settings}}\ndata:\n  settings.yaml: |\n{indented}\n"
    )


@pytest.mark.parametrize(
    "text", [pytest.param(FULL, id="plain YAML"), pytest.param(config_map(FULL), id="a ConfigMap that holds it")]
)
def test_every_field_is_read(text: str) -> None:
    found = settings(text)
    probe = found.probe
    assert probe.image == "registry.example.com/kvgate-probe@sha256:0123456789abcdef"
    assert probe.allowed_node_selector == LabelSelector(match_labels={"pool": "gpu"})
    assert probe.allow_host_network
    assert probe.allowed_capabilities == (ProbeCapability.IPC_LOCK,)
    assert probe.max_concurrent_sweeps == 2
    assert probe.max_bytes_per_sweep is not None
    assert probe.max_bytes_per_sweep.bytes == 3 * 2**39
    assert probe.min_interval.seconds == 1800
    assert (found.workers, found.log_level) == (8, LogLevel.DEBUG)
    assert (
        Signal("rackwatch", Sign.LABEL, "example.com/rack", ("hot",), "call the data hall") in found.node_health.signals
    )
    assert {signal.tool for signal in found.node_health.signals}.isdisjoint({"autopilot"})


def test_an_endpoint_is_found_by_the_name_that_pools_use() -> None:
    matchers = read_matchers('cluster="eu",ns="{namespace}",pod=~"{deployment}-.*"')
    found = settings(FULL)
    assert found.endpoint("other") == PrometheusEndpoint(
        "other", "https://other:9091", matchers, ca_file="/etc/ca.crt", bearer_token_file="/etc/token"
    )
    plain = found.endpoint("default")
    assert plain is not None
    assert plain.url == "http://prometheus.monitoring:9090/prom"
    assert found.endpoint("missing") is None


def test_defaults_allow_the_least() -> None:
    found = settings("{}")
    probe = found.probe
    assert (probe.allow_host_network, probe.allowed_capabilities, probe.max_concurrent_sweeps) == (False, (), 1)
    assert probe.min_interval == "1h"
    assert (probe.image, probe.allowed_node_selector, probe.max_bytes_per_sweep) == (None, None, None)
    assert (found.prometheus, found.workers, found.log_level) == ({}, 4, LogLevel.INFO)


def test_by_default_every_known_health_tool_is_listened_to() -> None:
    assert settings("{}").node_health.signals == KNOWN


def test_a_condition_speaks_against_a_node_while_it_is_true() -> None:
    found = settings("nodeHealth: {vetoes: [{tool: x, sign: Condition, key: Sick}]}").node_health.signals[-1]
    assert (found.values, found.remedy) == (("True",), "ask who runs the tool")


def test_the_settings_cannot_be_changed_once_read() -> None:
    with pytest.raises(ValueError, match="frozen"):
        settings("{}").workers = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        pytest.param(
            "probe: {maxConcurentSweeps: 2}", "probe.maxConcurentSweeps", "did you mean probe.maxConcurrentSweeps?",
            id="a field almost right, with what was meant",
        ),
        pytest.param("maxConcurrentSweeps: 2", "maxConcurrentSweeps", "unknown field", id="a field in the wrong place"),
        pytest.param(
            prometheus("url: http://p, tlss: {}"), "prometheus.default.tlss", "did you mean prometheus.default.tls?",
            id="a field almost right below a name",
        ),
        pytest.param(
            prometheus("url: https://p, tls: {cafile: /ca}"), "prometheus.default.tls.cafile",
            "did you mean prometheus.default.tls.caFile?", id="a field in wrong case, two levels below a name",
        ),
        pytest.param("nodeHealth: {ignore: [autopilott]}", "nodeHealth", "that is not known", id="an unknown tool"),
        pytest.param(
            "nodeHealth: {vetoes: [{tool: x, sign: Annotation, key: k}]}", "nodeHealth.vetoes[0].sign",
            "supported values", id="a sign where no veto stands",
        ),
        pytest.param("workers: 0", "workers", "greater than or equal to 1", id="no workers"),
        pytest.param("workers: 33", "workers", "less than or equal to 32", id="too many workers"),
        pytest.param("workers: many", "workers", "must be of type integer", id="workers as a word"),
        pytest.param("workers: .nan", "workers", "must be of type integer", id="workers that are NaN"),
        pytest.param("workers:", "workers", "has no value", id="a field left empty"),
        pytest.param(
            "probe:\n  allowedNodeSelector:\n", "probe.allowedNodeSelector", "has no value",
            id="an empty selector, which would allow every node",
        ),
        pytest.param(
            "probe: {allowedNodeSelector: {}}", "probe.allowedNodeSelector", "at least one label",
            id="a selector without a label",
        ),
        pytest.param("logLevel: Loud", "logLevel", "supported values", id="an unknown log level"),
        pytest.param("probe: []", "probe", "must be of type object", id="a list where an object goes"),
        pytest.param(
            'probe: {allowHostNetwork: "yes"}', "probe.allowHostNetwork", "must be of type boolean",
            id="a truth in quotes",
        ),
        pytest.param(
            "probe: {allowedCapabilities: [ALL]}", "probe.allowedCapabilities[0]", "supported values",
            id="all capabilities",
        ),
        pytest.param(
            "probe: {allowedCapabilities: [SYS_ADMIN]}", "probe.allowedCapabilities[0]", "supported values",
            id="a capability that no measurement needs",
        ),
        pytest.param("probe: {maxConcurrentSweeps: 17}", "probe.maxConcurrentSweeps", "16", id="17 sweeps at a time"),
        pytest.param("probe: {maxConcurrentSweeps: 0}", "probe.maxConcurrentSweeps", "1", id="no sweeps at all"),
        pytest.param("probe: {maxBytesPerSweep: '500'}", "probe.maxBytesPerSweep", "with its unit", id="no unit"),
        pytest.param("probe: {maxBytesPerSweep: 0TB}", "probe.maxBytesPerSweep", "above zero", id="0 bytes"),
        pytest.param("probe: {maxBytesPerSweep: -1TB}", "probe.maxBytesPerSweep", "above zero", id="negative bytes"),
        pytest.param("probe: {minInterval: 59s}", "probe.minInterval", "from 1m to 720h", id="too short an interval"),
        pytest.param("probe: {minInterval: 721h}", "probe.minInterval", "from 1m to 720h", id="too long an interval"),
        pytest.param("probe: {minInterval: 60}", "probe.minInterval", "must be of type string", id="60 of nothing"),
        pytest.param("probe: {image: ' x'}", "probe.image", "should match", id="an image that starts with a space"),
        pytest.param(prometheus(""), "prometheus.default.url", "Required value", id="a Prometheus without a url"),
        pytest.param(
            prometheus("url: ftp://p"), "prometheus.default.url", "http or https", id="a url of another scheme"
        ),
        pytest.param(prometheus("url: 'http://'"), "prometheus.default.url", "with a host", id="a url without a host"),
        pytest.param(prometheus("url: prometheus:9090"), "prometheus.default.url", "http or https", id="no scheme"),
        pytest.param(prometheus("url: 'http://p:99999'"), "prometheus.default.url", "port", id="a port out of range"),
        pytest.param(prometheus("url: 'http://[::1'"), "prometheus.default.url", "URL", id="half an IPv6 address"),
        pytest.param(prometheus('url: "http://p/a\\nb"'), "prometheus.default.url", "URL", id="a line break in a url"),
        pytest.param(
            prometheus("url: 'http://p/?a=b'"), "prometheus.default.url", "no query", id="a url with a query"
        ),
        pytest.param(
            prometheus(f"url: 'http://{'p' * 600}'"), "prometheus.default.url", "512", id="a url beyond the limit"
        ),
        pytest.param(
            prometheus(f"url: 'https://user:{SECRET}@p'"), "prometheus.default.url", "tls.bearerTokenFile",
            id="a password in a url, with where it belongs",
        ),
        pytest.param(
            prometheus("url: 'http://p', tls: {bearerTokenFile: /token}"), "prometheus.default", "https",
            id="a token that would travel in the clear",
        ),
        pytest.param(
            prometheus("url: 'https://p', tls: {caFile: /ca, insecureSkipVerify: true}"), "prometheus.default.tls",
            "exclude each other", id="a CA that would not be used",
        ),
        pytest.param(
            prometheus("url: 'https://p', tls: {bearerTokenFile: /t, insecureSkipVerify: true}"),
            "prometheus.default.tls", "exclude each other", id="a token for whoever answers",
        ),
        pytest.param(
            prometheus("url: 'https://p', tls: {caFile: ca.crt}"), "prometheus.default.tls.caFile", "should match",
            id="a path that is not absolute",
        ),
        pytest.param(
            prometheus("url: 'http://p', namespaceMatcher: 'namespace=serving'"),
            "prometheus.default.namespaceMatcher", "label matchers", id="a matcher without quotes",
        ),
        pytest.param(
            prometheus("url: 'http://p', namespaceMatcher: 'd=\"{deployment}\"'"),
            "prometheus.default.namespaceMatcher", '"{namespace}"', id="a matcher that would read all namespaces",
        ),
        pytest.param(
            "prometheus: {Bad_Name: {url: 'http://p'}}", "prometheus", "lower case", id="a name that no pool can say"
        ),
        pytest.param(
            "prometheus: {" + ", ".join(f"p{n}: {{url: 'http://p'}}" for n in range(17)) + "}", "prometheus", "16",
            id="more servers than the limit",
        ),
        pytest.param("", "", "{} takes all defaults", id="an empty text, which may be half a file"),
        pytest.param("[]", "", "must be a mapping", id="a list"),
        pytest.param("just words", "", "must be a mapping", id="a word"),
        pytest.param("a: [", "", "is no YAML (line", id="no YAML, with the line"),
        pytest.param("workers: 1\n---\nworkers: 2", "", "2 YAML documents", id="two documents"),
        pytest.param("workers: 1\nworkers: 2", "", "a key twice", id="a key twice"),
        pytest.param("a: " + "[" * 70, "", "nested deeper", id="nested beyond reason"),
        pytest.param("workers: !!python/object:os.system 1", "", "tag", id="a tag that would run code"),
        pytest.param(f"# {'x' * LARGEST_TEXT_BYTES}", "", str(LARGEST_TEXT_BYTES), id="a text beyond the limit"),
        pytest.param("workers: \ud800", "", "UTF-8", id="half a character"),
        pytest.param("kind: Secret\napiVersion: v1", "kind", "ConfigMap", id="another kind of object"),
        pytest.param("kind: ConfigMap\napiVersion: v1", "data", "settings.yaml", id="a ConfigMap without data"),
        pytest.param(
            "kind: ConfigMap\napiVersion: v1\ndata: {other: ''}", "data", "settings.yaml", id="a ConfigMap without it"
        ),
        pytest.param(config_map("workers: 99"), "workers", "32", id="a fault inside a ConfigMap"),
        pytest.param(
            config_map(config_map("{}")), "kind", "unknown field", id="a ConfigMap inside a ConfigMap"
        ),
    ],
)  # fmt: skip
def test_a_fault_is_told_with_its_place(text: str, path: str, message: str) -> None:
    found = complaints(text)
    assert any(complaint.path == path and message in complaint.message for complaint in found), found
    assert SECRET not in str(found)


def test_all_faults_are_told_at_once() -> None:
    found = complaints("workers: 0\nlogLevel: Loud\nprobe: {imagee: x, minInterval: soon}")
    assert {complaint.path for complaint in found} == {"workers", "logLevel", "probe.imagee", "probe.minInterval"}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param("1MB", 10**6, id="decimal megabytes"),
        pytest.param("1MiB", 2**20, id="binary mebibytes"),
        pytest.param("2.5TB", 2_500_000_000_000, id="a fraction"),
        pytest.param("1PiB", 2**50, id="the largest unit"),
    ],
)
def test_bytes_are_counted_by_their_unit(text: str, count: int) -> None:
    assert ByteSize.parse(text).bytes == count


def _values() -> st.SearchStrategy[object]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    names = st.sampled_from(["probe", "prometheus", "default", "url", "tls", "workers", "minInterval", "kind", "data"])
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4))


@given(_values())
def test_any_document_gives_settings_or_complaints(value: object) -> None:
    found = read_settings(repr(value))
    assert isinstance(found, Settings) or (found and all(isinstance(one, Complaint) for one in found))


@given(st.text())
def test_any_text_gives_settings_or_complaints(text: str) -> None:
    found = read_settings(text)
    assert isinstance(found, Settings) or (found and all(isinstance(one, Complaint) for one in found))


def test_the_sample_is_a_config_map_that_is_read() -> None:
    found = settings((ROOT / "manifests/samples/settings.yaml").read_text("utf-8"))
    assert found.endpoint("default") is not None
    assert found.probe.image


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, declared in schema.get("properties", {}).items():
        where = f"{path}.{name}".removeprefix(".")
        inner = declared.get("additionalProperties", declared) if name == "prometheus" else declared
        if name != "allowedNodeSelector" and inner.get("properties"):
            yield from _fields(inner, f"{where}.<name>" if name == "prometheus" else where)
        else:
            yield where, declared


FIELDS = dict(_fields(settings_schema(), ""))


@pytest.mark.parametrize("field", FIELDS)
def test_the_docs_name_each_field_with_its_default(field: str) -> None:
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|", (ROOT / "docs/settings.md").read_text("utf-8"), re.MULTILINE)
    default = FIELDS[field].get("default")
    shown = dict(rows)[field].strip().strip("`")
    if default is not None:
        assert shown == (str(default).lower() if isinstance(default, bool) else str(default))
    else:
        assert shown in {"none", "required", "[]"}


def test_the_docs_name_no_field_that_does_not_exist() -> None:
    named = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs/settings.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(FIELDS)
