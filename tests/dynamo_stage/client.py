"""What a user sees of a frontend: answers with their proofs, the readiness of a model, and a scrape."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import requests

from tests.dynamo_stage import model
from tests.dynamo_stage.metrics import Scrape

PROOFS = ("worker_id", "timing")
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Answer:
    """One request's end; `status` 0 is no HTTP answer at all, and `error` then says why."""

    status: int
    seconds: float
    text: str = ""
    error: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    prefill_worker: int | None = None
    decode_worker: int | None = None
    timing: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return self.status == 200

    @property
    def split(self) -> bool:
        """Whether another worker prefilled: the proof that the request took the disaggregated path."""
        return None not in (self.prefill_worker, self.decode_worker) and self.prefill_worker != self.decode_worker


@dataclass(frozen=True)
class Readiness:
    """`GET /v1/models/{model}/ready`: the status, and by Dynamo namespace the present and the missing worker types."""

    status: int
    body: Mapping[str, object]

    @property
    def ready(self) -> bool:
        return self.status == 200

    def types(self, key: str) -> Mapping[str, tuple[str, ...]]:
        namespaces = self.body.get("namespaces")
        assert isinstance(namespaces, Mapping), self.body
        return {str(name): tuple(sorted(map(str, entry.get(key, ())))) for name, entry in namespaces.items()}

    @property
    def missing(self) -> Mapping[str, tuple[str, ...]]:
        return self.types("missing_worker_types")


@dataclass(frozen=True)
class Door:
    """An HTTP endpoint of one process."""

    base: str

    def get(self, path: str, seconds: float = 5.0) -> tuple[int, str]:
        """Status and body; status 0 with the error's name where nothing answered."""
        try:
            answer = requests.get(f"{self.base}{path}", timeout=seconds)
        except requests.RequestException as error:
            return 0, type(error).__name__
        return answer.status_code, answer.text

    def scrape(self) -> Scrape:
        status, text = self.get("/metrics")
        assert status == 200, f"{self.base}/metrics answered {status}: {text[:200]}"
        return Scrape(text)


@dataclass(frozen=True)
class UserDoor(Door):
    """A frontend's HTTP endpoint."""

    def models(self) -> tuple[str, ...]:
        answer = requests.get(f"{self.base}/v1/models", timeout=5)
        return tuple(entry["id"] for entry in answer.json()["data"])

    def readiness(self, name: str = model.NAME) -> Readiness:
        try:
            answer = requests.get(f"{self.base}/v1/models/{name}/ready", timeout=5)
            body = answer.json()
        except (requests.RequestException, ValueError) as error:
            return Readiness(0, {"error": type(error).__name__})
        return Readiness(answer.status_code, body if isinstance(body, dict) else {})

    def chat(
        self,
        content: str,
        *,
        max_tokens: int = 8,
        annotations: Sequence[str] = (),
        extra: Mapping[str, object] | None = None,
        seconds: float = 60.0,
        name: str = model.NAME,
    ) -> Answer:
        """One request of one message, with the proofs asked for; never raises for what the frontend answers."""
        more = dict(extra or {})
        asked: dict[str, object] = {"extra_fields": list(PROOFS), "annotations": list(annotations)}
        nvext = more.pop("nvext", {})
        assert isinstance(nvext, Mapping)
        body = {
            "model": name,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": max_tokens,
            "nvext": {**asked, **nvext},
            **more,
        }
        began = time.monotonic()
        try:
            answer = requests.post(f"{self.base}/v1/chat/completions", json.dumps(body), headers=JSON, timeout=seconds)
            took = time.monotonic() - began
            if answer.status_code != 200:
                return Answer(answer.status_code, took, error=answer.text[:500])
            return _answer(answer.json(), took)
        except (requests.RequestException, ValueError) as error:
            return Answer(0, time.monotonic() - began, error=f"{type(error).__name__}: {error}"[:500])


def _answer(body: Mapping[str, object], seconds: float) -> Answer:
    nvext, usage = _mapping(body.get("nvext")), _mapping(body.get("usage"))
    workers, details = _mapping(nvext.get("worker_id")), _mapping(usage.get("prompt_tokens_details"))
    choices = body.get("choices")
    assert isinstance(choices, list)
    return Answer(
        200,
        seconds,
        text=str(_mapping(choices[0]["message"]).get("content") or ""),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(details.get("cached_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        prefill_worker=_worker(workers.get("prefill_worker_id")),
        decode_worker=_worker(workers.get("decode_worker_id")),
        timing={name: _number(value) for name, value in _mapping(nvext.get("timing")).items()},
    )


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _worker(value: object) -> int | None:
    return value if isinstance(value, int) else None
