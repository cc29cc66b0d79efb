#!/usr/bin/env python3
"""Tests of remo run in a terminal: rank 0 reads from it, and Ctrl-C reaches every node.

test_run_terminal.py REMO
"""
import os
import pty
import re
import select
import signal
import sys
import time

WAIT_S = 100  # as tests/support/patience.h


class Session:
    """A command whose standard streams are a new terminal."""

    def __init__(self, *command):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the parent of the test may ignore it
            os.execvp(command[0], command)
        self.output = b''

    def read_some(self):
        if not select.select([self.terminal], [], [], 1)[0]:
            return True
        try:
            data = os.read(self.terminal, 4096)
        except OSError:  # the other side is closed
            data = b''
        self.output += data
        return data != b''

    def await_text(self, pattern):
        deadline = time.monotonic() + WAIT_S
        while not re.search(pattern, self.output):
            if not self.read_some() or time.monotonic() > deadline:
                sys.exit(f'FAILED: no {pattern} in {self.output}')

    def write(self, data):
        os.write(self.terminal, data)

    def status(self):
        deadline = time.monotonic() + WAIT_S
        while self.read_some():
            if time.monotonic() > deadline:
                sys.exit(f'FAILED: the command does not end: {self.output}')
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def interrupt(remo):
    job = Session(remo, 'run', '-n', '2', '--', 'sh', '-c',
                  'trap "echo caught $REMO_RANK; exit 4" INT; echo ready; while :; do sleep 0.1; done')
    job.await_text(rb'ready[^$]*ready')
    job.write(b'\x03')
    status = job.status()
    if status != 4 or b'caught 0' not in job.output or b'caught 1' not in job.output:
        sys.exit(f'FAILED: status {status}, {job.output}')


def read(remo):
    job = Session(remo, 'run', '-n', '2', '--', 'sh', '-c',
                  '[ "$REMO_RANK" = 0 ] || exit 0; echo ready; read -r line; echo "got $line"')
    job.await_text(rb'ready')
    job.write(b'hello\n')
    status = job.status()
    if status != 0 or b'got hello' not in job.output:
        sys.exit(f'FAILED: status {status}, {job.output}')


def background(remo):
    """A node in the background writes to the terminal, and fails to read from it, without being stopped."""
    job = Session('sh', '-c', 'stty tostop; exec "$@"', 'sh', remo, 'run', '-n', '2', '--', 'sh', '-c',
                  '[ "$REMO_RANK" = 1 ] || exit 0; echo writes; head -n 1 </dev/tty || echo "reads nothing"')
    status = job.status()
    if status != 0 or b'writes' not in job.output or b'reads nothing' not in job.output:
        sys.exit(f'FAILED: status {status}, {job.output}')


if __name__ == '__main__':
    interrupt(sys.argv[1])
    read(sys.argv[1])
    background(sys.argv[1])
