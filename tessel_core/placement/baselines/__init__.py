"""Placements without a proof, one file each, to compare with."""
