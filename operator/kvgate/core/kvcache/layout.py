"""What one sequence's KV cache weighs, per token and in all, and how often it crosses the wire."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvgate.core.kvcache.words import REMEDY, KVBytesUnknown, Reason


class Family(StrEnum):
    MHA = "MHA"
    GQA = "GQA"
    MQA = "MQA"
    MLA = "MLA"
    MLA_DSA = "MLA+DSA indexer"
    DSV4 = "DSV4 compressed"
    HYBRID_SWA = "hybrid SWA"
    ALL_SWA = "all SWA"
    ASYMMETRIC_SWA = "hybrid SWA (asymmetric K/V)"
    CHUNKED = "chunked local (Llama 4)"
    GDN = "GDN hybrid"
    KDA_MLA = "KDA+MLA"
    MAMBA2 = "Mamba2 hybrid"
    MAMBA1 = "Mamba1 hybrid"
    SHORT_CONV = "short-convolution hybrid"
    NAS = "GQA per-block (NAS)"
    CROSS = "GQA + cross-attention"
    SPARSE_GQA = "GQA + sparse indexer"
    ENCODER_DECODER = "encoder-decoder"
    DECLARED = "declared"


@dataclass(frozen=True)
class Window:
    """Layers that keep no more than the last `tokens` tokens: `bytes_per_token` for each of these."""

    bytes_per_token: int
    tokens: int


@dataclass(frozen=True)
class KVLayout:
    """The KV cache of one sequence, in whole bytes (fractions rounded up), before TP replication.

    `bytes_per_token` grows without bound; `windows` stop growing at their tokens; `state_bytes` moves once
    per request whatever its length. `encoder_bytes_per_token` is paid per vision or audio token on top and is
    in none of the sums. `copied_bytes_per_token` is the part of `bytes_per_token` that no rank shares out:
    each holds it whole. `kv_heads` is the smallest KV head count of any attending layer, None when unknown.
    """

    family: Family
    bytes_per_token: int
    windows: tuple[Window, ...]
    state_bytes: int
    dtype: str
    dtype_source: str
    derivation: str
    layers: int = 0
    full_layers: int = 0
    windowed_layers: int = 0
    state_layers: int = 0
    kv_heads: int | None = None
    key_dim: int | None = None
    value_dim: int | None = None
    is_mla: bool = False
    copied_bytes_per_token: int = 0
    encoder_bytes_per_token: int = 0
    warnings: tuple[str, ...] = ()

    def bytes_for(self, tokens: int, block_tokens: int) -> int:
        """Bytes of a sequence of `tokens` tokens: perToken·ceil(T/block)·block + windowed part + state.

        A window holds at most its own tokens. A block below 1 token counts as 1, tokens below 0 as 0.
        """
        moved = _whole_blocks(tokens, block_tokens)
        windowed = sum(window.bytes_per_token * min(moved, window.tokens) for window in self.windows)
        return self.bytes_per_token * moved + windowed + self.state_bytes

    def replication(self, decode_tensor_parallel: int) -> float:
        """How many times the bytes cross the wire for a decode engine of `decode_tensor_parallel` ranks.

        MLA and other bytes that ranks do not share out: every rank pulls a whole copy. Else each KV head is
        pulled by (ranks / kv_heads) ranks. At least 1.
        """
        ranks = max(1, decode_tensor_parallel)
        if self.is_mla:
            return float(ranks)
        shared = max(1.0, ranks / self.kv_heads) if self.kv_heads else 1.0
        return shared + (ranks - shared) * self.copied_bytes_per_token / max(1, self.bytes_per_token)

    def descriptor_bytes(self, block_tokens: int, ranks: int) -> int | None:
        """Bytes of one transfer between two ranks: one layer's keys, or its values, of one block; None where the layers
        are not known.

        perToken·block / layers, halved but for MLA's one latent, over the ranks that share the heads out: the larger of
        both engines' tensor parallelism, and no more than there are heads.
        """
        kept = self.bytes_per_token or sum(window.bytes_per_token for window in self.windows)
        layers = self.full_layers if self.bytes_per_token else self.windowed_layers
        if not layers or not kept:
            return None
        shares = 1 if self.is_mla else 2 * max(1, min(ranks, self.kv_heads or ranks))
        return max(1, kept * max(1, block_tokens) // (layers * shares))


def _whole_blocks(tokens: int, block_tokens: int) -> int:
    block = max(1, block_tokens)
    return -(-max(0, tokens) // block) * block


_DECLARED_WARNING = (
    "declared bytes per token are taken as what crosses the wire: heads are unknown, so copies for tensor "
    "parallelism, windows and state are not added"
)


def declared_layout(bytes_per_token: int) -> KVLayout | KVBytesUnknown:
    """The layout of a number that the pool's author typed: bytes per token as they cross the wire."""
    if isinstance(bytes_per_token, bool) or not isinstance(bytes_per_token, int) or bytes_per_token <= 0:
        return KVBytesUnknown(
            Reason.BAD_VALUE, f"KV bytes per token unknown: the declared number is not above 0 B; {REMEDY}"
        )
    return KVLayout(
        family=Family.DECLARED,
        bytes_per_token=bytes_per_token,
        windows=(),
        state_bytes=0,
        dtype="",
        dtype_source="spec.model.kvCache.bytesPerToken",
        derivation=f"{bytes_per_token:,} B/token as declared in spec.model.kvCache.bytesPerToken",
        warnings=(_DECLARED_WARNING,),
    )
