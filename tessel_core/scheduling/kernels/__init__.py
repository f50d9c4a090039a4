"""The inner loops of the schedule search, compiled by numba.

Kernels take a plan as flat arrays (`Tables`). They release the interpreter's lock, so that threads run in parallel.
Each call does a bounded number of steps, because nothing can interrupt it.
"""
