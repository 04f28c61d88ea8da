"""In which number format the KV cache is kept, and who says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from kvgate.core.kvcache.reading import Fields
from kvgate.core.kvcache.words import JSON, Reason, Refusal, shown

_16_BIT = Fraction(2)
_NVFP4 = Fraction(9, 16)
"""Half a byte per element and one scale byte for each 16 elements."""

_KNOWN: Mapping[str, tuple[str, Fraction]] = {
    "bfloat16": ("bfloat16", _16_BIT),
    "bf16": ("bfloat16", _16_BIT),
    "float16": ("float16", _16_BIT),
    "fp16": ("float16", _16_BIT),
    "half": ("float16", _16_BIT),
    "float32": ("float32", Fraction(4)),
    "fp32": ("float32", Fraction(4)),
    "float": ("float32", Fraction(4)),
    "fp8": ("fp8", Fraction(1)),
    "fp8_e4m3": ("fp8", Fraction(1)),
    "fp8_e5m2": ("fp8", Fraction(1)),
    "float8_e4m3fn": ("fp8", Fraction(1)),
    "float8_e5m2": ("fp8", Fraction(1)),
    "fp8_ds_mla": ("fp8_ds_mla", Fraction(1)),
    "int8": ("int8", Fraction(1)),
    "nvfp4": ("nvfp4", _NVFP4),
}
_MODEL_DTYPES = frozenset({"bfloat16", "float16", "float32"})
_SCHEMES: Mapping[tuple[JSON, JSON], str] = {(8, "float"): "fp8", (8, "int"): "int8"}
_SCHEME_DETAILS = frozenset(
    {"num_bits", "type", "dynamic", "strategy", "symmetric", "observer", "observer_kwargs", "actorder"}
    | {"group_size", "block_structure", "scale_dtype", "zp_dtype"}
)


@dataclass(frozen=True)
class KVDtype:
    """`bytes_each`: bytes per cached element, scales included where the format has them."""

    name: str
    bytes_each: Fraction
    source: str
    warnings: tuple[str, ...] = ()

    @property
    def is_wide(self) -> bool:
        return self.name in _MODEL_DTYPES

    @property
    def is_fp8(self) -> bool:
        return self.name in {"fp8", "fp8_ds_mla"}


def kv_dtype(
    asked: str | None, quant: Mapping[str, JSON] | None, text: Mapping[str, JSON], root: Mapping[str, JSON]
) -> KVDtype:
    """The first that speaks: what was asked, hf_quant_config.json, the config's KV scheme, the model's dtype.

    FP8 weights say nothing about the cache: only a KV scheme does.
    """
    if asked is not None and asked != "auto":
        return _known(asked, "spec.model.kvCache.dtype or the worker's arguments")
    if quant is not None and (algorithm := _quant_algorithm(quant)) is not None:
        return _known(algorithm, "hf_quant_config.json kv_cache_quant_algo")
    for part, where in _parts(text, root):
        for name in ("quantization_config", "compression_config"):
            found = _scheme(part.get(name), f"{where}{name}")
            if found is not None:
                return found
    return model_dtype(text, root)


def model_dtype(text: Mapping[str, JSON], root: Mapping[str, JSON]) -> KVDtype:
    """The dtype the model is served in when nobody says otherwise; 4-byte weights are served in 2 bytes."""
    for part, where in _parts(text, root):
        said = [(name, part[name]) for name in ("dtype", "torch_dtype") if part.get(name) not in (None, "auto")]
        if said:
            return _served(said, where)
    return KVDtype("bfloat16", _16_BIT, "assumed", ("the config names no dtype: 2 B per element assumed",))


def _parts(text: Mapping[str, JSON], root: Mapping[str, JSON]) -> tuple[tuple[Mapping[str, JSON], str], ...]:
    return ((root, ""),) if text is root else ((text, "text part "), (root, ""))


def _served(said: list[tuple[str, JSON]], where: str) -> KVDtype:
    name, word = said[0]
    dtype = _known(word, f"{where}{name}")
    if dtype.name not in _MODEL_DTYPES:
        raise Refusal(Reason.UNKNOWN_DTYPE, f"{where}{name} {shown(word)} is no format that a model is served in")
    warnings: tuple[str, ...] = ()
    if len(said) == 2 and said[0][1] != said[1][1]:
        warnings += (f"{where}dtype and torch_dtype differ: dtype is taken",)
    if dtype.name == "float32":
        warnings += (f"{where}{name} is float32: engines serve it in 2 B per element",)
        return KVDtype("bfloat16", _16_BIT, dtype.source, warnings)
    return KVDtype(dtype.name, dtype.bytes_each, dtype.source, warnings)


def _known(word: JSON, source: str) -> KVDtype:
    plain = word.removeprefix("torch.").lower() if isinstance(word, str) else ""
    if plain not in _KNOWN:
        raise Refusal(Reason.UNKNOWN_DTYPE, f"{source}: the KV dtype {shown(word)} is not known")
    return KVDtype(*_KNOWN[plain], source)


def _quant_algorithm(quant: Mapping[str, JSON]) -> JSON:
    inner = quant.get("quantization", quant)
    if not isinstance(inner, Mapping):
        raise Refusal(Reason.BAD_VALUE, "hf_quant_config.json quantization is not an object")
    return _algorithm(Fields(inner, "hf_quant_config.json"))


def _algorithm(fields: Fields) -> JSON:
    algorithm = fields.get("kv_cache_quant_algo")
    return None if algorithm in (None, "", "none", "None", "NONE", "auto") else algorithm


def _scheme(section: JSON, where: str) -> KVDtype | None:
    if section is None:
        return None
    if not isinstance(section, Mapping):
        raise Refusal(Reason.BAD_VALUE, f"{where} is {shown(section)}, not an object")
    odd = [k for k, v in section.items() if v and "kv" in k.lower() and k not in _SCHEME_KEYS]
    if odd:
        raise Refusal(Reason.UNKNOWN_KEY, f"{where} has the key {shown(odd[0])}, which is not known")
    fields = Fields(section, where)
    if (algorithm := _algorithm(fields)) is not None:
        return _known(algorithm, f"{where}.kv_cache_quant_algo")
    scheme = section.get("kv_cache_scheme")
    return None if not scheme else _known(_scheme_word(scheme, where), f"{where}.kv_cache_scheme")


_SCHEME_KEYS = frozenset({"kv_cache_scheme", "kv_cache_quant_algo"})


def _scheme_word(scheme: JSON, where: str) -> JSON:
    if not isinstance(scheme, Mapping):
        return scheme
    word = _SCHEMES.get((_plain(scheme.get("num_bits")), _plain(scheme.get("type"))))
    if word is None or not set(scheme) <= _SCHEME_DETAILS:
        raise Refusal(Reason.UNKNOWN_DTYPE, f"{where}.kv_cache_scheme is of a kind that is not known")
    return word


def _plain(value: JSON) -> JSON:
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None
