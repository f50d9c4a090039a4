"""Gallery of samples in groups, each with a small picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache

from pages.shared.widgets import choose, component, trigger_value
from tessel_core.charts.thumbnail import graph_thumbnail, plan_thumbnail
from tessel_core.samples import Sample, list_graphs, list_samples, load_graph, load_sample
from tessel_core.scheduling import one_micro_batch

_HEIGHT = 76
_GALLERY = component(__file__, "gallery", '<div class="gallery" role="radiogroup"></div>')


def choose_plan(first: str) -> str:
    """Show the sample plans. Return the name of the chosen one."""
    return _choose("Sample", {each.name: each for each in list_samples()}, first, _of_plan)


def choose_graph(first: str) -> str:
    """Show the sample networks. Return the name of the chosen one."""
    return _choose("Sample network", {each.name: each for each in list_graphs()}, first, _of_graph)


@lru_cache(maxsize=256)
def _of_plan(name: str) -> str:
    plan = load_sample(name)
    return plan_thumbnail(plan, one_micro_batch(plan))


@lru_cache(maxsize=256)
def _of_graph(name: str) -> str:
    return graph_thumbnail(load_graph(name))


def _choose(label: str, samples: Mapping[str, Sample], first: str, picture: Callable[[str], str]) -> str:
    groups = {sample.family: sample.family for sample in samples.values()}
    key = f"gallery-{label}"
    group = choose(f"{label}, group", groups, samples[first].family, key=f"{key}-group", label_visibility="collapsed")
    inside = {name: sample for name, sample in samples.items() if sample.family == group}
    chosen = trigger_value(key, "chosen")
    if not isinstance(chosen, str) or chosen not in inside:
        chosen = first if first in inside else next(iter(inside))
    shown = [
        (name, each.title, picture(name), f"{each.description} {each.provenance}") for name, each in inside.items()
    ]
    data = {"label": label, "group": group, "chosen": chosen, "samples": shown}
    # Bytes, because Streamlit searches other data for tables, and loads pandas for that.
    _GALLERY(key=key, data=json.dumps(data).encode(), height=_HEIGHT, on_chosen_change=_nothing)
    return chosen


def _nothing() -> None:
    """Do nothing. Streamlit reports only values that have a callback."""
