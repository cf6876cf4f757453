"""Edges, triangles, motifs and trusses of a graph that changes, by the algebra and by kernels."""
