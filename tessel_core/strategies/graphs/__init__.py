"""Recommendations for operator graphs: placements of one pipeline, its replicas, and orders of its micro-batches."""
