"""Published schedules, one file each, run as their published order."""

from tessel_core.scheduling.baselines.gpipe import GPIPE
from tessel_core.scheduling.baselines.one_f_one_b import ONE_F_ONE_B
from tessel_core.scheduling.baselines.one_f_one_b_plus import ONE_F_ONE_B_PLUS
from tessel_core.scheduling.baselines.sequential import SEQUENTIAL

BASELINES = (ONE_F_ONE_B, ONE_F_ONE_B_PLUS, GPIPE, SEQUENTIAL)
"""In the order in which people are offered them; the first that applies to a plan is what others are compared with."""
