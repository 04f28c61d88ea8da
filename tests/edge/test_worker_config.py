"""A worker's config.json: fetched once, by its checksum, from the pod's own address, whatever the worker does."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from blake3 import blake3

from kvgate.dynamo.metadata import Served
from kvgate.dynamo.published import Offer, Published
from kvgate.edge.worker_config import (
    ASK_AGAIN_SECONDS,
    LARGEST_CONFIG_BYTES,
    LONGEST_SECONDS,
    PATIENCE_SECONDS,
    REST_SECONDS,
    NoConfig,
    WorkerConfig,
    WorkerConfigs,
)
from tests.cluster.waiting import eventually
from tests.dynamo.workers import CONFIG_CHECKSUM
from tests.edge.prometheus_double import Answer, Double, Handler, double, says

CONFIG = (Path(__file__).parents[1] / "data" / "dynamo-worker-config.json").read_bytes()
PATH = "/v1/metadata/dynamo/backend/generate/tiny/_base/config.json"
SECONDS = 0.5
SLACK_SECONDS = 3.0


def offer(server: Double, name: str = "d-0", *, checksum: str = CONFIG_CHECKSUM) -> Offer:
    return Offer(name, f"uid-{name}", "127.0.0.1", Served(f"{server.url}{PATH}", checksum))


def asking(*offers: Offer, configs: WorkerConfigs | None = None) -> WorkerConfig | NoConfig:
    return (configs or WorkerConfigs(SECONDS))(Published(offers[0].served.checksum, offers))


class Moments:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_a_real_workers_card_names_is_read_once_and_by_its_checksum() -> None:
    configs = WorkerConfigs(SECONDS)
    with double(says(CONFIG)) as server:
        first = asking(offer(server), configs=configs)
        again = asking(offer(server, "d-1"), configs=configs)
    assert first == WorkerConfig(CONFIG.decode(), "d-0")
    assert again == WorkerConfig(CONFIG.decode(), "d-1")
    assert [one.path for one in server.asked] == [PATH]


def endless(handler: Handler, ended: threading.Event) -> None:
    handler.send_response(200)
    handler.end_headers()
    while not ended.is_set():
        handler.wfile.write(b"[" * 65536)


def silent(_: Handler, ended: threading.Event) -> None:
    ended.wait()


def dripping(handler: Handler, ended: threading.Event) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "444")
    handler.end_headers()
    while not ended.wait(0.05):
        handler.wfile.write(b" ")


def hung_up(handler: Handler, _: threading.Event) -> None:
    handler.close_connection = True


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(says(CONFIG + b" "), "445 bytes that it serves do not match the checksum", id="another file"),
        pytest.param(says(b""), "0 bytes that it serves do not match the checksum", id="nothing"),
        pytest.param(says(CONFIG, 404), "HTTP 404", id="not found"),
        pytest.param(says(CONFIG, 500), "HTTP 500", id="a fault of its own"),
        pytest.param(says(b"", 302, Location=PATH), "a redirect, which is not followed", id="a redirect"),
        pytest.param(endless, f"larger than the limit of {LARGEST_CONFIG_BYTES} bytes", id="a body without end"),
        pytest.param(silent, "did not arrive whole within 0.5 s", id="silence"),
        pytest.param(dripping, "did not arrive whole within 0.5 s", id="a byte now and then"),
        pytest.param(hung_up, "broke off", id="a closed connection"),
    ],
)
def test_a_worker_that_gives_no_config_is_named_with_the_reason_and_asked_once(answer: Answer, said: str) -> None:
    configs = WorkerConfigs(SECONDS)
    with double(answer) as server:
        started = time.monotonic()
        found = asking(offer(server), configs=configs)
        took = time.monotonic() - started
        assert asking(offer(server), configs=configs) == found
    assert isinstance(found, NoConfig)
    assert found.message.startswith("the config.json of worker pod d-0: ")
    assert said in found.message
    assert "spec.model.kvCache.bytesPerToken" in found.message
    assert "127.0.0.1" not in found.message
    assert (len(server.asked), took < SECONDS + SLACK_SECONDS) == (1, True)


def test_bytes_that_are_no_text_are_told_although_the_checksum_holds() -> None:
    body = b"\xff\xfe\x00"
    with double(says(body)) as server:
        found = asking(offer(server, checksum=f"blake3:{blake3(body).hexdigest()}"))
    assert isinstance(found, NoConfig)
    assert "3 bytes that it serves are not UTF-8" in found.message


@pytest.mark.parametrize(
    ("url", "said"),
    [
        pytest.param("http://169.254.169.254:80" + PATH, "names another host", id="a cloud's metadata service"),
        pytest.param("http://localhost:80" + PATH, "is not http://ADDRESS", id="a name"),
        pytest.param("http://127.0.0.1.evil.example:80" + PATH, "is not http://ADDRESS", id="a name that looks near"),
        pytest.param(
            "http://10.0.0.1@127.0.0.1:{port}" + PATH, "is not http://ADDRESS", id="a user before the address"
        ),
        pytest.param("http://127.0.0.1:{port}@10.0.0.1:80" + PATH, "is not http://ADDRESS", id="an address as user"),
        pytest.param("http://127.0.0.1:{port}\\@10.0.0.1" + PATH, "is not http://ADDRESS", id="a backslash"),
        pytest.param("http://2130706433:{port}" + PATH, "is not http://ADDRESS", id="the address as one number"),
        pytest.param("https://127.0.0.1:{port}" + PATH, "is not http://ADDRESS", id="HTTPS"),
        pytest.param("file:///etc/passwd", "is not http://ADDRESS", id="a file"),
        pytest.param("http://127.0.0.1" + PATH, "is not http://ADDRESS", id="no port"),
        pytest.param("http://127.0.0.1:0" + PATH, "is not http://ADDRESS", id="port zero"),
        pytest.param("http://127.0.0.1:99999" + PATH, "is not http://ADDRESS", id="no such port"),
        pytest.param("http://127.0.0.1:{port}" + PATH + "?a=b", "is not http://ADDRESS", id="a query"),
        pytest.param("http://127.0.0.1:{port}/admin", "outside /v1/metadata/", id="another path"),
        pytest.param("http://127.0.0.1:{port}/v1/metadata/../../admin", "outside /v1/metadata/", id="a way up"),
        pytest.param("http://127.0.0.1:{port}/v1/metadata/%2e%2e/admin", "outside", id="a way up in disguise"),
        pytest.param("http://127.0.0.1:{port}/v1/metadata/a b", "outside /v1/metadata/", id="a space"),
        pytest.param("", "is not http://ADDRESS", id="nothing"),
        pytest.param("http://[::1", "is not http://ADDRESS", id="half a bracket"),
    ],
)
def test_a_url_is_not_asked_that_is(url: str, said: str) -> None:
    with double(says(CONFIG)) as server:
        port = server.url.rpartition(":")[2]
        wrong = replace(offer(server), served=Served(url.replace("{port}", port), CONFIG_CHECKSUM))
        found = asking(wrong)
    assert isinstance(found, NoConfig)
    assert said in found.message
    assert server.asked == []


@pytest.mark.parametrize(
    "checksum",
    [
        pytest.param("", id="none"),
        pytest.param("sha256:" + "0" * 64, id="of another kind"),
        pytest.param("blake3:" + "0" * 8, id="too short"),
        pytest.param("blake3:" + "G" * 64, id="no hexadecimal digits"),
    ],
)
def test_a_card_without_a_checksum_that_binds_is_not_asked(checksum: str) -> None:
    with double(says(CONFIG)) as server:
        found = asking(offer(server, checksum=checksum))
    assert isinstance(found, NoConfig)
    assert "no BLAKE3 checksum" in found.message
    assert server.asked == []


def test_a_pod_without_an_address_is_not_asked() -> None:
    with double(says(CONFIG)) as server:
        found = asking(replace(offer(server), address=""))
    assert isinstance(found, NoConfig)
    assert "has no address yet" in found.message
    assert server.asked == []


def test_the_next_look_asks_the_next_worker() -> None:
    configs = WorkerConfigs(SECONDS)
    with double(says(b"", 500)) as broken, double(says(CONFIG)) as healthy:
        offers = (offer(broken, "a"), offer(healthy, "b"))
        first, second = asking(*offers, configs=configs), asking(*offers, configs=configs)
    assert isinstance(first, NoConfig)
    assert first.look_again_seconds == REST_SECONDS
    assert isinstance(second, WorkerConfig)


def test_workers_that_fail_one_after_the_other_are_told_of_in_one_voice() -> None:
    """Else each turn would write another status, which brings the next turn."""
    clock = Moments()
    configs = WorkerConfigs(SECONDS, clock)
    with double(says(b"", 500)) as broken:
        offers = tuple(offer(broken, name) for name in ("a", "b", "c"))
        told = set()
        for _ in range(3):
            found = [asking(*offers, configs=configs) for _ in range(4)]
            told |= {one.message for one in found if isinstance(one, NoConfig)}
            clock.now += REST_SECONDS
    assert len(told) == 1
    assert isinstance(found[-1], NoConfig)
    assert found[-1].look_again_seconds == ASK_AGAIN_SECONDS
    assert len(broken.asked) == 9


def test_a_worker_that_hangs_holds_up_no_turn_and_what_came_late_is_found_by_a_later_one() -> None:
    let = threading.Event()

    def late(handler: Handler, ended: threading.Event) -> None:
        let.wait(4)
        says(CONFIG)(handler, ended)

    configs = WorkerConfigs()
    with double(late) as server:
        began = time.monotonic()
        first = [asking(offer(server), configs=configs) for _ in range(3)]
        took = time.monotonic() - began
        let.set()
        eventually(lambda: isinstance(asking(offer(server), configs=configs), WorkerConfig))
    assert {found.look_again_seconds for found in first if isinstance(found, NoConfig)} == {LONGEST_SECONDS}
    assert {type(found) for found in first} == {NoConfig}
    assert (len(server.asked), took < 2 * PATIENCE_SECONDS) == (1, True)


def test_a_worker_that_gave_none_is_asked_again_after_a_while() -> None:
    clock = Moments()
    configs = WorkerConfigs(SECONDS, clock)
    with double(says(b"", 503)) as server:
        for moment in (0.0, REST_SECONDS - 1, REST_SECONDS):
            clock.now = moment
            asking(offer(server), configs=configs)
    assert len(server.asked) == 2


def test_a_foreign_pod_name_is_not_echoed_raw() -> None:
    with double(says(b"", 500)) as server:
        found = asking(offer(server, "a\x1b[2J"))
    assert isinstance(found, NoConfig)
    assert found.message.isprintable()
