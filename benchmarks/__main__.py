"""`python -m benchmarks`: all of them, one after the other; fails when one is beyond its limit."""

from __future__ import annotations

import sys

from benchmarks import (
    decide_scaling,
    estimate_against_nixl,
    estimate_against_truth,
    operator_at_scale,
    operator_load,
    planning,
    probe_cost,
    rounds,
    routing_aa,
    routing_ab_power,
    shadow_overhead,
    sweep_at_scale,
    sweep_in_cluster,
    sweep_overhead,
    switching_detection,
    switching_requests,
)

if __name__ == "__main__":
    beyond = [
        name
        for name, run in (
            ("decide_scaling", decide_scaling.main),
            ("planning", planning.main),
            ("sweep_overhead", sweep_overhead.main),
            ("rounds", rounds.main),
            ("estimate_against_truth", estimate_against_truth.main),
            ("estimate_against_nixl", estimate_against_nixl.main),
            ("probe_cost", probe_cost.main),
            ("operator_load", operator_load.main),
            ("operator_at_scale", operator_at_scale.main),
            ("sweep_at_scale", sweep_at_scale.main),
            ("sweep_in_cluster", sweep_in_cluster.main),
            ("routing_ab_power", routing_ab_power.main),
            ("routing_aa", routing_aa.main),
            ("shadow_overhead", shadow_overhead.main),
            ("switching_detection", switching_detection.main),
            ("switching_requests", switching_requests.main),
        )
        if not run()
    ]
    sys.exit(f"beyond the limit: {', '.join(beyond)}" if beyond else 0)
