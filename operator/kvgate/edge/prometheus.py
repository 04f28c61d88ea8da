"""The door to Prometheus: bounded questions, each answered or told why not."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests.exceptions import JSONDecodeError, RequestException, SSLError, Timeout, TooManyRedirects
from urllib3.exceptions import HTTPError
from urllib3.exceptions import TimeoutError as ReadTimeout

from kvgate.edge.bounded_http import BoundedAdapter, TooLargeError, plain_session, within
from kvgate.edge.promql import NoData, NoDataReason, PrometheusEndpoint, Rate, read_rate, request_rate_query

LONGEST_SECONDS = 5.0
LARGEST_ANSWER_BYTES = 64 * 1024
LARGEST_TOKEN_BYTES = 16 * 1024


class _SettingError(Exception):
    """What the settings name cannot be used; the text is fit for a message."""


def observed_request_rate(
    endpoint: PrometheusEndpoint,
    namespace: str,
    deployment: str,
    at: datetime | None = None,
    timeout_seconds: float = LONGEST_SECONDS,
    window_seconds: int = 300,
) -> Rate | NoData:
    """Requests per second that the deployment's frontends finished, whatever their outcome: the mean over the window
    that ends at `at` (a time with its zone; Prometheus's now if None).

    Returns within `timeout_seconds`, at most 5, whatever the server does; never raises for what the server, the network
    or the settings' files do. What a frontend turns away because no model is ready, Dynamo does not count.
    """
    seconds = min(timeout_seconds, LONGEST_SECONDS)
    query = request_rate_query(endpoint.matchers, namespace, deployment, window_seconds)
    params = {"timeout": f"{seconds:g}"} | ({"time": _timestamp(at)} if at else {})
    found = _ask(endpoint, query, params, seconds)
    read = found if isinstance(found, NoData) else read_rate(found, window_seconds)
    return _named(read, endpoint) if isinstance(read, NoData) else read


def _timestamp(at: datetime) -> str:
    if at.tzinfo is None:
        raise ValueError("a time without a zone")
    return f"{at.timestamp():.3f}"


def _named(none: NoData, endpoint: PrometheusEndpoint) -> NoData:
    return NoData(none.reason, f'Prometheus "{endpoint.name}" of the operator\'s settings: {none.message}')


def ask(
    endpoint: PrometheusEndpoint, query: str, *, largest_bytes: int | None = None, at_seconds: float | None = None
) -> object | NoData:
    """The `data.result` of an instant query, at that time in seconds since 1970; Prometheus's now if None.

    Returns within LONGEST_SECONDS; never raises for what the server, the network or the settings' files do.
    """
    moment = {"time": f"{at_seconds:.3f}"} if at_seconds is not None else {}
    params = {"timeout": f"{LONGEST_SECONDS:g}"} | moment
    return _ask(endpoint, query, params, LONGEST_SECONDS, largest_bytes or LARGEST_ANSWER_BYTES)


def _ask(
    endpoint: PrometheusEndpoint,
    query: str,
    params: dict[str, str],
    seconds: float,
    largest_bytes: int = LARGEST_ANSWER_BYTES,
) -> object | NoData:
    adapter = BoundedAdapter(seconds, largest_bytes)

    def call() -> object:
        with _connected(endpoint, seconds, adapter) as client:
            return client.custom_query(query, params=params, timeout=seconds)

    try:
        return within(seconds, call, adapter.cut)
    except PrometheusApiClientException:
        return _refused(adapter.status)
    except _SettingError as error:
        return NoData(NoDataReason.MISCONFIGURED, str(error))
    except _FAILURES as error:
        return _failed(error, seconds, largest_bytes)


def _connected(endpoint: PrometheusEndpoint, seconds: float, adapter: BoundedAdapter) -> PrometheusConnect:
    """The client on our session. It mounts an adapter of its own at the url; ours takes its place."""
    session = plain_session()
    session.verify = _existing(endpoint.ca_file) if endpoint.ca_file else not endpoint.insecure_skip_verify
    headers = {"Accept-Encoding": "identity"} | _authorization(endpoint.bearer_token_file)
    client = PrometheusConnect(endpoint.url, headers=headers, session=session, timeout=seconds)
    session.mount(endpoint.url, adapter)
    return client


def _existing(ca_file: str) -> str:
    if not Path(ca_file).is_file():
        raise _SettingError("tls.caFile is no file; the cluster's administrator must mount it or correct the path")
    return ca_file


def _authorization(token_file: str) -> dict[str, str]:
    """Read at each query, since tokens are rotated in place."""
    if not token_file:
        return {}
    try:
        with Path(token_file).open("rb") as file:
            token = file.read(LARGEST_TOKEN_BYTES + 1).strip().decode("ascii")
    except (OSError, UnicodeDecodeError):
        what = "tls.bearerTokenFile cannot be read; the cluster's administrator must mount it or correct the path"
        raise _SettingError(what) from None
    if not token.isprintable() or " " in token or not 0 < len(token) <= LARGEST_TOKEN_BYTES:
        what = f"tls.bearerTokenFile does not hold one token of at most {LARGEST_TOKEN_BYTES} bytes"
        raise _SettingError(f"{what}; the cluster's administrator must correct it")
    return {"Authorization": f"Bearer {token}"}


_FAULTS: tuple[tuple[tuple[type[Exception], ...], NoDataReason, str], ...] = (
    (
        (TimeoutError, Timeout, ReadTimeout),
        NoDataReason.TIMED_OUT,
        "no answer within {seconds:g} s; the cluster's administrator must see whether it is overloaded or blocked",
    ),
    (
        (TooManyRedirects,),
        NoDataReason.MISCONFIGURED,
        "it redirects, which is not followed; the cluster's administrator must set the url that it redirects to",
    ),
    (
        (SSLError,),
        NoDataReason.UNREACHABLE,
        "no trusted TLS connection; the cluster's administrator must check its certificate and tls.caFile",
    ),
    (
        (TooLargeError,),
        NoDataReason.TOO_LARGE,
        "its answer is above the limit of {limit} bytes; the cluster's administrator must check the url",
    ),
    (
        (JSONDecodeError, KeyError, IndexError, TypeError, RecursionError),
        NoDataReason.UNREADABLE,
        "its answer is not that of Prometheus's query API; the cluster's administrator must check the url",
    ),
    (
        (RequestException, HTTPError, OSError),
        NoDataReason.UNREACHABLE,
        "no connection, or it broke off; the cluster's administrator must check that it runs, and the url",
    ),
    (
        (ValueError,),
        NoDataReason.UNREADABLE,
        "its answer is not readable JSON; the cluster's administrator must check the url",
    ),
)
_FAILURES = tuple(kind for kinds, _, _ in _FAULTS for kind in kinds)


def _failed(error: Exception, seconds: float, largest_bytes: int) -> NoData:
    reason, message = next((reason, message) for kinds, reason, message in _FAULTS if isinstance(error, kinds))
    return NoData(reason, message.format(seconds=seconds, limit=largest_bytes))


def _refused(status: int) -> NoData:
    """By the status codes of Prometheus's HTTP API: 400 and 422 for the query, 503 for a query that timed out."""
    if status in {401, 403}:
        reason, what, must = NoDataReason.REFUSED, "it lets us ask nothing", "check tls.bearerTokenFile and its rights"
    elif status in {400, 422}:
        reason, what, must = NoDataReason.REFUSED, "it refused the query", "check namespaceMatcher"
    elif status == 429 or status >= 500:
        reason, what, must = NoDataReason.SERVER_ERROR, "it cannot answer now", "see to it if this lasts"
    else:
        reason, what, must = NoDataReason.REFUSED, "no query API is at this url", "check the url and its path"
    return NoData(reason, f"HTTP {status}, {what}; the cluster's administrator must {must}")
