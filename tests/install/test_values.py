"""The chart's README tells every value, and the schema knows every value."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.install.values_table import CHART, README, readme, table


def test_the_table_is_that_of_the_values() -> None:
    assert README.read_text(encoding="utf-8") == readme(), "run python -m tests.install.values_table"


def test_every_value_is_explained_or_named_as_kubernetes_names_it() -> None:
    silent = {row.split("`")[1].partition(".")[0] for row in table().splitlines()[2:] if row.endswith("|  |")}

    assert silent <= {
        *("image", "imagePullSecrets", "resources", "nodeSelector", "tolerations", "affinity"),
        *("priorityClassName", "podAnnotations", "networkPolicy", "monitoring", "extraVolumeMounts"),
    }


def test_the_schema_names_each_value_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

    assert named(schema) - {"global"} == set(values)
    for key, part in schema["properties"].items():
        if "properties" in part:
            assert named(part) == set(values[key]), key


def named(schema: dict[str, Any]) -> set[str]:
    assert schema["additionalProperties"] is False
    return set(schema["properties"])
