"""Evidences of many models or data sets in one call."""
