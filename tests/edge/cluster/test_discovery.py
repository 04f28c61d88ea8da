"""In which version Dynamo's deployments are watched, by what an API server says that it serves."""

from __future__ import annotations

import json

import pytest

from kvgate.edge.cluster.client import Client, Document
from kvgate.edge.cluster.discovery import target_version
from kvgate.edge.cluster.refusals import NotFound, Unavailable

DEPLOYMENTS = {"resources": [{"name": "dynamographdeployments"}, {"name": "dynamographdeployments/status"}]}
OTHERS = {"resources": [{"name": "dynamoworkermetadatas"}]}
Served = dict[str, Document]


class Server(Client):
    """Plays an API server's discovery: what is not in `served` is answered 404, and nothing at all where it is None."""

    def __init__(self, served: Served | None) -> None:
        self._served = served

    def discover(self, api_version: str) -> Document:
        if self._served is None:
            raise Unavailable("no answer")
        version = api_version.rpartition("/")[2]
        if version not in self._served:
            raise NotFound("no such version")
        return json.loads(json.dumps(self._served[version]))  # type: ignore[no-any-return]


CASES: dict[str, tuple[Served | None, str]] = {
    "both": ({"v1beta1": DEPLOYMENTS, "v1alpha1": DEPLOYMENTS}, "v1beta1"),
    "the newer alone": ({"v1beta1": DEPLOYMENTS, "v1alpha1": OTHERS}, "v1beta1"),
    "the older alone": ({"v1alpha1": DEPLOYMENTS}, "v1alpha1"),
    "the older alone, and other kinds in the newer": ({"v1beta1": OTHERS, "v1alpha1": DEPLOYMENTS}, "v1alpha1"),
    "neither, for Dynamo is not there yet": ({}, "v1beta1"),
    "nothing, for it does not answer": (None, "v1beta1"),
}


@pytest.mark.parametrize(("served", "version"), CASES.values(), ids=CASES)
def test_watched_is_the_newest_that_is_served(served: Served | None, version: str) -> None:
    assert target_version(Server(served)) == version
