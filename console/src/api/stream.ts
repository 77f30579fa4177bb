// Server-sent events by fetch: an EventSource cannot send the Authorization header.
import { ApiError, failure, send } from "./client";

export interface ServerEvent {
  id: string;
  event: string;
  data: string;
}

/** Parser takes the text of a stream in pieces and gives whole events. */
export class Parser {
  /** lastId is the cursor: the last id that the stream named, also in a block without data. */
  lastId = "";
  retry = 0;
  private rest = "";
  private event = "";
  private data: string[] = [];

  take(piece: string): ServerEvent[] {
    const out: ServerEvent[] = [];
    const lines = (this.rest + piece).split("\n");
    this.rest = lines.pop() ?? "";
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (this.data.length > 0) out.push({ id: this.lastId, event: this.event || "message", data: this.data.join("\n") });
        this.event = "";
        this.data = [];
        continue;
      }
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "event") this.event = value;
      else if (name === "data") this.data.push(value);
      else if (name === "id") this.lastId = value;
      else if (name === "retry" && /^\d+$/.test(value)) this.retry = Number(value);
    }
    return out;
  }
}

export type StreamState = "connecting" | "live" | "broken" | "ended";

export interface Follow {
  path: string;
  /** lastId is where to go on from; empty begins as the address says. */
  lastId?: string;
  onEvents(events: ServerEvent[]): void;
  onState?(state: StreamState, error?: Error): void;
  signal: AbortSignal;
}

const silence = 45_000; // the server says something every 15 seconds

/**
 * follow reads a stream until it ends, is refused, or the signal aborts. After a broken connection it
 * goes on behind the last event that came.
 */
export async function follow({ path, lastId = "", onEvents, onState, signal }: Follow): Promise<void> {
  let wait = 0;
  let cursor = lastId;
  for (;;) {
    onState?.("connecting");
    const parser = new Parser();
    parser.lastId = cursor;
    let broken: Error | undefined;
    try {
      for await (const events of read(path, parser, signal, () => onState?.("live"))) {
        wait = 0;
        cursor = parser.lastId;
        const ended = events.findIndex((e) => e.event === "end");
        const shown = ended < 0 ? events : events.slice(0, ended);
        const fatal = shown.map(fatalError).find(Boolean);
        const plain = shown.filter((e) => e.event !== "error");
        if (plain.length > 0) onEvents(plain);
        if (ended >= 0) return onState?.("ended");
        if (fatal) throw fatal;
      }
      if (parser.retry === -1) return onState?.("ended");
    } catch (err) {
      if (signal.aborted) return;
      broken = err instanceof Error ? err : new Error(String(err));
      if (broken instanceof ApiError && !broken.passing) return onState?.("broken", broken);
    }
    onState?.("broken", broken);
    wait = Math.min(Math.max(wait * 2, parser.retry || 500), 15_000);
    if (!(await pause(wait, signal))) return;
  }
}

/** read yields the events of one connection. */
async function* read(path: string, parser: Parser, signal: AbortSignal, opened: () => void) {
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (parser.lastId) headers["Last-Event-ID"] = parser.lastId;
  const quiet = new AbortController();
  const res = await send(path, { headers, signal: AbortSignal.any([signal, quiet.signal]) });
  if (res.status === 204) {
    parser.retry = -1; // all was said
    return;
  }
  if (!res.body) throw await failure(res);
  opened();
  const reader = res.body.getReader();
  const text = new TextDecoder();
  let timer = setTimeout(() => quiet.abort(), silence);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => quiet.abort(), silence);
      const events = parser.take(text.decode(value, { stream: true }));
      if (events.length > 0) yield events;
    }
  } finally {
    clearTimeout(timer);
    reader.cancel().catch(() => undefined);
  }
}

function fatalError(e: ServerEvent): ApiError | undefined {
  if (e.event !== "error") return undefined;
  const body = JSON.parse(e.data);
  return body.metadata?.fatal === "true" ? new ApiError(body.code ?? 500, body) : undefined;
}

/** pause waits, and reports whether the signal let it end. */
function pause(ms: number, signal: AbortSignal): Promise<boolean> {
  return new Promise((done) => {
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      done(true);
    }, ms);
    const stop = () => {
      clearTimeout(timer);
      done(false);
    };
    signal.addEventListener("abort", stop, { once: true });
  });
}
