"""Tests of engine/relayout."""
