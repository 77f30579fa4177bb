// A session with the MCP server of Epigraph, by a client of the TypeScript SDK. It prints a transcript.
// Arguments: the folder of npm packages, the client (1, 2 or 2-legacy), the way (an URL, or a command) and an API key.
import { createRequire } from 'node:module'

const [modules, which, way, key] = process.argv.slice(2)
const need = createRequire(`${modules}/x.js`)
const url = way.startsWith('http')
let Client, Http, Stdio, forms
if (which === '1') {
  Client = need('@modelcontextprotocol/sdk/client/index.js').Client
  Http = need('@modelcontextprotocol/sdk/client/streamableHttp.js').StreamableHTTPClientTransport
  Stdio = need('@modelcontextprotocol/sdk/client/stdio.js').StdioClientTransport
  forms = need('@modelcontextprotocol/sdk/types.js').ElicitRequestSchema
} else {
  const client = need('@modelcontextprotocol/client')
  Client = client.Client
  Http = client.StreamableHTTPClientTransport
  Stdio = need('@modelcontextprotocol/client/stdio').StdioClientTransport
  forms = 'elicitation/create'
}

// Ids and times differ from session to session.
const seen = new Map()
function plain(text) {
  return text
    .replace(/\b(run|ep|tk|int|wf)_[0-9a-z]{26}\b/g, (id, kind) => {
      if (!seen.has(id)) seen.set(id, `${kind}_${[...seen.keys()].filter((k) => k.startsWith(kind)).length + 1}`)
      return seen.get(id)
    })
    .replace(/\d{4}-\d\d-\d\dT[0-9:.]+Z/g, 'TIME')
    .replace(/\b[0-9a-f]{64}\b/g, 'HASH')
}
const say = (what, value) => console.log(`${what}\n  ${plain(JSON.stringify(value))}`)

const client = new Client({ name: 'e2e', version: '1' }, {
  capabilities: { elicitation: {} },
  ...(which === '2' ? { versionNegotiation: { mode: { pin: '2026-07-28' } } } : {}),
})
client.setRequestHandler(forms, async (request) => {
  say('the client is asked', { message: request.params.message, schema: request.params.requestedSchema })
  return { action: 'accept', content: { answer: 'Oslo' } }
})
await client.connect(url
  ? new Http(new URL(way), { requestInit: { headers: { Authorization: `Bearer ${key}` } } })
  : new Stdio({ command: way, args: ['mcp'], env: process.env, stderr: 'inherit' }))

async function call(name, args, options) {
  const result = which === '1' ? await client.callTool({ name, arguments: args }, undefined, options) : await client.callTool({ name, arguments: args }, options)
  const value = JSON.parse(result.content[0].text)
  say(`${result.isError ? 'refused' : 'called'}: ${name} ${plain(JSON.stringify(args))}`, value)
  return value
}

const tools = (await client.listTools()).tools
say('tools', tools.map((t) => t.name))
say('the tool of the workflow', tools.find((t) => t.name === 'workflow_asker').inputSchema)
say('templates', (await client.listResourceTemplates()).resourceTemplates.map((t) => t.uriTemplate))

await call('parse_plan', { plan: '1. Boil water\n2. Make tea (needs 1)' })
const ran = await call('run_plan', { plan: '1. Boil water', default_actor: 'template', arguments: { text: 'Tea is served.' } })
const heard = []
await call('run_plan', { plan: '1. Rest\n2. Rest (needs 1)', default_actor: 'sleep', arguments: { duration: '500ms' } }, { onprogress: (p) => heard.push(p.message) })
say('progress was told', heard.some((text) => /^2 (starts|ended)/.test(text)))
await call('run_plan', { plan: '1. Boil water\n2. Boil water (needs 3)' })
await call('get_run', { run_id: 'run_nothing' })

let asked = await call('workflow_asker', { name: 'Ann' })
if (asked.state !== 'completed') {
  asked = await call('answer_run', { interrupt_id: asked.questions[0].interrupt_id, answer: 'Oslo', wait_seconds: 20 })
}
const read = await client.readResource({ uri: asked.uri })
say(`resource: ${plain(asked.uri)}`, JSON.parse(read.contents[0].text))

const user = `ann-${which}-${url}` // each session has a memory of its own
const epic = await call('epic_create', { title: 'Join the fair', tags: 'fair,town', budget_usd: 5 })
const task = await call('task_create', { epic_id: epic.epic_id, title: 'Register' })
await call('task_update', { task_id: task.task_id, status: 'completed', result_summary: 'Done by hand' })
await call('epic_status', { epic_id: epic.epic_id })
await call('memory_write', { key: 'hall', value: 'The hall is closed on Mondays.', user_id: user })
await call('memory_read', { query: 'hall', user_id: user, scope: 'user', limit: 1 })
const resources = (await client.listResources()).resources.map((r) => r.uri)
say('the run is among the newest', resources.includes(`epigraph://runs/${ran.run_id}`))
say('the workflow is among the newest', resources.includes('epigraph://workflows/asker'))
await client.close()
