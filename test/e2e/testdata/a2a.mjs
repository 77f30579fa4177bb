// A session with an agent of Epigraph over A2A, by the client of the protocol's JavaScript SDK. It prints a
// transcript. Arguments: the folder of npm packages, the address of the server, an API key, and what is done: ask, or
// answer what was asked.
import { createRequire } from 'node:module'

const [modules, base, key, part] = process.argv.slice(2)
const { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory } = createRequire(`${modules}/x.js`)('@a2a-js/sdk/client')

// Ids and times differ from session to session.
const seen = new Map()
function plain(text) {
  return text
    .replaceAll(base, 'URL')
    .replace(/\b(run|thr|int|vis)_[0-9a-z]{26}\b/g, (id, kind) => {
      if (!seen.has(id)) seen.set(id, `${kind}_${[...seen.keys()].filter((k) => k.startsWith(kind)).length + 1}`)
      return seen.get(id)
    })
    .replace(/\d{4}-\d\d-\d\dT[0-9:.]+Z/g, 'TIME')
}
const say = (what, value) => console.log(`${what}\n  ${plain(JSON.stringify(value))}`)

const authorized = (url, init = {}) => fetch(url, { ...init, headers: { ...init.headers, Authorization: `Bearer ${key}` } })
const factory = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
  transports: [new JsonRpcTransportFactory({ fetchImpl: authorized })],
  cardResolver: new DefaultAgentCardResolver({ fetchImpl: authorized }),
}))
const client = await factory.createFromUrl(base, '/a2a/workflow/asker/.well-known/agent-card.json')
let number = 0
const message = (text, task) => ({
  message: {
    messageId: `message-${++number}`, role: 1, contextId: task?.contextId ?? '', taskId: task?.id ?? '',
    parts: [{ content: { $case: 'text', value: text }, mediaType: '', filename: '', metadata: undefined }],
    extensions: [], referenceTaskIds: [], metadata: undefined,
  },
  configuration: undefined, metadata: undefined, tenant: '',
})
const texts = (parts) => parts?.map((p) => p.content?.$case === 'text' ? p.content.value : p.content?.value)
const shown = (t) => ({ id: t.id, context: t.contextId, state: t.status.state, asks: texts(t.status.message?.parts), artifacts: t.artifacts.map((a) => texts(a.parts)) })

const listed = (contextId, status) => client.listTasks({ contextId, tenant: '', status, pageSize: 10, pageToken: '', historyLength: 0, statusTimestampAfter: undefined, includeArtifacts: true })

if (part === 'ask') {
  const card = await client.getAgentCard()
  say('the card', { name: card.name, description: card.description, skills: card.skills.map((s) => s.id) })
  const asked = await client.sendMessage(message('Where does Ann live?'))
  say('sent', shown(asked.payload?.value ?? asked))
} else {
  const task = (await listed('', 6)).tasks[0]
  for await (const { payload } of client.resubscribeTask({ id: task.id, tenant: '' })) say(`after a restart: ${payload.$case}`, shown(payload.value))
  // How many events a stream has depends on how fast the run is.
  let state, artifact
  number = 1
  for await (const { payload: { $case, value } } of client.sendMessageStream(message('Oslo', task))) {
    if ($case === 'artifactUpdate') artifact = texts(value.artifact.parts)
    else state = value.status.state
    if ($case === 'task' && value.artifacts.length) artifact = texts(value.artifacts[0].parts)
  }
  say('streamed', { state, artifact })
  say('got', shown(await client.getTask({ id: task.id, historyLength: 0, tenant: '' })))
  say('listed', (await listed(task.contextId, 0)).tasks.map(shown))
  try {
    await client.sendMessage(message('Bergen', task))
  } catch (e) {
    say('refused', { name: e.name, message: e.message })
  }
}
