"""The judgement of a routing A/B: KV against round-robin, on the same arrivals, in paired blocks."""
