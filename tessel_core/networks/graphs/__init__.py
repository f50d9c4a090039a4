"""Networks as operator graphs: builders, the backward that a forward implies, layers as single operators."""
