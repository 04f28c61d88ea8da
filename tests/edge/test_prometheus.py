"""What is told of a Prometheus that answers, fails, hangs, lies or babbles, and what it is sent."""

from __future__ import annotations

import gzip
import socket
import ssl
import subprocess
import threading
import time
import warnings
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests
from urllib3.exceptions import InsecureRequestWarning

from kvgate.edge.prometheus import LARGEST_ANSWER_BYTES, LARGEST_TOKEN_BYTES, ask, observed_request_rate
from kvgate.edge.promql import DEFAULT_MATCHER, NoData, NoDataReason, PrometheusEndpoint, Rate, read_matchers
from tests.edge.prometheus_double import Answer, Handler, double, envelope, says, value

SECRET = "hunter2"
NOW = datetime(2026, 1, 1, 0, 0, 0, 500000, tzinfo=UTC)
SECONDS = 0.5
SLACK_SECONDS = 1.5
THREADS_END_WITHIN_SECONDS = 10.0
"""A busy machine may leave a thread that is done without its turn."""


def endpoint(url: str) -> PrometheusEndpoint:
    return PrometheusEndpoint("default", url, read_matchers(DEFAULT_MATCHER))


def rate_at(url: str, timeout_seconds: float = 5) -> Rate | NoData:
    return observed_request_rate(endpoint(url), "serving", "qwen3", timeout_seconds=timeout_seconds)


def test_a_number_is_a_rate_and_the_question_is_asked_once() -> None:
    with double(says(value("0.25"))) as server:
        found = observed_request_rate(endpoint(server.url), "serving", "qwen3", at=NOW)
    assert found == Rate(0.25, 300)
    assert [(one.path, one.params) for one in server.asked] == [
        (
            "/api/v1/query",
            {
                "query": [
                    'sum(rate(dynamo_frontend_requests_total{namespace="serving",dynamo_namespace="serving-qwen3"}[300s]))'
                ],
                "time": ["1767225600.500"],
                "timeout": ["5"],
            },
        )
    ]


def test_without_a_time_prometheus_takes_its_own() -> None:
    with double(says(value("0.25"))) as server:
        rate_at(server.url)
    assert "time" not in server.asked[0].params


def test_a_time_without_a_zone_is_a_fault_of_ours() -> None:
    with pytest.raises(ValueError, match="zone"):
        observed_request_rate(endpoint("http://127.0.0.1:9"), "serving", "qwen3", at=NOW.replace(tzinfo=None))


def test_a_path_in_the_url_is_kept() -> None:
    with double(says(value("0.25"))) as server:
        rate_at(f"{server.url}/prom")
    assert server.asked[0].path == "/prom/api/v1/query"


def test_a_name_cannot_widen_the_query() -> None:
    with double(says(value("0.25"))) as server:
        observed_request_rate(endpoint(server.url), 'a"} or vector(1) #', "qwen3")
    asked = server.asked[0].params["query"][0]
    assert asked.startswith(r'sum(rate(dynamo_frontend_requests_total{namespace="a\"} or vector(1) #",dynamo_')


def chunked(handler: Handler, _: threading.Event) -> None:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    body = value("0.25")
    for part in (body[:10], body[10:], b""):
        handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")


def test_an_answer_in_chunks_is_read() -> None:
    with double(chunked) as server:
        assert rate_at(server.url) == Rate(0.25, 300)


def broken_off(handler: Handler, _: threading.Event) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"status"')
    handler.close_connection = True


def hung_up(handler: Handler, _: threading.Event) -> None:
    handler.close_connection = True


def endless(handler: Handler, ended: threading.Event) -> None:
    handler.send_response(200)
    handler.end_headers()
    while not ended.is_set():
        handler.wfile.write(b"[" * 65536)


def babbling(handler: Handler, _: threading.Event) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    handler.close_connection = True


ERROR = b'{"status":"error","errorType":"bad_data","error":"' + SECRET.encode() + b'"}'


@pytest.mark.parametrize(
    ("answer", "reason", "says_what"),
    [
        pytest.param(says(envelope([])), NoDataReason.NO_SERIES, "is not zero", id="no series"),
        pytest.param(says(value("NaN")), NoDataReason.UNREADABLE, "finite", id="NaN"),
        pytest.param(says(ERROR, 400), NoDataReason.REFUSED, "namespaceMatcher", id="a query that it refuses"),
        pytest.param(says(ERROR, 401), NoDataReason.REFUSED, "bearerTokenFile", id="no token"),
        pytest.param(says(ERROR, 403), NoDataReason.REFUSED, "rights", id="a token without rights"),
        pytest.param(says(b"", 404), NoDataReason.REFUSED, "HTTP 404, no query API", id="another server"),
        pytest.param(says(ERROR, 422), NoDataReason.REFUSED, "HTTP 422", id="a query that it cannot run"),
        pytest.param(says(ERROR, 429), NoDataReason.SERVER_ERROR, "HTTP 429", id="too many queries"),
        pytest.param(says(ERROR, 500), NoDataReason.SERVER_ERROR, "HTTP 500", id="a fault of its own"),
        pytest.param(says(ERROR, 503), NoDataReason.SERVER_ERROR, "if this lasts", id="a query timed out in it"),
        pytest.param(
            says(b"x" * 200_000, 502), NoDataReason.SERVER_ERROR, "HTTP 502", id="a long page of a gateway"
        ),
        pytest.param(says(b"", 204), NoDataReason.REFUSED, "HTTP 204", id="no content"),
        pytest.param(
            says(b"", 302, Location="/api/v1/query"), NoDataReason.MISCONFIGURED, "redirects", id="a redirect"
        ),
        pytest.param(says(b"<html>login</html>"), NoDataReason.UNREADABLE, "url", id="a page"),
        pytest.param(says(b""), NoDataReason.UNREADABLE, "url", id="nothing"),
        pytest.param(says(b"\xff\xfe\x00"), NoDataReason.UNREADABLE, "url", id="bytes that are no text"),
        pytest.param(says(b"[]"), NoDataReason.UNREADABLE, "query API", id="JSON without an envelope"),
        pytest.param(says(b"null"), NoDataReason.UNREADABLE, "query API", id="null"),
        pytest.param(says(ERROR), NoDataReason.UNREADABLE, "query API", id="an error with status 200"),
        pytest.param(says(b"[" * 50_000), NoDataReason.UNREADABLE, "url", id="JSON nested beyond reason"),
        pytest.param(says(b"1" * 50_000), NoDataReason.UNREADABLE, "url", id="a number of 50,000 digits"),
        pytest.param(
            says(gzip.compress(value("1")), Content_Encoding="gzip"), NoDataReason.UNREADABLE, "url",
            id="compressed, though it was asked not to",
        ),
        pytest.param(
            says(b" " * LARGEST_ANSWER_BYTES + value("1")), NoDataReason.TOO_LARGE, "65536 bytes",
            id="an answer just above the limit",
        ),
        pytest.param(endless, NoDataReason.TOO_LARGE, "65536 bytes", id="an answer without end"),
        pytest.param(broken_off, NoDataReason.UNREACHABLE, "broke off", id="half an answer"),
        pytest.param(hung_up, NoDataReason.UNREACHABLE, "broke off", id="a closed connection"),
        pytest.param(babbling, NoDataReason.UNREACHABLE, "url", id="another protocol"),
    ],
)  # fmt: skip
def test_a_failure_is_no_data_and_is_not_tried_again(answer: Answer, reason: NoDataReason, says_what: str) -> None:
    with double(answer) as server:
        found = rate_at(server.url)
    assert isinstance(found, NoData)
    assert (found.reason, len(server.asked)) == (reason, 1), found
    assert says_what in found.message
    assert found.message.startswith('Prometheus "default" of the operator\'s settings: ')
    assert "administrator must" in found.message
    assert SECRET not in found.message
    assert server.url not in found.message


def test_an_answer_above_a_limit_of_the_question_s_own_is_told_that_limit() -> None:
    with double(says(b" " * 1000 + value("1"))) as server:
        found = ask(endpoint(server.url), "up", largest_bytes=1000)
    assert isinstance(found, NoData)
    assert (found.reason, "limit of 1000 bytes" in found.message) == (NoDataReason.TOO_LARGE, True), found


def silent(_: Handler, ended: threading.Event) -> None:
    ended.wait()


def dripping_headers(handler: Handler, ended: threading.Event) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    while not ended.wait(0.05):
        handler.wfile.write(b"x")


def dripping_body(handler: Handler, ended: threading.Event) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "60000")
    handler.end_headers()
    while not ended.wait(0.05):
        handler.wfile.write(b" ")


def dripping_until_it_closes(handler: Handler, ended: threading.Event) -> None:
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    while not ended.wait(0.05):
        handler.wfile.write(b" ")


def late(handler: Handler, ended: threading.Event) -> None:
    ended.wait(2 * SECONDS)
    handler.reply(200, value("1"))


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(silent, id="says nothing"),
        pytest.param(dripping_headers, id="sends a byte of its headers now and then"),
        pytest.param(dripping_body, id="sends a byte of its body now and then"),
        pytest.param(dripping_until_it_closes, id="sends a byte now and then, on a connection that it means to close"),
        pytest.param(late, id="answers too late"),
    ],
)
def test_the_time_is_bounded_and_nothing_goes_on_behind(answer: Answer) -> None:
    with double(answer) as server:
        started = time.monotonic()
        found = rate_at(server.url, timeout_seconds=SECONDS)
        took = time.monotonic() - started
        _no_thread_is_left()
    assert isinstance(found, NoData)
    assert (found.reason, len(server.asked)) == (NoDataReason.TIMED_OUT, 1)
    assert "no answer within 0.5 s" in found.message
    assert took < SECONDS + SLACK_SECONDS


def _no_thread_is_left() -> None:
    deadline = time.monotonic() + THREADS_END_WITHIN_SECONDS
    while any(thread.name == "bounded-http" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "the query's thread goes on"
        time.sleep(0.02)


def test_name_resolution_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def resolving(*_: object, **__: object) -> list[object]:
        ended.wait(10)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", resolving)
    started = time.monotonic()
    found = rate_at("http://prometheus.invalid", timeout_seconds=SECONDS)
    took = time.monotonic() - started
    ended.set()
    _no_thread_is_left()
    assert isinstance(found, NoData)
    assert found.reason == NoDataReason.TIMED_OUT
    assert took < SECONDS + SLACK_SECONDS


def test_no_caller_gets_more_than_five_seconds() -> None:
    with double(says(value("1"))) as server:
        rate_at(server.url, timeout_seconds=60)
    assert server.asked[0].params["timeout"] == ["5"]


def test_a_port_where_nobody_listens_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    started = time.monotonic()
    found = rate_at(f"http://127.0.0.1:{port}")
    assert isinstance(found, NoData)
    assert found.reason == NoDataReason.UNREACHABLE
    assert time.monotonic() - started < SLACK_SECONDS


@pytest.mark.parametrize("url", ["http://[", "http://a b/", f"http://{'a' * 300}/", "http://..", "gopher://x"])
def test_a_url_that_settings_would_refuse_is_no_data_here(url: str) -> None:
    found = rate_at(url)
    assert isinstance(found, NoData)
    assert found.reason in {NoDataReason.UNREACHABLE, NoDataReason.UNREADABLE}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key, in one file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    names = ["-subj", "/CN=prometheus", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run([*made, "-keyout", path, "-out", f"{path}.crt"], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_a_certificate_that_nobody_vouches_for_is_refused(tls: ssl.SSLContext) -> None:
    with double(says(value("1")), tls) as server:
        found = rate_at(server.url)
    assert isinstance(found, NoData)
    assert (found.reason, server.asked) == (NoDataReason.UNREACHABLE, [])
    assert "tls.caFile" in found.message


def test_a_certificate_of_the_given_authority_is_taken(tls: ssl.SSLContext, certificate: Path) -> None:
    with double(says(value("1")), tls) as server:
        found = observed_request_rate(replace(endpoint(server.url), ca_file=str(certificate)), "serving", "qwen3")
    assert found == Rate(1, 300)


def test_verification_is_off_only_where_the_settings_say_so(tls: ssl.SSLContext) -> None:
    before = list(warnings.filters)
    with double(says(value("1")), tls) as server:
        lax = replace(endpoint(server.url), insecure_skip_verify=True)
        with pytest.warns(InsecureRequestWarning):
            assert observed_request_rate(lax, "serving", "qwen3") == Rate(1, 300)
        assert isinstance(rate_at(server.url), NoData)
    assert requests.Session().verify is True
    assert list(warnings.filters) == before


def test_a_server_that_never_ends_its_handshake_is_bounded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        started = time.monotonic()
        found = rate_at(f"https://127.0.0.1:{listener.getsockname()[1]}", timeout_seconds=SECONDS)
        _no_thread_is_left()
    assert isinstance(found, NoData)
    assert found.reason == NoDataReason.TIMED_OUT
    assert time.monotonic() - started < SECONDS + 2 * SLACK_SECONDS


def test_the_token_is_read_anew_at_each_query(tmp_path: Path) -> None:
    token = tmp_path / "token"
    with double(says(value("1"))) as server:
        with_token = replace(endpoint(server.url), bearer_token_file=str(token))
        for text in ("first\n", "second"):
            token.write_text(text)
            observed_request_rate(with_token, "serving", "qwen3")
    assert [one.headers["Authorization"] for one in server.asked] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("content", "says_what"),
    [
        pytest.param(None, "cannot be read", id="a file that is not there"),
        pytest.param(b"", "one token", id="an empty file"),
        pytest.param(b"hunter2\nX-Header: y", "one token", id="two lines, of which one would be a header"),
        pytest.param(b"hunter2 hunter2", "one token", id="two words"),
        pytest.param(b"\xffhunter2", "cannot be read", id="bytes that are no ASCII"),
        pytest.param(b"h" * (LARGEST_TOKEN_BYTES + 1), "16384 bytes", id="a file beyond the limit"),
    ],
)
def test_a_token_that_cannot_be_sent_is_not_sent(content: bytes | None, says_what: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    with double(says(value("1"))) as server:
        with_token = replace(endpoint(server.url), bearer_token_file=str(token))
        found = observed_request_rate(with_token, "serving", "qwen3")
    assert isinstance(found, NoData)
    assert (found.reason, server.asked) == (NoDataReason.MISCONFIGURED, [])
    assert says_what in found.message
    assert SECRET not in found.message


def test_a_ca_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    missing = replace(endpoint("https://127.0.0.1:9"), ca_file=str(tmp_path / "ca.crt"))
    found = observed_request_rate(missing, "serving", "qwen3")
    assert isinstance(found, NoData)
    assert found.reason == NoDataReason.MISCONFIGURED
    assert "tls.caFile" in found.message


def test_nothing_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login user password {SECRET}\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    with double(says(value("1"))) as server:
        assert rate_at(server.url) == Rate(1, 300)
    assert server.asked[0].headers["Authorization"] is None
