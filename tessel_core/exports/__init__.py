"""Results as files that people take away to other programs."""

from tessel_core.exports.csv import schedule_csv

__all__ = ["schedule_csv"]
