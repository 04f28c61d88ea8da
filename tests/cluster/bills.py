"""The bill of materials of an image, from its own layers: packages of Debian and distributions of Python, as SPDX."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from email.parser import HeaderParser
from urllib.parse import quote

PACKAGE = re.compile(r"(?:\./)?var/lib/dpkg/status\.d/[^/]+")
DISTRIBUTION = re.compile(r".*/site-packages/[^/]+\.dist-info/METADATA")
EPOCH = "1970-01-01T00:00:00Z"
"""The same image has the same bill, whenever it was made."""


def bill(name: str, layers: Iterable[bytes]) -> str:
    """SPDX 2.3 as JSON: every package of the layers with its version, by name."""
    found = sorted({entry for layer in layers for entry in _contents(layer)})
    digest = hashlib.sha256(repr(found).encode()).hexdigest()
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"https://kvgate.dev/spdx/{quote(name, safe='')}/{digest}",
        "creationInfo": {"created": EPOCH, "creators": ["Tool: kvgate-images"]},
        "packages": [_package(*entry) for entry in found],
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": _id(*entry)}
            for entry in found
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def _contents(layer: bytes) -> Iterator[tuple[str, str, str]]:
    """Kind, name and version of what the layer says that it holds."""
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        for member in archive:
            kind = "deb" if PACKAGE.fullmatch(member.name) else "pypi" if DISTRIBUTION.fullmatch(member.name) else ""
            content = archive.extractfile(member) if kind and member.isreg() else None
            if content is not None:
                fields = HeaderParser().parsestr(content.read().decode(errors="replace"), headersonly=True)
                yield kind, str(fields["Package"] or fields["Name"]), str(fields["Version"])


def _package(kind: str, name: str, version: str) -> dict[str, object]:
    place = f"debian/{quote(name)}" if kind == "deb" else quote(name.lower().replace("_", "-"))
    return {
        "SPDXID": _id(kind, name, version),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:{kind}/{place}@{quote(version, safe='')}",
            }
        ],
    }


def _id(kind: str, name: str, version: str) -> str:
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", f"{kind}-{name}-{version}")
