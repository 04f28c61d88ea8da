"""The one door to the API server: what bounds a call, and what becomes of each refusal."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from kubernetes import client as kubernetes

from kvgate.edge.cluster.client import JOBS, NODES, PODS, POOLS, TARGETS, Client
from kvgate.edge.cluster.refusals import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    HeldByOthers,
    NotFound,
    Refused,
    Unavailable,
    refusal,
)
from kvgate.edge.errors import WriteConflictError

SECRET = "a text that came from elsewhere"
REJECTED = "the server rejected our request due to an error in our request"


def answer(reason: str = "", message: str = SECRET, **details: object) -> str:
    return json.dumps({"kind": "Status", "reason": reason, "message": message, "details": details})


def held(*managers: str) -> str:
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{name}" using nvidia.com/v1beta1'}
        for name in managers
    ]
    return answer("Conflict", causes=causes)


@pytest.mark.parametrize(
    ("status", "body", "kind", "says"),
    [
        pytest.param(404, answer("NotFound"), NotFound, "there is none", id="what is not there"),
        pytest.param(409, answer("Conflict"), Conflict, "since it was read", id="another version than was read"),
        pytest.param(409, answer("AlreadyExists"), AlreadyExists, "taken", id="a name that is taken"),
        pytest.param(409, held("argocd", "argocd"), HeldByOthers, "held by argocd", id="a field that another holds"),
        pytest.param(401, answer("Unauthorized"), Forbidden, "ServiceAccount", id="unknown credentials"),
        pytest.param(403, answer("Forbidden"), Forbidden, "permission", id="no permission"),
        pytest.param(
            403, answer("Forbidden", "exceeded quota: x"), Forbidden, "ResourceQuota", id="a quota that is used up"
        ),
        pytest.param(
            403, answer("Forbidden", 'violates PodSecurity "restricted"'), Forbidden, "Pod Security", id="pod security"
        ),
        pytest.param(
            403, answer("Forbidden", "ValidatingAdmissionPolicy 'x' denied"), Forbidden, "policy", id="a policy"
        ),
        pytest.param(
            422, answer("Invalid", "ValidatingAdmissionPolicy 'x' denied"), Forbidden, "policy", id="one without reason"
        ),
        pytest.param(
            400,
            answer("", 'admission webhook "x" denied the request: no'),
            Forbidden,
            "who runs the webhook",
            id="a hook",
        ),
        pytest.param(
            422, answer("Invalid", causes=[{"field": "spec.x"}]), Refused, "status 422; spec.x", id="a bad document"
        ),
        pytest.param(
            422, answer("Invalid", REJECTED), Conflict, "since it was read", id="a JSON patch whose test fails"
        ),
        pytest.param(
            422, answer("Invalid", REJECTED, causes=[{"field": "spec.x"}]), Refused, "spec.x", id="one of a bad value"
        ),
        pytest.param(429, answer("TooManyRequests"), Unavailable, "status 429", id="too much at once"),
        pytest.param(500, "<html>", Unavailable, "status 500", id="no Kubernetes at all"),
        pytest.param(503, '{"reason": ["deep"]}', Unavailable, "status 503", id="an answer of another shape"),
    ],
)
def test_a_refusal_is_an_error_of_its_own(status: int, body: str, kind: type[ClusterError], says: str) -> None:
    error = refusal(status, body, "Job serving/x")

    assert type(error) is kind
    assert "Job serving/x" in str(error)
    assert says in str(error)
    assert SECRET not in str(error)


def test_only_a_write_that_came_too_late_is_nobodys_fault() -> None:
    assert isinstance(refusal(409, answer("Conflict"), "x"), WriteConflictError)
    assert not isinstance(refusal(409, held("argocd"), "x"), WriteConflictError)


def test_a_managers_name_is_shown_in_plain_characters() -> None:
    error = refusal(409, held("evil\nname <b>"), "x")

    assert "\n" not in str(error)
    assert "<" not in str(error)


def allow() -> None:
    return


@contextmanager
def server(reply: bytes, guard: Callable[[], None] = allow) -> Iterator[tuple[Client, list[bytes]]]:
    """A socket that plays an API server which sends `reply` to each connection, and nothing more."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                requests.append(connection.recv(65536))
                if reply:
                    connection.sendall(reply)
                    connection.close()
                else:
                    held_open.append(connection)

        held_open: list[socket.socket] = []
        threading.Thread(target=serve, daemon=True).start()
        configuration = kubernetes.Configuration(host=f"http://127.0.0.1:{listening.getsockname()[1]}")
        yield Client(configuration, before_write=guard), requests
        for connection in held_open:
            connection.close()


def test_a_server_that_never_answers_is_given_up_after_5_seconds_and_asked_once() -> None:
    with server(b"") as (client, requests):
        began = time.monotonic()
        with pytest.raises(Unavailable, match="no answer within 5 s"):
            client.get(JOBS, "serving", "x")
        took = time.monotonic() - began

    assert 4.5 < took < 6
    assert len(requests) == 1


def test_a_server_that_hangs_up_is_asked_once() -> None:
    with server(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{") as (client, requests), pytest.raises(Unavailable):
        client.get(JOBS, "serving", "x")

    assert len(requests) == 1


def test_nobody_at_the_address_is_unavailable() -> None:
    client = Client(kubernetes.Configuration(host="http://127.0.0.1:9"))

    with pytest.raises(Unavailable):
        client.list(POOLS, "serving")


def test_a_pod_of_a_list_keeps_all_that_a_shadow_of_its_frontend_is_made_of() -> None:
    spec = {"volumes": [{"name": "model"}], "affinity": {"nodeAffinity": {}}, "containers": [{"name": "main"}]}
    pod = {"metadata": {"name": "f", "managedFields": [{"manager": "kubelet"}]}, "spec": spec}
    body = json.dumps({"items": [pod]}).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with server(head + body) as (client, _):
        (read,) = client.list(PODS, "serving")

    assert read["spec"] == spec
    assert read["metadata"] == {"name": "f"}


@pytest.mark.parametrize("reply", [b"[]", b"no json", b""], ids=["a list", "no JSON", "nothing"])
def test_an_answer_that_is_no_object_is_unavailable(reply: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(reply)}\r\n\r\n".encode()
    with server(head + reply) as (client, _), pytest.raises(Unavailable, match="it is asked again"):
        client.get(JOBS, "serving", "x")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(
            POOLS.path("s", "x", "status"), "/apis/kvgate.dev/v1alpha1/namespaces/s/inferencepools/x/status", id="ours"
        ),
        pytest.param(NODES.path(""), "/api/v1/nodes", id="of no namespace"),
        pytest.param(
            JOBS.path("s", "../../x"), "/apis/batch/v1/namespaces/s/jobs/..%2F..%2Fx", id="a name stays a name"
        ),
    ],
)
def test_the_path_of_a_resource(path: str, expected: str) -> None:
    assert path == expected


class NotNowError(Exception):
    """What a guard raises."""


def refuse() -> None:
    raise NotNowError


BODY = {"metadata": {"name": "x"}}
WRITES: dict[str, Callable[[Client], object]] = {
    "a create": lambda client: client.create(JOBS, "serving", BODY),
    "a replace": lambda client: client.replace(POOLS, "serving", BODY, "status"),
    "a merge": lambda client: client.merge(JOBS, "serving", "x", {}),
    "an apply": lambda client: client.apply(TARGETS, "serving", BODY, "kvgate-split", force=True),
    "a delete": lambda client: client.delete(JOBS, "serving", "x", "uid"),
}
READS: dict[str, Callable[[Client], object]] = {
    "a get": lambda client: client.get(JOBS, "serving", "x"),
    "a list": lambda client: client.list(JOBS, "serving"),
    "a log": lambda client: client.log("serving", "x", "walker", 10),
}
FINE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_a_guard_that_refuses_lets_no_write_leave(write: Callable[[Client], object]) -> None:
    with server(FINE, refuse) as (client, requests), pytest.raises(NotNowError):
        write(client)
    assert requests == []

    with server(FINE) as (client, requests):
        write(client)
    assert len(requests) == 1


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_guard_that_refuses_stops_no_read(read: Callable[[Client], object]) -> None:
    with server(FINE, refuse) as (client, requests):
        read(client)

    assert len(requests) == 1


def test_a_guard_is_asked_before_each_write_anew() -> None:
    answers = iter([None, NotNowError()])

    def guard() -> None:
        if error := next(answers):
            raise error

    with server(FINE, guard) as (client, requests):
        client.create(JOBS, "serving", BODY)
        with pytest.raises(NotNowError):
            client.create(JOBS, "serving", BODY)

    assert len(requests) == 1


def test_reads_that_are_made_together_wait_for_each_other_and_keep_their_order() -> None:
    client, met = Client(kubernetes.Configuration()), threading.Barrier(3, timeout=10)

    def ask(name: str) -> tuple[dict[str, str]]:
        met.wait()
        return ({"name": name},)

    told = client.together(lambda: ask("a"), lambda: ask("b"), lambda: ask("c"))

    assert [answer["name"] for (answer,) in told] == ["a", "b", "c"]


def test_one_of_several_reads_that_fails_fails_them_all() -> None:
    client = Client(kubernetes.Configuration(host="http://127.0.0.1:9"))

    with pytest.raises(Unavailable):
        client.together(lambda: (), lambda: client.list(POOLS, "serving"), lambda: ())
