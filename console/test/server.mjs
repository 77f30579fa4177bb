// A real `epigraph dev` on free loopback ports, and a client of its API.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const binary = process.env.EPIGRAPH_BIN ?? join(import.meta.dirname, "../../bin/epigraph");

export class Server {
  /** start runs the suite; http is the address of the pages, where port 0 takes a free one. */
  static async start({ http = "127.0.0.1:0", config = "" } = {}) {
    const s = new Server();
    s.data = await mkdtemp(join(tmpdir(), "console-test-"));
    s.http = http;
    if (config) {
      s.config = join(s.data, "config.yaml");
      await writeFile(s.config, config);
    }
    await s.run();
    return s;
  }

  async run() {
    const args = ["dev", "--json", "--scripted", "--http", this.http, "--grpc", "127.0.0.1:0", "--data", join(this.data, "db")];
    if (this.config) args.push("--config", this.config);
    this.process = spawn(binary, args, { stdio: ["ignore", "pipe", "pipe"] });
    this.log = "";
    this.process.stderr.on("data", (text) => {
      this.log = (this.log + text).slice(-20_000);
    });
    const gone = once(this.process, "exit").then(() => {
      throw new Error(`epigraph dev has ended: ${this.log}`);
    });
    gone.catch(() => undefined);
    const [line] = await Promise.race([once(createInterface(this.process.stdout), "line"), gone]);
    const { httpAddr, apiKey } = JSON.parse(line);
    this.url = `http://127.0.0.1:${httpAddr.split(":").at(-1)}`;
    this.key = apiKey;
  }

  /** restart stops the suite and starts it on the same address with the same data. */
  async restart() {
    await this.stop();
    this.http = new URL(this.url).host;
    await this.run();
  }

  async stop() {
    if (this.process.exitCode !== null) return;
    this.process.kill("SIGTERM");
    await once(this.process, "exit");
  }

  async close() {
    await this.stop();
    await rm(this.data, { recursive: true, force: true });
  }

  async call(path, body, method = "POST") {
    const headers = { Authorization: `Bearer ${this.key}`, "Content-Type": "application/json" };
    const res = await fetch(this.url + path, body ? { method, headers, body: JSON.stringify(body) } : { headers });
    const answer = await res.json();
    if (!res.ok) throw new Error(`${path}: ${JSON.stringify(answer)}`);
    return answer;
  }

  start(graph, more = {}) {
    return this.call("/v1/runs", { graph, ...more });
  }

  /** reach waits until a run is in a state. */
  async reach(id, state) {
    for (;;) {
      const run = await this.call(`/v1/runs/${id}`);
      if (run.state === `RUN_STATE_${state}`) return run;
      if (run.endTime) throw new Error(`the run has ended as ${run.state}, not as ${state}`);
      await new Promise((done) => setTimeout(done, 50));
    }
  }
}

/** until calls read until its answer is true, and returns the answer. */
export async function until(read) {
  for (;;) {
    const value = await read();
    if (value) return value;
    await new Promise((done) => setTimeout(done, 50));
  }
}

const say = (id, text = "did {{ node }}") => ({ id, actor: "template", named: { text } });

export const graphs = {
  diamond: {
    name: "Quarterly report",
    nodes: ["figures", "costs", "margin", "summary"].map((id) => say(id)),
    edges: [
      { from: "figures", to: "margin" },
      { from: "costs", to: "margin" },
      { from: "margin", to: "summary" },
    ],
  },
  rounds: {
    name: "Rounds",
    nodes: [
      { id: "topics", actor: "cel", named: { expr: "['price', 'speed', 'safety']" } },
      { id: "notes", actor: "template", named: { text: "a note on {{ args[0] }}" }, map: { over: "nodes.topics.result", maxParallel: 2 } },
      { id: "draft", actor: "template", named: { text: "draft {{ visit }}" }, maxVisits: 5, resultPassDownMode: { key: "draft" } },
      { id: "review", actor: "cel", named: { expr: "visit >= 3" }, maxVisits: 5 },
      say("publish", "published: {{ named.draft }}"),
    ],
    edges: [
      { from: "topics", to: "notes" },
      { from: "notes", to: "draft" },
      { from: "draft", to: "review" },
      { from: "review", to: "draft", kind: "EDGE_KIND_BACK", when: "result == false" },
      { from: "review", to: "publish", when: "result == true" },
    ],
  },
  sleeping: (duration) => ({
    name: "Slow work",
    nodes: [{ id: "rest", actor: "sleep", named: { duration } }, say("after")],
    edges: [{ from: "rest", to: "after" }],
  }),
  broken: { name: "Breaks", nodes: [{ id: "divide", actor: "cel", named: { expr: "1/0" } }, say("after")], edges: [{ from: "divide", to: "after" }] },
  question: {
    name: "Ask somebody",
    nodes: [
      {
        id: "ask",
        actor: "human",
        named: {
          prompt: "Is the text fine?",
          schema: {
            type: "object",
            required: ["ok", "level"],
            properties: {
              ok: { type: "boolean", title: "Fine?" },
              level: { enum: ["low", "high"], title: "Level" },
              pages: { type: "integer", title: "Pages", minimum: 1 },
              why: { type: "string", title: "Why", description: "In a sentence" },
            },
          },
        },
      },
      say("after"),
    ],
    edges: [{ from: "ask", to: "after" }],
  },
  approval: {
    name: "Approve a payment",
    nodes: [{ id: "sure", actor: "human", named: { prompt: "Pay this?", approve: { to: "ACME", amount: 1200 } } }, say("after")],
    edges: [{ from: "sure", to: "after" }],
  },
  parent: {
    name: "Parent",
    nodes: [
      {
        id: "below",
        actor: "spawn",
        named: { runs: ["one", "two"].map((id) => ({ graph: { name: `Child ${id}`, nodes: [say(id), say("end")], edges: [{ from: id, to: "end" }] } })) },
      },
    ],
  },
  /** wide has n nodes in layers of 50, each behind two of the layer before. */
  wide: (n) => {
    const nodes = Array.from({ length: n }, (_, i) => ({ id: `n${i}`, actor: "template", named: { text: "x" } }));
    const edges = [];
    for (let i = 50; i < n; i++) {
      const layer = i - (i % 50) - 50;
      edges.push({ from: `n${layer + (i % 50)}`, to: `n${i}` });
      if (i % 50 !== (i * 7) % 50) edges.push({ from: `n${layer + ((i * 7) % 50)}`, to: `n${i}` });
    }
    return { name: `${n} nodes`, nodes, edges };
  },
};
