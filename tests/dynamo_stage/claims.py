"""A mock worker whose model card says what it is told to say of KV events, whatever the worker does.

It plays a worker that advertises an event source and never publishes, and one that publishes unannounced. It runs in
Dynamo's own environment; KVGATE_TEST_CLAIM is `on` or `off`.
"""

import importlib
import os

main = importlib.import_module("dynamo.mocker.main")
configure = main.build_runtime_config


def claiming(engine: object) -> object:
    block_size, card = configure(engine)
    card.kv_event_publishing_enabled = os.environ["KVGATE_TEST_CLAIM"] == "on"
    if card.kv_event_publishing_enabled:
        card.enable_local_indexer = True
    return block_size, card


setattr(main, "build_runtime_config", claiming)  # noqa: B010
main.main()
