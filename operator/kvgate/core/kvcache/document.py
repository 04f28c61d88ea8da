"""From the text of a config.json to the object that describes the language model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from kvgate.core.kvcache.layers import Row
from kvgate.core.kvcache.reading import Fields
from kvgate.core.kvcache.table import ROWS, WRAPPERS
from kvgate.core.kvcache.words import JSON, KVBytesUnknown, Reason, Refusal, shown

MOST_BYTES = 1 << 20
LANGUAGE_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_DEEPEST = 3
_SPOKEN_FOR = ("model_type", "dtype", "torch_dtype", *LANGUAGE_PARTS)


@dataclass(frozen=True)
class LanguagePart:
    """`row` says how `values` are read; `around` are the objects that enclose it, outermost first."""

    row: Row
    model_type: str
    values: Mapping[str, JSON]
    where: str
    around: tuple[Mapping[str, JSON], ...]

    @property
    def root(self) -> Mapping[str, JSON]:
        return self.around[0] if self.around else self.values

    def fields(self) -> Fields:
        return Fields(self.values, self.where)

    def refuse_leftovers(self, read: Fields) -> None:
        read.ignore(*_SPOKEN_FOR)
        read.refuse_leftovers()
        for outer in self.around:
            fields = Fields(outer, "config.json")
            fields.ignore(*_SPOKEN_FOR)
            fields.refuse_leftovers(twin=self.values)


def parse_config(text: str) -> Mapping[str, JSON] | KVBytesUnknown:
    """A config.json's text as an object, at most 1 MiB of it; else why not. Doubled keys are refused."""
    try:
        return _parse(text)
    except Refusal as refusal:
        return refusal.unknown


def _parse(text: str) -> Mapping[str, JSON]:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MOST_BYTES:
        raise Refusal(Reason.TOO_LARGE, f"the config has {size:,} B, the limit is {MOST_BYTES:,} B")
    if text.startswith("GGUF"):
        raise Refusal(Reason.GGUF_ONLY, "this is a GGUF file and no config.json: give its metadata as JSON")
    try:
        value: JSON = json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError):
        raise Refusal(Reason.NOT_JSON, f"the config's {size:,} B are not JSON") from None
    return as_object(value)


def as_object(value: JSON) -> Mapping[str, JSON]:
    if isinstance(value, Mapping):
        return value
    raise Refusal(Reason.NOT_AN_OBJECT, f"the config is {shown(value)}, not a JSON object")


def _without_doubles(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key appears twice")
    return made


def language_part(root: Mapping[str, JSON]) -> LanguagePart:
    """The one object that holds the language model's layers: the root, or the one nested part it points to."""
    around: list[Mapping[str, JSON]] = []
    here, where = root, ""
    while inner := _inner(here):
        if len(around) == _DEEPEST:
            raise Refusal(Reason.NO_LANGUAGE_PART, f"the language part lies deeper than {_DEEPEST} objects")
        _refuse_second_opinion(here, inner[1])
        around.append(here)
        where = f"{where}.{inner[0]}" if where else inner[0]
        here = inner[1]
    model_type = _model_type(here, tuple(around))
    return LanguagePart(ROWS[model_type], model_type, here, where, tuple(around))


def _inner(here: Mapping[str, JSON]) -> tuple[str, Mapping[str, JSON]] | None:
    found = [(name, part) for name in LANGUAGE_PARTS if isinstance(part := here.get(name), Mapping) and part]
    if len(found) > 1:
        raise Refusal(Reason.CONTRADICTION, f"{found[0][0]} and {found[1][0]} both describe a language part")
    return found[0] if found else None


def _refuse_second_opinion(outer: Mapping[str, JSON], inner: Mapping[str, JSON]) -> None:
    for key in ("num_hidden_layers", "num_key_value_heads", "head_dim", "hidden_size"):
        if key in outer and key in inner and outer[key] != inner[key]:
            raise Refusal(Reason.CONTRADICTION, f"{key} differs between the config and its language part")


def _model_type(part: Mapping[str, JSON], around: tuple[Mapping[str, JSON], ...]) -> str:
    names = [outer.get("model_type") for outer in around]
    for name in names:
        if name is not None and not (isinstance(name, str) and name in WRAPPERS):
            raise _unknown(name)
    candidates = [part.get("model_type"), *reversed(names)]
    name = next((c for c in candidates if c is not None), None)
    if not isinstance(name, str) or name not in ROWS:
        raise _unknown(name)
    return name


def _unknown(name: JSON) -> Refusal:
    if name is None:
        return Refusal(Reason.UNKNOWN_MODEL_TYPE, "the config names no model_type")
    return Refusal(Reason.UNKNOWN_MODEL_TYPE, f"the model_type {shown(name)} is not known")
