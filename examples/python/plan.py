#!/usr/bin/env python3
"""Runs a plan over REST with Python's standard library alone: compile, start, follow, answer, read the result.

    epigraph dev &
    python3 examples/python/plan.py

EPIGRAPH_URL (default http://127.0.0.1:8080) and EPIGRAPH_API_KEY say where and as whom.
"""
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid

URL = os.environ.get('EPIGRAPH_URL', 'http://127.0.0.1:8080')
KEY = os.environ.get('EPIGRAPH_API_KEY')

PLAN = 'Research -> Draft, Check\nDraft, Check -> Publish'


class Refused(Exception):
    """An error of the API: reason is what to switch on, hint says what to do."""

    def __init__(self, status, body):
        self.status, self.reason, self.hint = status, body.get('reason'), body.get('hint')
        super().__init__(f"{self.reason}: {body.get('message')}" + (f' ({self.hint})' if self.hint else ''))


def call(method, path, body=None, headers=None, timeout=60):
    headers = {'Content-Type': 'application/json', **(headers or {})}
    if KEY:
        headers['Authorization'] = 'Bearer ' + KEY
    data = None if body is None else json.dumps(body).encode()
    try:
        return urllib.request.urlopen(urllib.request.Request(URL + path, data, headers, method=method), timeout=timeout)
    except urllib.error.HTTPError as e:
        raise Refused(e.code, json.load(e)) from None


def ask(method, path, body=None):
    with call(method, path, body) as answer:
        return json.load(answer)


def events(run):
    """Yields the events of a run until it has ended. After a break it goes on behind the last one that it saw."""
    last = None
    while True:
        try:
            with call('GET', f'/v1/runs/{run}/events', headers={'Last-Event-ID': last} if last else {}) as stream:
                for line in stream:
                    name, _, value = line.decode().rstrip('\r\n').partition(': ')
                    if name == 'id':
                        last = value
                    elif name == 'data':
                        event = json.loads(value)
                        yield event
                        if 'runEnded' in event:
                            return
        except OSError as broken:
            print('the stream broke, going on:', broken, file=sys.stderr)
            time.sleep(1)


def main():
    try:  # A plan with faults is refused with all of them, each with its place and a hint.
        ask('POST', '/v1/plans:compile', {'text': 'A -> B\nB -> A', 'defaultActor': 'template'})
    except Refused as refused:
        print('refused', refused.reason)

    graph = ask('POST', '/v1/plans:compile', {
        'text': PLAN, 'defaultActor': 'template', 'named': {'text': 'did {{ node }}'}})['graph']
    # A person is asked before the last step.
    graph['nodes'].append({'id': 'ok', 'actor': 'human', 'named': {'prompt': 'Publish it?'}})
    graph['edges'] += [{'from': 'Draft', 'to': 'ok'}, {'from': 'Check', 'to': 'ok'}, {'from': 'ok', 'to': 'Publish'}]

    # The same requestId with the same body starts one run, however often it is sent.
    run = ask('POST', '/v1/runs', {'graph': graph, 'requestId': str(uuid.uuid4())})['id']
    for event in events(run):
        if values := event.get('attemptEnded', {}).get('values'):
            print(event['attemptEnded']['visit']['nodeId'], values)
        if interrupt := event.get('interruptOpened'):
            print('asked:', interrupt['prompt'])
            ask('POST', f"/v1/interrupts/{interrupt['interruptId']}:answer", {'answer': 'yes'})
    done = ask('GET', f'/v1/runs/{run}')
    print(done['state'], json.dumps(done.get('result')))


if __name__ == '__main__':
    try:
        main()
    except Refused as refused:
        sys.exit(f'refused: {refused}')
    except OSError as away:
        sys.exit(f'no server answers at {URL} ({away}): start one with `epigraph dev`, or set EPIGRAPH_URL')
