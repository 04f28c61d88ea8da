"""Fetches the config.json that a worker pod serves: from that pod's own address alone, bounded, and by its checksum."""

from __future__ import annotations

import ipaddress
import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from blake3 import blake3

from kvgate.dynamo.document import shown
from kvgate.dynamo.published import Offer, Published
from kvgate.edge.bounded_http import Fault, NoBody, get, host_in_url

LONGEST_SECONDS = 5.0
PATIENCE_SECONDS = 1.0
"""How long a turn waits: workers that hang hold up no worker of ours, and with it no other pool."""
AT_ONCE = 16
LARGEST_CONFIG_BYTES = 512 * 1024
REST_SECONDS = 60.0
"""How long a worker that gave no configuration is left alone."""
ASK_AGAIN_SECONDS = 300.0
"""After none of them gave one: whoever was left alone long enough may be asked again."""
MOST_KEPT_BYTES, MOST_FAILURES = 16 * 1024 * 1024, 1024
_CHECKSUM = re.compile(r"blake3:[0-9a-f]{64}")
_PATH = re.compile(r"/v1/metadata(/[A-Za-z0-9_~:@+=.-]+)+")
_OWNER = "whoever runs the workers must look, or supply spec.model.kvCache.bytesPerToken"


@dataclass(frozen=True)
class WorkerConfig:
    """A config.json as a worker served it, and the pod that serves it."""

    text: str
    pod: str


@dataclass(frozen=True)
class NoConfig:
    """Why none was read, and who must act; and within what time asking again may give one."""

    message: str
    look_again_seconds: float = math.inf


class WorkerConfigs:
    """Configurations by checksum: each is fetched once for all pools, so that a pool at rest asks nobody.

    One call asks one worker at most; a later call asks the next, and one that failed is left alone for a while. What is
    told of failures is told of the first worker, so that asking one after the other changes no status.
    """

    def __init__(
        self,
        seconds: float = LONGEST_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._seconds = min(seconds, LONGEST_SECONDS)
        self._patience = patience_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._failed: OrderedDict[Offer, tuple[float, NoConfig]] = OrderedDict()
        self._asked: set[Offer] = set()

    def __call__(self, asked: Published) -> WorkerConfig | NoConfig:
        """The configuration that the workers agree on, or what is known by now: a fetch that takes longer than
        `patience_seconds` goes on, and a later call finds what came of it. Never raises for what a worker does."""
        offer = self._next(asked)
        if offer is not None:
            fetch = threading.Thread(target=self._fetch, args=(offer,), name="worker-config", daemon=True)
            fetch.start()
            fetch.join(self._patience)
        with self._lock:
            known = self._texts.get(asked.checksum)
            failed = next((self._failed[one][1] for one in asked.offers if one in self._failed), None)
            again = self._look_again_seconds(asked)
        first = asked.offers[0].pod
        if known is not None:
            return WorkerConfig(known, first)
        told = failed or NoConfig(f"the config.json of worker pod {shown(first)} has not arrived yet; it is awaited")
        return replace(told, look_again_seconds=again)

    def _look_again_seconds(self, asked: Published) -> float:
        """Soon while an answer is awaited, and sooner while somebody is left who never failed. Under the lock."""
        failed = [offer in self._failed for offer in asked.offers]
        if not any(failed) or not self._asked.isdisjoint(asked.offers):
            return self._seconds
        return ASK_AGAIN_SECONDS if all(failed) else REST_SECONDS

    def _next(self, asked: Published) -> Offer | None:
        """The worker to be asked now; None while one is, or what all say is known."""
        with self._lock:
            if asked.checksum in self._texts or not self._asked.isdisjoint(asked.offers) or len(self._asked) >= AT_ONCE:
                return None
            now = self._monotonic()
            offer = next((o for o in asked.offers if o not in self._failed or self._failed[o][0] <= now), None)
            if offer is not None:
                self._asked.add(offer)
            return offer

    def _fetch(self, offer: Offer) -> None:
        try:
            self._remember(offer, self._fetched(offer))
        finally:
            with self._lock:
                self._asked.discard(offer)

    def _remember(self, offer: Offer, found: WorkerConfig | NoConfig) -> None:
        with self._lock:
            if isinstance(found, WorkerConfig):
                self._texts[offer.served.checksum] = found.text
                while sum(map(len, self._texts.values())) > MOST_KEPT_BYTES:
                    self._texts.popitem(last=False)
            else:
                self._failed[offer] = (self._monotonic() + REST_SECONDS, found)
                while len(self._failed) > MOST_FAILURES:
                    self._failed.popitem(last=False)

    def _fetched(self, offer: Offer) -> WorkerConfig | NoConfig:
        where = f"the config.json of worker pod {shown(offer.pod)}"
        try:
            text = _checked(_get(_url(offer), self._seconds), offer.served.checksum)
        except _NothingError as problem:
            return NoConfig(f"{where}: {problem}; {_OWNER}")
        return WorkerConfig(text, offer.pod)


class _NothingError(Exception):
    """Why a worker gave nothing; the text is fit for a message."""


def _url(offer: Offer) -> str:
    """The URL to ask, put together from what was checked. Whoever may write a card must not choose whom kvgate asks:
    plain HTTP to the pod's own address alone, and there only what Dynamo serves of its model. Raises _NothingError."""
    if not _CHECKSUM.fullmatch(offer.served.checksum):
        raise _NothingError("its card names no BLAKE3 checksum, so it is not asked")
    try:
        parts, own = urlsplit(offer.served.url), ipaddress.ip_address(offer.address)
        port, host = parts.port, ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        what = "its card's URL is not http://ADDRESS:PORT/…" if offer.address else "the pod has no address yet"
        raise _NothingError(what) from None
    if (parts.scheme, "@" in parts.netloc, parts.query, parts.fragment) != ("http", False, "", "") or not port:
        raise _NothingError("its card's URL is not http://ADDRESS:PORT/…")
    if host != own:
        raise _NothingError(f"its card's URL names another host than the pod's own address {own}, and is not asked")
    if not _PATH.fullmatch(parts.path) or any(set(step) == {"."} for step in parts.path.split("/")):
        raise _NothingError("its card's URL lies outside /v1/metadata/, and is not asked")
    return f"http://{host_in_url(own)}:{port}{parts.path}"


def _checked(body: bytes, checksum: str) -> str:
    """The text of a body that has the checksum. Raises _NothingError."""
    if f"blake3:{blake3(body).hexdigest()}" != checksum:
        raise _NothingError(f"the {len(body)} bytes that it serves do not match the checksum of its card")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise _NothingError(f"the {len(body)} bytes that it serves are not UTF-8") from None


def _get(url: str, seconds: float) -> bytes:
    """The body of one answer with status 200. Raises _NothingError."""
    found = get(url, seconds, LARGEST_CONFIG_BYTES)
    if isinstance(found, NoBody):
        raise _NothingError(_FAULTS[found.fault].format(seconds=seconds, status=found.status))
    return found


_FAULTS = {
    Fault.LATE: "it did not arrive whole within {seconds:g} s",
    Fault.TOO_LARGE: f"it is larger than the limit of {LARGEST_CONFIG_BYTES} bytes",
    Fault.REDIRECT: "the pod answers with a redirect, which is not followed",
    Fault.STATUS: "the pod answers HTTP {status}",
    Fault.BROKEN: "no connection to the pod, or it broke off",
}
