"""Tests of the terminal program, against a scripted service on 127.0.0.1 and, for the contract, the real one."""
