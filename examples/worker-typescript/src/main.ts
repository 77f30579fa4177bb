// An Epigraph worker without an SDK: one bidirectional gRPC stream, with stubs that are read from the .proto files.
//
//   EPIGRAPH_ADDR     executor's gRPC address (default 127.0.0.1:7400, that of `epigraph dev`)
//   EPIGRAPH_API_KEY  API key; names the namespace too
//   EPIGRAPH_PROTO    the folder with the .proto files (default: that of the repository, ../../proto from here)
//   EPIGRAPH_CA_FILE  PEM of the authority that the server's certificate is from; without it the connection is plain text
import * as grpc from "@grpc/grpc-js";
import * as loader from "@grpc/proto-loader";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const address = process.env.EPIGRAPH_ADDR ?? "127.0.0.1:7400";
const key = process.env.EPIGRAPH_API_KEY;
const protos = process.env.EPIGRAPH_PROTO ?? fileURLToPath(new URL("../../../proto", import.meta.url));
if (!existsSync(`${protos}/epigraph/executor/v1/worker.proto`)) {
  console.error(`${protos} does not hold epigraph/executor/v1/worker.proto: set EPIGRAPH_PROTO to the folder proto of the repository`);
  process.exit(1);
}

const api = grpc.loadPackageDefinition(
  loader.loadSync("epigraph/executor/v1/worker.proto", {
    includeDirs: [protos, ...["googleapis", "protovalidate"].map((d) => `${protos}/third_party/${d}`)],
    longs: String,
    enums: String,
    defaults: true,
    oneofs: true,
  }),
) as any;

type Payload = { json: Buffer };
type Attempt = {
  token: string;
  actor: string;
  attempt: number;
  args: Payload[];
  named: Record<string, Payload>;
  effectKey: string;
  details: Payload | null;
};

/** What an actor may do while it works. */
interface Call {
  attempt: Attempt;
  /** Ends when the attempt is no longer wanted, or when the executor was not heard of for too long. */
  signal: AbortSignal;
  /** Tells how far it is; the next attempt after a lost one is given the last details. */
  heartbeat(details?: unknown): void;
}

/** A failure of which the worker knows that another attempt cannot mend it. */
class PermanentError extends Error {
  constructor(readonly reason: string, message: string) {
    super(message);
  }
}

type Actor = { effect: string; description: string; run(named: Record<string, any>, call: Call): unknown };

const actors: Record<string, Actor> = {
  "ts/word-count": {
    effect: "EFFECT_PURE",
    description: "Counts the words of a text.",
    run({ text }) {
      if (typeof text !== "string") throw new PermanentError("ARGUMENTS_INVALID", "text must be a string");
      return { words: text.split(/\s+/).filter(Boolean).length };
    },
  },
  "ts/slow": {
    effect: "EFFECT_IDEMPOTENT",
    description: "Takes its time, and says so.",
    async run({ millis = 50 }, call) {
      for (let step = 1; step <= 5; step++) {
        await new Promise<void>((resolve, reject) => {
          const timer = setTimeout(resolve, millis / 5);
          call.signal.addEventListener("abort", () => (clearTimeout(timer), reject(new Error("canceled"))), { once: true });
        });
        call.heartbeat({ step });
      }
      return "done";
    },
  },
};

const payload = (value: unknown): Payload => ({ json: Buffer.from(JSON.stringify(value ?? null)) });
const millis = (d: { seconds: string; nanos: number }) => Number(d.seconds) * 1000 + d.nanos / 1e6;

const client = new api.epigraph.executor.v1.WorkerService(
  address,
  process.env.EPIGRAPH_CA_FILE ? grpc.credentials.createSsl(readFileSync(process.env.EPIGRAPH_CA_FILE)) : grpc.credentials.createInsecure(),
);

let stopping = false;
const open = new Set<Stream>();

/** One connection to an executor. */
class Stream {
  private readonly call: any;
  private readonly running = new Map<string, AbortController>();
  private readonly sent = new Map<number, number>();
  private beats = 0;
  private lease = Infinity; // until when the attempts are surely ours, by the monotonic clock
  private timer?: NodeJS.Timeout;
  private readonly began = performance.now();

  /** `next` is called once, when another stream should be opened. */
  constructor(private readonly next: (delay: number) => void) {
    const metadata = new grpc.Metadata();
    if (key) metadata.set("authorization", `Bearer ${key}`);
    this.call = client.Work(metadata);
    this.call.on("data", (m: any) => this.receive(m));
    this.call.on("error", (e: grpc.ServiceError) => console.error(`stream: ${e.code} ${e.details}`));
    this.call.on("close", () => this.end());
    this.call.on("end", () => this.call.end());
    this.call.write({
      hello: {
        workerId: process.env.EPIGRAPH_WORKER_ID ?? "",
        slots: 64,
        userAgent: "worker-typescript/0.1",
        actors: Object.entries(actors).map(([name, a]) => ({ name, effect: a.effect, description: a.description, version: "1" })),
      },
    });
    open.add(this);
  }

  private receive(m: any): void {
    switch (m.message) {
      case "welcome": {
        const timeout = millis(m.welcome.heartbeatTimeout);
        this.lease = this.began + timeout;
        this.timer = setInterval(() => this.beat(timeout), millis(m.welcome.heartbeatInterval));
        console.log(`connected to ${m.welcome.executorId} as ${m.welcome.workerId}`);
        if (stopping) this.drain();
        return;
      }
      case "heartbeat": {
        // The executor heard a heartbeat that was sent then, so it waits from no earlier on.
        const n = Number(m.heartbeat.number);
        const at = this.sent.get(n);
        if (at !== undefined) this.lease = Math.max(this.lease, at);
        this.sent.delete(n);
        return;
      }
      case "attempt":
        void this.perform(m.attempt);
        return;
      case "cancel":
        this.running.get(m.cancel.token)?.abort();
        return;
      case "drain":
        this.next(0); // this stream goes on until its attempts are answered
        return;
      case "refused":
        console.error(`refused: ${m.refused.reason} ${m.refused.message}`);
    }
  }

  private beat(timeout: number): void {
    if (performance.now() > this.lease) {
      this.call.cancel(); // nobody heard us: the attempts may be somebody else's by now
      return;
    }
    this.sent.set(++this.beats, performance.now() + timeout);
    this.call.write({ heartbeat: { number: this.beats } });
  }

  private async perform(attempt: Attempt): Promise<void> {
    const abort = new AbortController();
    this.running.set(attempt.token, abort);
    let answer: object;
    try {
      if (performance.now() > this.lease) throw new Error("the lease is over");
      const named = Object.fromEntries(Object.entries(attempt.named).map(([k, v]) => [k, JSON.parse(v.json.toString())]));
      const value = await actors[attempt.actor].run(named, {
        attempt,
        signal: abort.signal,
        heartbeat: (details) =>
          this.call.write({ progress: { token: attempt.token, details: details === undefined ? undefined : payload(details) } }),
      });
      answer = { outcome: { token: attempt.token, outcome: { values: [payload(value)] } } };
    } catch (e) {
      const error =
        e instanceof PermanentError
          ? { type: "ERROR_TYPE_PERMANENT", reason: e.reason, message: e.message }
          : { message: String(e), reason: abort.signal.aborted ? "" : "ACTOR_ERROR" };
      answer = { error: { token: attempt.token, error } };
    }
    this.running.delete(attempt.token);
    this.call.write(answer);
  }

  drain(): void {
    this.call.write({ drain: {} });
  }

  private end(): void {
    clearInterval(this.timer);
    for (const abort of this.running.values()) abort.abort();
    open.delete(this);
    this.next(performance.now() - this.began > 1000 ? 50 : 500);
  }
}

function connect(): void {
  let asked = false;
  new Stream((delay) => {
    if (asked || stopping) return;
    asked = true;
    setTimeout(connect, delay);
  });
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    stopping = true;
    for (const s of open) s.drain();
    const timer = setInterval(() => open.size === 0 && (clearInterval(timer), process.exit(0)), 20);
  });
}
connect();
