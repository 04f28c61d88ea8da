"""A mock worker whose model card says what it is told to say of KV events, whatever the worker does.

It plays a worker that claims to publish and registers no source (`on`), one that publishes unannounced (`off`), and one
whose relay is registered as vLLM's is, on a ZMQ endpoint where its engine never says a word (`silent`). It runs in
Dynamo's own environment; KVGATE_TEST_CLAIM is the word, KVGATE_TEST_ENGINE_EVENTS the relay's ZMQ endpoint.
"""

import importlib
import os

main = importlib.import_module("dynamo.mocker.main")
llm = importlib.import_module("dynamo.llm")
configure, run = main.build_runtime_config, main.run_input
claim = os.environ["KVGATE_TEST_CLAIM"]
relays: list[object] = []
block_sizes: list[int] = []


def claiming(engine: object) -> object:
    block_size, card = configure(engine)
    card.kv_event_publishing_enabled = claim != "off"
    if card.kv_event_publishing_enabled:
        card.enable_local_indexer = True
    block_sizes.append(block_size)
    return block_size, card


def relaying(runtime: object, path: str, engine: object) -> object:
    if claim == "silent":
        endpoint = runtime.endpoint(path)  # type: ignore[attr-defined]
        heard = os.environ["KVGATE_TEST_ENGINE_EVENTS"]
        relay = llm.KvEventPublisher(
            endpoint, kv_block_size=block_sizes[-1], enable_local_indexer=True, zmq_endpoint=heard, zmq_topic=""
        )
        relays.append(relay)
    return run(runtime, path, engine)


setattr(main, "build_runtime_config", claiming)  # noqa: B010
setattr(main, "run_input", relaying)  # noqa: B010
main.main()
