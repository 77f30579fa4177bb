#!/usr/bin/env python3
"""An Epigraph worker over plain gRPC: it serves the actor py/word-count.

EPIGRAPH_ADDR (default 127.0.0.1:7400) and EPIGRAPH_API_KEY say where and as whom; README.md says how the stubs are made.
"""
import json
import os
import queue
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'stubs'))

from epigraph.executor.v1 import outcome_pb2, worker_pb2, worker_pb2_grpc
from epigraph.graph.v1 import graph_pb2, payload_pb2

ADDR = os.environ.get('EPIGRAPH_ADDR', '127.0.0.1:7400')
KEY = os.environ.get('EPIGRAPH_API_KEY')
SLOTS = 8


class PermanentError(Exception):
    """A failure that another attempt cannot mend."""


def word_count(named):
    if not isinstance(named.get('text'), str):
        raise PermanentError('text must be a string')
    return {'words': len(named['text'].split())}


ACTORS = {'py/word-count': (graph_pb2.EFFECT_PURE, 'Counts the words of a text.', word_count)}


def payload(value):
    return payload_pb2.Payload(json=json.dumps(value).encode())


class Stream:
    """One connection to an executor. What is said goes through a queue, since gRPC reads requests from one iterator."""

    def __init__(self, stub, pool):
        self.pool, self.says, self.sent = pool, queue.SimpleQueue(), {}
        self.began = time.monotonic()
        self.lease = float('inf')  # until when the attempts are surely ours, by the monotonic clock
        self.ended = threading.Event()
        hello = worker_pb2.WorkerHello(slots=SLOTS, user_agent='worker-python/0.1')
        for name, (effect, description, _) in ACTORS.items():
            hello.actors.add(name=name, effect=effect, description=description, version='1')
        self.says.put(worker_pb2.WorkRequest(hello=hello))
        metadata = [('authorization', 'Bearer ' + KEY)] if KEY else []
        self.call = stub.Work(iter(self.says.get, None), metadata=metadata)

    def run(self):
        """Takes attempts until the stream ends."""
        try:
            for m in self.call:
                kind = m.WhichOneof('message')
                if kind == 'welcome':
                    interval, timeout = (d.ToNanoseconds() / 1e9 for d in (m.welcome.heartbeat_interval, m.welcome.heartbeat_timeout))
                    self.lease = self.began + timeout
                    threading.Thread(target=self.beat, args=(interval, timeout), daemon=True).start()
                    print(f'connected to {m.welcome.executor_id} as {m.welcome.worker_id}', flush=True)
                elif kind == 'heartbeat':  # the executor heard one that was sent then, so it waits from no earlier on
                    self.lease = max(self.lease, self.sent.pop(m.heartbeat.number, 0))
                elif kind == 'attempt':
                    self.pool.submit(self.perform, m.attempt)
                elif kind == 'drain':  # the executor leaves: answer what there is, then connect again
                    self.drain()
                elif kind == 'refused':
                    print(f'refused: {m.refused.reason} {m.refused.message}', flush=True)
        except grpc.RpcError as e:
            print(f'stream: {e.code().name} {e.details()}', flush=True)
        finally:
            self.ended.set()
            self.says.put(None)

    def beat(self, interval, timeout):
        number = 0
        while not self.ended.wait(interval):
            if time.monotonic() > self.lease:  # nobody heard us: the attempts may be somebody else's by now
                self.call.cancel()
                return
            number += 1
            self.sent[number] = time.monotonic() + timeout
            self.says.put(worker_pb2.WorkRequest(heartbeat=worker_pb2.WorkerHeartbeat(number=number)))

    def perform(self, attempt):
        """Makes the call and answers it; exactly one answer for each attempt."""
        if time.monotonic() > self.lease:
            return  # it ends as lost, with the stream
        try:
            named = {k: json.loads(v.json) for k, v in attempt.named.items()}
            value = ACTORS[attempt.actor][2](named)
            answer = worker_pb2.WorkRequest(outcome=worker_pb2.AttemptOutcome(token=attempt.token, outcome=outcome_pb2.Outcome(values=[payload(value)])))
        except PermanentError as e:
            error = outcome_pb2.AttemptError(type='ERROR_TYPE_PERMANENT', reason='ARGUMENTS_INVALID', message=str(e))
            answer = worker_pb2.WorkRequest(error=worker_pb2.AttemptFailure(token=attempt.token, error=error))
        except Exception as e:
            error = outcome_pb2.AttemptError(type='ERROR_TYPE_RETRYABLE', reason='ACTOR_ERROR', message=repr(e))
            answer = worker_pb2.WorkRequest(error=worker_pb2.AttemptFailure(token=attempt.token, error=error))
        self.says.put(answer)

    def drain(self):
        self.says.put(worker_pb2.WorkRequest(drain=worker_pb2.WorkerDrain()))


def main():
    stop, current = threading.Event(), []

    def leave(*_):
        stop.set()
        for stream in current:
            stream.drain()

    signal.signal(signal.SIGINT, leave)
    signal.signal(signal.SIGTERM, leave)
    stub = worker_pb2_grpc.WorkerServiceStub(grpc.insecure_channel(ADDR))
    with ThreadPoolExecutor(SLOTS) as pool:
        while not stop.is_set():
            current[:] = [Stream(stub, pool)]
            current[0].run()
            stop.wait(0.5)


if __name__ == '__main__':
    main()
