// LangGraph.js as a contestant: a run is a thread of a compiled StateGraph with a saver, durability "sync". Speaks the protocol
// of package drive: one JSON object per line on the standard input and output.
import { setMaxListeners } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Annotation, END, START, StateGraph } from "@langchain/langgraph";

setMaxListeners(0);
const args = Object.fromEntries(process.argv.slice(2).map((a) => a.replace(/^--/, "").split(/=(.*)/s).slice(0, 2)));
const now = () => Number(process.hrtime.bigint());
const wallNanos = () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e6));

async function openSaver() {
  if (args.socket) {
    const { default: pg } = await import("pg");
    const { PostgresSaver } = await import("@langchain/langgraph-checkpoint-postgres");
    const pool = new pg.Pool({ host: args.socket, port: 5432, user: "postgres", database: args.database, max: Number(args.conns ?? 10) });
    const saver = new PostgresSaver(pool);
    await saver.setup();
    const count = async () => Number((await pool.query("SELECT count(*) FROM checkpoint_writes WHERE channel = 'last'")).rows[0].count);
    return { saver, count, close: () => pool.end() };
  }
  const { default: Database } = await import("better-sqlite3");
  const { SqliteSaver } = await import("@langchain/langgraph-checkpoint-sqlite");
  const db = new Database(args.sqlite);
  const saver = new SqliteSaver(db);
  db.pragma("journal_mode = WAL");
  db.pragma("synchronous = FULL"); // its build says NORMAL, which may lose what was acknowledged
  const count = async () => db.prepare("SELECT count(*) AS n FROM writes WHERE channel = 'last'").get()?.n ?? 0;
  return { saver, count, close: () => db.close() };
}

const { saver, count, close } = await openSaver();
const runs = new Map(); // by thread id: what is known of a run under way
const total = { runs: 0, nodes: 0 };
let threads = 0;

const State = Annotation.Root({ last: Annotation({ reducer: (_, b) => b, default: () => "" }) });

function compile(g) {
  const b = new StateGraph(State);
  const inner = new Set(g.nodes.flatMap((n) => n.d ?? []));
  g.nodes.forEach((n, i) => {
    b.addNode(`n${i}`, async (_, config) => {
      const run = runs.get(config.configurable.thread_id);
      const t = wallNanos();
      run.first ??= now();
      for (const d of n.d ?? []) if (!run.done[d]) run.fault ??= `node ${i} began before node ${d} had ended`;
      if (n.s) await sleep(n.s / 1e6);
      if (run.done[i]) run.fault ??= `node ${i} ran twice`;
      run.done[i] = true;
      run.left--;
      const head = `{"t":${t},"pad":"`;
      return { last: head + "x".repeat(100 - head.length - 2) + '"}' };
    });
  });
  // A node runs in the superstep after any of those before it. Where they all are one level above, that is after all of them, and
  // plain edges do; elsewhere a join waits for each by name.
  const level = [];
  g.nodes.forEach((n, i) => (level[i] = Math.max(0, ...(n.d ?? []).map((d) => level[d] + 1))));
  g.nodes.forEach((n, i) => {
    const deps = (n.d ?? []).map((d) => `n${d}`);
    if (deps.length === 0) b.addEdge(START, `n${i}`);
    else if (n.d.every((d) => level[d] === level[i] - 1)) deps.forEach((d) => b.addEdge(d, `n${i}`));
    else b.addEdge(deps, `n${i}`);
    if (!inner.has(i)) b.addEdge(`n${i}`, END);
  });
  return b.compile({ checkpointer: saver });
}

const graphs = new Map(); // by name and shape
function graph(g) {
  const key = g.name + g.nodes.length;
  if (!graphs.has(key)) graphs.set(key, compile(g));
  return graphs.get(key);
}

async function once(g) {
  const id = `run-${++threads}`;
  const run = { done: new Array(g.nodes.length).fill(false), left: g.nodes.length };
  runs.set(id, run);
  const at = now();
  await graph(g).invoke({ last: "" }, { configurable: { thread_id: id }, durability: "sync", recursionLimit: 100000 });
  const took = now() - at;
  runs.delete(id);
  if (run.fault) throw new Error(run.fault);
  if (run.left !== 0) throw new Error(`${run.left} of ${g.nodes.length} nodes did not run`);
  total.runs++;
  total.nodes += g.nodes.length;
  return { took, start: run.first - at };
}

async function runAll(req) {
  const took = [], start = [];
  let next = 0, nodes = 0, fault = null;
  const began = now();
  for (const g of req.graphs) graph(g);
  const worker = async () => {
    while (!fault) {
      if (req.max_wall && next > 0 && now() - began > req.max_wall) return;
      const i = next++;
      if (i >= req.runs) return;
      const g = req.graphs[i % req.graphs.length];
      try {
        const r = await once(g);
        took[i] = Math.round(r.took);
        start[i] = Math.round(r.start);
        nodes += g.nodes.length;
      } catch (e) {
        fault ??= e;
      }
      if (req.pause) await sleep(req.pause / 1e6);
    }
  };
  await Promise.all(Array.from({ length: Math.max(1, Math.min(req.in_flight ?? 1, req.runs)) }, worker));
  if (fault) throw fault;
  return { wall: Math.round(now() - began), nodes, took, start };
}

async function verify() {
  const n = await count();
  // The input of a run is a write too where the saver keeps it.
  if (n !== total.nodes && n !== total.nodes + total.runs) throw new Error(`${n} writes for ${total.nodes} nodes of ${total.runs} runs`);
  return {};
}

const answer = (a) => process.stdout.write(JSON.stringify(a) + "\n");
answer({ ready: true });
for await (const line of createInterface({ input: process.stdin })) {
  const req = JSON.parse(line);
  try {
    answer(req.op === "run" ? await runAll(req) : req.op === "verify" ? await verify() : { err: `unknown operation ${req.op}` });
  } catch (e) {
    answer({ err: String(e?.stack ?? e) });
  }
}
await close();
