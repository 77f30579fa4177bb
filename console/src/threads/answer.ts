// The text that the agent of a thread is writing, and the end of its run.
import { useEffect, useState } from "react";
import { ApiError } from "../api/client";
import { follow, type ServerEvent } from "../api/stream";
import type { RunEvent } from "../api/types";

const bytes = new TextEncoder();
const text = new TextDecoder();

/** join puts a delta behind what was written up to its offset, which counts bytes. A part may come twice. */
export function join(old: string, delta: string, offset: number): string {
  const have = bytes.encode(old);
  if (offset > have.length) return delta; // a late watcher gets the end of a long text alone
  return text.decode(have.slice(0, offset)) + delta;
}

/**
 * useAnswer follows a run with its descendants as long as it is open. It gives the text under way, and calls
 * onChange when anything but text happens.
 */
export function useAnswer(run: string, onChange: () => void): { writing: string; error: unknown } {
  const [writing, setWriting] = useState("");
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    setWriting("");
    setError(undefined);
    if (!run) return;
    const stop = new AbortController();
    let attempt = "";
    let whole = "";
    const take = (events: ServerEvent[]) => {
      let other = false;
      for (const e of events) {
        const ev = JSON.parse(e.data) as RunEvent;
        const d = ev.tokenDelta;
        if (!d) {
          other ||= !ev.keepAlive;
          continue;
        }
        if (d.kind === "TEXT_KIND_RAW") continue;
        const from = `${ev.runId} ${d.visit?.nodeId} ${d.visit?.visit} ${d.attempt}`;
        whole = join(from === attempt ? whole : "", d.text ?? "", Number(d.offset ?? 0));
        attempt = from;
        setWriting(whole);
      }
      if (other) onChange();
    };
    follow({
      path: `/v1/runs/${run}/events?includeDescendants=true`,
      onEvents: take,
      onState: (state, err) => {
        if (state === "ended") {
          setWriting("");
          onChange();
        }
        if (err instanceof ApiError && !err.passing) setError(err);
      },
      signal: stop.signal,
    });
    return () => stop.abort();
  }, [run, onChange]);
  return { writing, error };
}
