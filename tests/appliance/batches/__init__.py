"""Tests of appliance.batches."""
