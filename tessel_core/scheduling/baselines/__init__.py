"""Published schedules, one file each, run as their published order."""

from tessel_core.scheduling.baselines.chimera import CHIMERA
from tessel_core.scheduling.baselines.dualpipe import DUALPIPE
from tessel_core.scheduling.baselines.gpipe import GPIPE
from tessel_core.scheduling.baselines.interleaved import INTERLEAVED
from tessel_core.scheduling.baselines.one_f_one_b import ONE_F_ONE_B
from tessel_core.scheduling.baselines.one_f_one_b_plus import ONE_F_ONE_B_PLUS
from tessel_core.scheduling.baselines.pipedream import PIPEDREAM
from tessel_core.scheduling.baselines.sequential import SEQUENTIAL
from tessel_core.scheduling.baselines.v_half import V_HALF
from tessel_core.scheduling.baselines.v_min import V_MIN
from tessel_core.scheduling.baselines.zb_h1 import ZB_H1
from tessel_core.scheduling.baselines.zb_h2 import ZB_H2
from tessel_core.scheduling.baselines.zb_v import ZB_V

BASELINES = (
    ONE_F_ONE_B,
    ONE_F_ONE_B_PLUS,
    INTERLEAVED,
    CHIMERA,
    ZB_H1,
    ZB_H2,
    ZB_V,
    V_HALF,
    V_MIN,
    DUALPIPE,
    GPIPE,
    PIPEDREAM,
    SEQUENTIAL,
)
"""In the order in which people are offered them; the first that applies to a plan is what others are compared with."""
