"""The layered drawing of an operator graph."""
