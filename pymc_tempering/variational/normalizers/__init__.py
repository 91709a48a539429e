"""Tempered normalizers of likelihood terms, and their prior average C(T)."""
