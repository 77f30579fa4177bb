// Runs a plan over REST with Node.js 18 or newer and no package: compile, start, follow, answer, read the result.
//
//     epigraph dev &
//     node examples/node/plan.mjs
//
// EPIGRAPH_URL (default http://127.0.0.1:8080) and EPIGRAPH_API_KEY say where and as whom.
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';

const url = process.env.EPIGRAPH_URL ?? 'http://127.0.0.1:8080';
const key = process.env.EPIGRAPH_API_KEY;

// An error of the API: reason is what to switch on, hint says what to do.
class Refused extends Error {
  constructor(status, body) {
    super(`${body.reason}: ${body.message}${body.hint ? ` (${body.hint})` : ''}`);
    Object.assign(this, { status, reason: body.reason, hint: body.hint });
  }
}

async function call(method, path, body, headers = {}) {
  const response = await fetch(url + path, {
    method,
    headers: { 'Content-Type': 'application/json', ...(key && { Authorization: `Bearer ${key}` }), ...headers },
    body: body && JSON.stringify(body),
  });
  if (!response.ok) throw new Refused(response.status, await response.json());
  return response;
}

// What nobody handles ends the program with one line.
process.on('uncaughtException', (e) => {
  console.error(e instanceof Refused ? `refused: ${e.message}`
    : e instanceof TypeError && e.cause ? `no server answers at ${url} (${e.cause.code ?? e.cause.message}): start one with \`epigraph dev\`, or set EPIGRAPH_URL` : e);
  process.exit(1);
});

const ask = async (...args) => (await call(...args)).json();

// Yields the events of a run until it has ended. After a break it goes on behind the last one that it saw.
async function* events(run) {
  for (let last; ; await pause(1000)) {
    try {
      const { body } = await call('GET', `/v1/runs/${run}/events`, undefined, last && { 'Last-Event-ID': last });
      let rest = '';
      for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
        const lines = (rest + chunk).split('\n');
        rest = lines.pop();
        for (const line of lines) {
          if (line.startsWith('id: ')) last = line.slice(4);
          if (!line.startsWith('data: ')) continue;
          const event = JSON.parse(line.slice(6));
          yield event;
          if (event.runEnded) return;
        }
      }
    } catch (broken) {
      if (broken instanceof Refused) throw broken;
      console.error('the stream broke, going on:', broken.message);
    }
  }
}

// A plan with faults is refused with all of them, each with its place and a hint.
await ask('POST', '/v1/plans:compile', { text: 'A -> B\nB -> A', defaultActor: 'template' })
  .catch((e) => {
    if (!(e instanceof Refused)) throw e;
    console.log('refused', e.reason);
  });

const { graph } = await ask('POST', '/v1/plans:compile', {
  text: 'Research -> Draft, Check\nDraft, Check -> Publish', defaultActor: 'template', named: { text: 'did {{ node }}' },
});
// A person is asked before the last step.
graph.nodes.push({ id: 'ok', actor: 'human', named: { prompt: 'Publish it?' } });
graph.edges.push({ from: 'Draft', to: 'ok' }, { from: 'Check', to: 'ok' }, { from: 'ok', to: 'Publish' });

// The same requestId with the same body starts one run, however often it is sent.
const { id } = await ask('POST', '/v1/runs', { graph, requestId: randomUUID() });
for await (const event of events(id)) {
  if (event.attemptEnded?.values?.length) console.log(event.attemptEnded.visit.nodeId, event.attemptEnded.values);
  if (event.interruptOpened) {
    console.log('asked:', event.interruptOpened.prompt);
    await ask('POST', `/v1/interrupts/${event.interruptOpened.interruptId}:answer`, { answer: 'yes' });
  }
}
const done = await ask('GET', `/v1/runs/${id}`);
console.log(done.state, JSON.stringify(done.result));
