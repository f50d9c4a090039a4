"""Placements without a search, one file each, to compare with."""

from tessel_core.placement.baselines.by_order import BY_ORDER
from tessel_core.placement.baselines.one_device import ONE_DEVICE

BASELINES = (BY_ORDER, ONE_DEVICE)
