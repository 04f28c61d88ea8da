"""The images that `make images` packs: their bills, their sameness, and what a registry would know them by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster import operator_image
from tests.cluster.bills import bill
from tests.cluster.images import PROBE, Image, debian_layer, layer, pack, probe_layers
from tests.cluster.make_images import _made, digest_of
from tests.cluster.operator_image import PACKAGES, dependencies_layer

DEBIAN = layer(
    [("var/lib/dpkg/status.d/python3", b"Package: python3\nVersion: 3.11.2-1+b1\nArchitecture: amd64\n", 0o644)]
)
METADATA = b"Metadata-Version: 2.1\nName: PyYAML\nVersion: 6.0.3\n\nName: not a field\n"
PYTHON = layer([("opt/kvgate/lib/python3.11/site-packages/pyyaml-6.0.3.dist-info/METADATA", METADATA, 0o644)])


def test_a_bill_names_each_package_of_both_kinds_with_its_version() -> None:
    told = json.loads(bill("kvgate-operator:1", [DEBIAN, PYTHON]))
    locators = [package["externalRefs"][0]["referenceLocator"] for package in told["packages"]]

    assert locators == ["pkg:deb/debian/python3@3.11.2-1%2Bb1", "pkg:pypi/pyyaml@6.0.3"]
    assert told["spdxVersion"] == "SPDX-2.3"
    described = {relation["relatedSpdxElement"] for relation in told["relationships"]}
    assert described == {package["SPDXID"] for package in told["packages"]}


def test_another_version_makes_another_bill_and_the_same_the_same() -> None:
    other = layer([("var/lib/dpkg/status.d/python3", b"Package: python3\nVersion: 3.12\n", 0o644)])

    assert bill("x", [DEBIAN]) == bill("x", [DEBIAN])
    assert json.loads(bill("x", [DEBIAN]))["documentNamespace"] != json.loads(bill("x", [other]))["documentNamespace"]


def test_a_compressed_image_has_one_digest_however_often_it_is_packed(tmp_path: Path) -> None:
    image = Image("example.test/thing:1", ["/thing"])
    one, two, other = (
        pack(image, layers, tmp_path / name, zipped=True)
        for name, layers in (("one", [DEBIAN]), ("two", [DEBIAN]), ("other", [PYTHON]))
    )

    assert one.read_bytes() == two.read_bytes()
    assert digest_of(one) == digest_of(two) != digest_of(other)


@pytest.mark.cluster
def test_two_builds_of_the_operator_from_its_sources_are_the_same_to_the_byte(tmp_path: Path) -> None:
    """The wheel is built, installed and compiled anew each time; what the lock and Debian give comes from caches."""
    one, two = (tmp_path / name for name in ("one", "two"))
    for fresh in (one, two):
        operator_image._install_kvgate(fresh)
    shared = [path.read_bytes() for path in (debian_layer(PACKAGES), dependencies_layer())]

    assert one.read_bytes() == two.read_bytes()
    named = {
        package["name"] for package in json.loads(bill("kvgate-operator:1", [*shared, one.read_bytes()]))["packages"]
    }
    assert {"kvgate", "kopf", "python3", "ca-certificates"} <= named


@pytest.mark.cluster
def test_two_builds_of_the_probe_have_one_digest_and_one_bill(tmp_path: Path) -> None:
    """All that `make images` does for it but what Debian gives, which comes from a cache."""
    places = [tmp_path / name for name in ("one", "two")]
    for place in places:
        place.mkdir()
    one, two = (_made(place, "kvgate-probe", PROBE, probe_layers()) for place in places)

    assert one.digest == two.digest
    assert one.archive.read_bytes() == two.archive.read_bytes()
    bills = [(made.archive.parent / "kvgate-probe.spdx.json").read_bytes() for made in (one, two)]
    assert bills[0] == bills[1]
