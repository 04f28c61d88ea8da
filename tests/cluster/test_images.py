"""The probe's image: the same from Docker and from our own packer, and an archive that follows OCI's layout."""

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from tests.cluster import images
from tests.cluster.cache import CannotRunError
from tests.cluster.images import PROBE, PROBE_PACKAGES, PROBE_SOURCES, PROBES, Image, pack, probe_sources

DOCKERFILE = (PROBES / "Dockerfile").read_text()


def instruction(name: str) -> str:
    joined = DOCKERFILE.replace("\\\n", " ")
    found = re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)
    assert len(found) == 1, f"{len(found)} instructions {name}"
    return str(found[0])


def test_the_dockerfile_installs_the_same_packages() -> None:
    installed = re.search(r"install -y --no-install-recommends ([^&]+?) *&&", DOCKERFILE.replace("\\\n", " "))

    assert installed is not None
    assert installed[1].split() == list(PROBE_PACKAGES)


def test_the_dockerfile_starts_the_same_program_as_the_same_user() -> None:
    assert json.loads(instruction("ENTRYPOINT")) == list(PROBE.entrypoint)
    assert instruction("USER") == PROBE.user
    assert dict(pair.split("=") for pair in instruction("ENV").split()) == PROBE.environment


def test_the_dockerfile_puts_the_walker_where_python_looks_for_it() -> None:
    copied = [line.split(" ", 1)[1] for line in DOCKERFILE.splitlines() if line.startswith("COPY ")]
    assert copied == [f"{package} {PROBE.environment['PYTHONPATH']}/{package}" for package in PROBE_SOURCES]


def test_the_image_holds_the_walker_as_it_is_in_this_checkout() -> None:
    names = {str(path.relative_to(PROBES)) for path in probe_sources()}

    assert {"kvgate_probe/__main__.py", "kvgate_probe/walker.py", "kvgate_bench/__main__.py"} <= names
    assert not [name for name in names if "__pycache__" in name]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as content:
        content.addfile(tarfile.TarInfo("empty"))
    image = Image("example.test/thing:1", ["/thing"], environment={"A": "b"})
    return pack(image, [layer.getvalue()], tmp_path / "thing.tar")


def test_every_descriptor_names_the_digest_and_size_of_its_blob(archive: Path) -> None:
    with tarfile.open(archive) as packed:
        contents = {member.name: packed.extractfile(member).read() for member in packed}  # type: ignore[union-attr]
    index = json.loads(contents["index.json"])
    manifest = json.loads(contents[blob_of(index["manifests"][0])])
    described = [index["manifests"][0], manifest["config"], *manifest["layers"]]

    assert json.loads(contents["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    for descriptor in described:
        blob = contents[blob_of(descriptor)]
        assert descriptor["size"] == len(blob)
        assert descriptor["digest"] == f"sha256:{hashlib.sha256(blob).hexdigest()}"


def blob_of(descriptor: dict[str, str]) -> str:
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def test_the_same_image_and_layers_give_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    again = pack(PROBE, [b"layer"], tmp_path / "one.tar").read_bytes()

    assert pack(PROBE, [b"layer"], tmp_path / "two.tar").read_bytes() == again
    assert archive.read_bytes() != again


def test_a_base_layer_whose_download_fails_is_no_base_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVGATE_CACHE", str(tmp_path))

    def breaks_off(release: object, packages: object, target: Path) -> None:
        target.write_bytes(b"half")
        raise CannotRunError("the download broke off")

    monkeypatch.setattr(images, "_os_release", lambda: {"ID": "debian", "VERSION_CODENAME": "bookworm"})
    monkeypatch.setattr(images, "_bootstrap", breaks_off)
    with pytest.raises(CannotRunError):
        images.debian_layer()

    assert not list((tmp_path / "images").glob("*.tar"))
