"""The inner loops of the searches over orders, compiled by numba: the only room that knows it.

Kernels take a plan as flat arrays (`Tables`) and release the interpreter's lock, so that threads run side by side.
Each call does a bounded number of steps, because nothing can interrupt it.
"""
