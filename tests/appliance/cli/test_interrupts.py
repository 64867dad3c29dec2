"""Ctrl-C where a command goes on after it: it ends what it was meant for, once, and nothing else."""

import os
import signal

import pytest

from appliance.cli.interrupts import Interrupts


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_block_that_listens_is_ended_once() -> None:
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.heard():
            try:
                press()
            except KeyboardInterrupt:
                press()  # while the first is being answered
                raise
        interrupts.forget()
        with interrupts.heard():
            pass


def test_what_comes_before_a_block_ends_it_unless_forgotten() -> None:
    with Interrupts() as interrupts:
        press()
        with pytest.raises(KeyboardInterrupt), interrupts.heard():
            pytest.fail("the block was entered")
        press()
        interrupts.forget()
        with interrupts.heard():
            pass


def test_the_handler_of_before_is_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
