// An agent for tests, on the server of @a2a-js/sdk. What it does is the first word of a message:
// echo, slow, chunks, data, mixed, large, direct, ask, fail, reject, auth, hold. GET /log tells what it was sent, POST /release lets
// those that hold go on, and POST /rename changes its card.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(process.env.MODULES + '/');
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const express = require('express');
const { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } = await load('@a2a-js/sdk/server');
const { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } = await load('@a2a-js/sdk/server/express');
const { TaskState, Role } = await load('@a2a-js/sdk');

const base = `http://127.0.0.1:${process.env.PORT}`;
const card = {
  name: 'tester', description: 'Does as it is told.', version: '1.0.0',
  supportedInterfaces: [process.env.REST
    ? { url: `${base}/rest`, protocolBinding: 'HTTP+JSON', protocolVersion: '1.0', tenant: '' }
    : { url: `${base}/a2a`, protocolBinding: 'JSONRPC', protocolVersion: '1.0', tenant: '' }],
  capabilities: { streaming: !process.env.NO_STREAM, pushNotifications: false, extensions: [] },
  defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'],
  skills: [{ id: 'echo', name: 'echo', description: 'Says it again.', tags: [], examples: [], inputModes: [], outputModes: [], securityRequirements: [] }],
  securitySchemes: {}, securityRequirements: [], signatures: [],
};

const log = { messages: [], canceled: [], streams: 0 };
const held = new Map();
const part = ($case, value) => ({ content: { $case, value }, mediaType: '', filename: '', metadata: {} });
const text = (s) => part('text', s);
const textOf = (m) => m.parts.filter((p) => p.content?.$case === 'text').map((p) => p.content.value).join('');

class Tester {
  async execute(ctx, bus) {
    const { taskId, contextId, userMessage: m, task } = ctx;
    log.messages.push({ messageId: m.messageId, taskId: m.taskId && task ? m.taskId : '', contextId, text: textOf(m), parts: m.parts.map((p) => p.content?.$case), key: m.metadata?.['epigraph.run/effect-key'] ?? '' });
    const message = (s) => ({ messageId: crypto.randomUUID(), role: Role.ROLE_AGENT, parts: [text(s)], taskId, contextId, metadata: {}, extensions: [], referenceTaskIds: [] });
    const status = (state, s) => bus.publish(AgentEvent.statusUpdate({ taskId, contextId, metadata: {},
      status: { state, message: s ? message(s) : undefined, timestamp: new Date().toISOString() } }));
    const artifact = (id, parts, append = false) => bus.publish(AgentEvent.artifactUpdate({ taskId, contextId, append, lastChunk: false, metadata: {},
      artifact: { artifactId: id, name: '', description: '', parts, metadata: {}, extensions: [] } }));
    const [word, ...rest] = textOf(m).split(' ');
    if (word === 'direct') {
      bus.publish(AgentEvent.message(message('at once')));
      return;
    }
    if (task) {
      status(TaskState.TASK_STATE_WORKING);
      artifact('answer', [text(`you said ${textOf(m)}`)]);
      status(TaskState.TASK_STATE_COMPLETED);
      return;
    }
    if (word === 'slow') await new Promise((resolve) => setTimeout(resolve, Number(rest.shift())));
    bus.publish(AgentEvent.task({ id: taskId, contextId, artifacts: [], history: [m], metadata: {},
      status: { state: TaskState.TASK_STATE_SUBMITTED, message: undefined, timestamp: new Date().toISOString() } }));
    status(TaskState.TASK_STATE_WORKING, 'on it');
    switch (word) {
      case 'ask': return status(TaskState.TASK_STATE_INPUT_REQUIRED, 'Which city?');
      case 'fail': return status(TaskState.TASK_STATE_FAILED, 'the printer is on fire');
      case 'reject': return status(TaskState.TASK_STATE_REJECTED, 'not my job');
      case 'auth': return status(TaskState.TASK_STATE_AUTH_REQUIRED, 'log in first');
      case 'data': artifact('d', [part('data', { n: 7 })]); break;
      case 'mixed': artifact('d', [text('see '), part('data', { n: 7 })]); artifact('e', [text('there')]); break;
      case 'large': artifact('l', [text('x'.repeat(Number(rest[0])))]); break;
      case 'hold': {
        const canceled = await new Promise((resolve) => held.set(taskId, resolve));
        if (canceled) return status(TaskState.TASK_STATE_CANCELED);
        artifact('h', [text('released')]);
        break;
      }
      case 'chunks': {
        await new Promise((resolve) => held.set(taskId, resolve));
        artifact('c', [text('one ')]);
        artifact('c', [text('two ')], true);
        artifact('c', [text('three')], true);
        break;
      }
      default: artifact('echo', [text(rest.join(' '))]);
    }
    status(TaskState.TASK_STATE_COMPLETED);
  }

  async cancelTask(taskId, bus) {
    log.canceled.push(taskId);
    const release = held.get(taskId);
    held.delete(taskId);
    if (release) release(true);
    else bus.publish(AgentEvent.statusUpdate({ taskId, contextId: '', metadata: {}, status: { state: TaskState.TASK_STATE_CANCELED, message: undefined, timestamp: new Date().toISOString() } }));
  }
}

const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Tester());
const app = express();
app.get('/log', (_, res) => res.json({ ...log, held: held.size }));
app.post('/release', (_, res) => setTimeout(() => { // whoever has just subscribed listens by then
  for (const go of held.values()) go(false);
  held.clear();
  res.end();
}, 50));
app.post('/rename', (_, res) => { card.description = 'Does it differently.'; res.end(); });
app.use((req, res, next) => (process.env.TOKEN && req.headers.authorization !== `Bearer ${process.env.TOKEN}` ? res.status(401).end() : next()));
app.use((req, _, next) => { if (req.headers.accept === 'text/event-stream') log.streams++; next(); });
app.get('/.well-known/agent-card.json', (_, res) => res.json(card));
app.use('/a2a', jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
app.use('/rest', restHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
app.listen(Number(process.env.PORT), '127.0.0.1');
