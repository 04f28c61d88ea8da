"""The load of a routing A/B: runs in the benchmark's pod beside two shadow frontends."""
