// A session with a workflow of Epigraph by OpenAI's client for JavaScript. It prints a transcript. Arguments: the
// folder of npm packages, the address of the server, and an API key.
import { createRequire } from 'node:module'

const [modules, base, key] = process.argv.slice(2)
const OpenAI = createRequire(`${modules}/x.js`)('openai')
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: key, maxRetries: 0 })

const say = (what, value) => console.log(`${what}\n  ${JSON.stringify(value)}`)
const asked = (content, more = {}) => ({ model: 'echo', messages: [{ role: 'user', content }], ...more })
const thread = { headers: { 'Epigraph-Thread': 'ann:desk' } }

const models = []
for await (const m of client.models.list()) models.push(m.id)
say('the models', models)

const { data, response } = await client.chat.completions.create(asked('Good morning.'), thread).withResponse()
say('an answer', { model: data.model, choice: data.choices[0], thread: data.epigraph.thread_id === response.headers.get('Epigraph-Thread') })

// How many pieces a stream has depends on how fast the run is.
let text = ''
let end = ''
const stream = await client.chat.completions.create(asked('Good evening.', { stream: true, stream_options: { include_usage: true } }), thread)
for await (const piece of stream) {
  text += piece.choices[0]?.delta?.content ?? ''
  end = piece.choices[0]?.finish_reason ?? end
}
say('a stream', { text, end })

const again = await client.chat.completions.create(asked('Good night.'), thread)
say('on the thread of before', { same: again.epigraph.thread_id === data.epigraph.thread_id, text: again.choices[0].message.content })

for (const [what, request] of [['a tool', asked('hi', { tools: [{ type: 'function', function: { name: 'f' } }] })], ['nobody', asked('hi', { model: 'gpt-nothing' })]]) {
  await client.chat.completions.create(request).then(
    (a) => say(`${what} was answered`, a),
    (e) => say(`${what} is refused`, { error: e.constructor.name, status: e.status, code: e.code }),
  )
}
