"""From a config to a layout: chooses the row, lets it build the layers, adds them up and says how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from kvgate.core.kvcache import gguf
from kvgate.core.kvcache.document import as_object, language_part
from kvgate.core.kvcache.dtypes import KVDtype, kv_dtype, model_dtype
from kvgate.core.kvcache.layers import Ask, Built, Layer, Row
from kvgate.core.kvcache.layout import KVLayout, Window
from kvgate.core.kvcache.words import JSON, KVBytesUnknown, Reason, Refusal, shown

_MOST_SPECULATIVE = 256


def kv_layout(
    config: Mapping[str, JSON],
    *,
    quant_config: Mapping[str, JSON] | None = None,
    dtype: str | None = None,
    speculative_layers: int = 0,
    window_cap: bool = True,
) -> KVLayout | KVBytesUnknown:
    """The KV cache that one sequence of this model has, or why it cannot be told; never a guess, never raises.

    `config` is a parsed config.json (or a GGUF file's metadata), `quant_config` a parsed hf_quant_config.json,
    `dtype` what the worker was told, `speculative_layers` how many draft layers the engine moves too.
    `window_cap=False`: the engine moves windowed layers whole. Formulas: one docstring per builder.
    """
    try:
        built, kv = _build(as_object(config), None if quant_config is None else as_object(quant_config), dtype)
        built = _with_drafts(built, speculative_layers)
        return _sum(built if window_cap else _uncapped(built), kv)
    except Refusal as refusal:
        return refusal.unknown
    except RecursionError:
        return Refusal(Reason.BAD_VALUE, "the config is nested too deeply").unknown


def _build(config: Mapping[str, JSON], quant: Mapping[str, JSON] | None, dtype: str | None) -> tuple[Built, KVDtype]:
    if gguf.is_gguf(config):
        fields = gguf.fields_of(config)
        kv = kv_dtype(dtype, quant, {}, {})
        built = gguf.build(fields, Ask(kv, model_dtype({}, {}), Row(gguf.build)))
        fields.refuse_leftovers()
        return built, kv
    part = language_part(config)
    kv = kv_dtype(dtype, quant, part.values, part.root)
    fields = part.fields()
    built = part.row.build(fields, Ask(kv, model_dtype(part.values, part.root), part.row))
    part.refuse_leftovers(fields)
    return built, kv


def _with_drafts(built: Built, count: int) -> Built:
    if not 0 <= count <= _MOST_SPECULATIVE:
        raise Refusal(
            Reason.BAD_VALUE, f"speculativeLayers is {shown(count)}, not a whole number in 0..{_MOST_SPECULATIVE}"
        )
    if not count:
        return built
    if built.drafts_end and count > len(built.drafts):
        raise Refusal(Reason.BAD_VALUE, f"speculativeLayers is {count}, the config describes {len(built.drafts)}")
    drafts = built.drafts[:count] if built.drafts_end else (built.drafts[-1],) * count
    note = f"{count} speculative layers are counted at this model's own dimensions: a separate draft model may differ"
    return replace(built, layers=built.layers + drafts, warnings=(*built.warnings, note))


def _uncapped(built: Built) -> Built:
    def whole(layer: Layer) -> Layer:
        return replace(layer, window_tokens=None, also=tuple(whole(part) for part in layer.also))

    return replace(built, layers=tuple(whole(layer) for layer in built.layers))


def _sum(built: Built, kv: KVDtype) -> KVLayout:
    parts = [part for layer in built.layers for part in (layer, *layer.also)]
    windows: dict[int, Fraction] = {}
    for part in parts:
        if part.window_tokens is not None:
            windows[part.window_tokens] = windows.get(part.window_tokens, Fraction(0)) + part.bytes_per_token
    if not any(part.bytes_per_token for part in parts):
        raise Refusal(Reason.NO_ATTENTION, "no layer of the config keeps keys and values")
    return KVLayout(
        family=built.family,
        bytes_per_token=_whole(part.bytes_per_token for part in parts if part.window_tokens is None),
        windows=tuple(Window(_whole([each]), tokens) for tokens, each in sorted(windows.items())),
        state_bytes=sum(part.state_bytes for part in parts),
        dtype=kv.name,
        dtype_source=kv.source,
        derivation=_derivation(built, kv, parts),
        layers=len(built.layers),
        full_layers=sum(_grows(layer) for layer in built.layers),
        windowed_layers=sum(_slides(layer) for layer in built.layers),
        state_layers=sum(layer.state_bytes > 0 for layer in built.layers),
        kv_heads=built.kv_heads,
        key_dim=built.key_dim,
        value_dim=built.value_dim,
        is_mla=built.is_mla,
        copied_bytes_per_token=_whole([built.copied_bytes_per_token]),
        encoder_bytes_per_token=_whole([built.encoder_bytes_per_token]),
        warnings=built.warnings + kv.warnings,
    )


def _whole(parts: Iterable[Fraction]) -> int:
    total = sum(parts, Fraction(0))
    return -(-total.numerator // total.denominator)


def _grows(layer: Layer) -> bool:
    return layer.bytes_per_token > 0 and layer.window_tokens is None


def _slides(layer: Layer) -> bool:
    return any(part.bytes_per_token and part.window_tokens is not None for part in (layer, *layer.also))


def _derivation(built: Built, kv: KVDtype, parts: list[Layer]) -> str:
    alike = Counter(replace(part, also=()) for part in parts if part.term)
    lines = [_line(part, count) for part, count in alike.items()]
    return f"{built.family}, {len(built.layers)} layers: {'; '.join(lines)}; {kv.name} ({kv.source})"


def _line(part: Layer, count: int) -> str:
    sums = []
    if part.bytes_per_token:
        bound = "" if part.window_tokens is None else f" up to {part.window_tokens:,} tokens"
        sums.append(f"{_whole([part.bytes_per_token * count]):,} B/token{bound}")
    if part.state_bytes:
        sums.append(f"{part.state_bytes * count:,} B per request")
    return f"{count} × {part.term} = {' and '.join(sums)}"
