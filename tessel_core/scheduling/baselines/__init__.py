"""Published schedules, one file each, run as their published order."""

from __future__ import annotations

from tessel_core.registry import Registry
from tessel_core.scheduling.problem import Scheduler

BASELINES = Registry[Scheduler](
    "published schedule",
    __name__,
    {
        "1f1b": "one_f_one_b:ONE_F_ONE_B",
        "1f1b+": "one_f_one_b_plus:ONE_F_ONE_B_PLUS",
        "interleaved": "interleaved:INTERLEAVED",
        "chimera": "chimera:CHIMERA",
        "zb-h1": "zb_h1:ZB_H1",
        "zb-h2": "zb_h2:ZB_H2",
        "zb-v": "zb_v:ZB_V",
        "v-half": "v_half:V_HALF",
        "v-min": "v_min:V_MIN",
        "dualpipe": "dualpipe:DUALPIPE",
        "gpipe": "gpipe:GPIPE",
        "pipedream": "pipedream:PIPEDREAM",
        "sequential": "sequential:SEQUENTIAL",
    },
)
"""The first that applies to a plan is what others are compared with."""
