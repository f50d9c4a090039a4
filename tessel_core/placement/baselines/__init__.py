"""Placements without a proof, one file each, to compare with."""

from tessel_core.placement.baselines.balanced_layers import BALANCED_LAYERS
from tessel_core.placement.baselines.by_order import BY_ORDER
from tessel_core.placement.baselines.expert import EXPERT
from tessel_core.placement.baselines.greedy import GREEDY
from tessel_core.placement.baselines.local_search import LOCAL_SEARCH
from tessel_core.placement.baselines.one_device import ONE_DEVICE
from tessel_core.placement.baselines.partitioner import PARTITIONER
from tessel_core.placement.baselines.pipedream import PIPEDREAM

BASELINES = (BY_ORDER, PIPEDREAM, GREEDY, BALANCED_LAYERS, ONE_DEVICE, LOCAL_SEARCH, PARTITIONER, EXPERT)
