// The event log of a run, from its beginning on.
import { useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import { follow, type StreamState } from "../api/stream";
import type { RunEvent } from "../api/types";
import { clockTime, short, word } from "../ui/format";
import { Dialog, Json, Status } from "../ui/parts";
import { Rows } from "../ui/rows";
import { useModel } from "./use";

/** most bounds what a page keeps; older events give way. */
const most = 50_000;

interface Entry {
  event: RunEvent;
  kind: string;
  node: string;
  text: string;
}

function entry(event: RunEvent, kind: string): Entry {
  const key = Object.keys(event).find((k) => !["seq", "time", "runId", "rootRunId", "principal"].includes(k)) ?? "";
  const body = ((event as Record<string, unknown>)[key] ?? {}) as Record<string, unknown>;
  const visit = body.visit as { nodeId?: string; visit?: number; item?: number } | undefined;
  const node = visit?.nodeId ? `${visit.nodeId}${(visit.visit ?? 1) > 1 ? ` ×${visit.visit}` : ""}${visit.item ? ` item ${visit.item}` : ""}` : "";
  const error = body.error as { message?: string } | undefined;
  const values = body.values as unknown[] | undefined;
  const parts = [
    body.state ? word(String(body.state)) : "",
    body.attempt && Number(body.attempt) > 1 ? `attempt ${body.attempt}` : "",
    body.reason ? String(body.reason) : "",
    error?.message ?? "",
    values && values.length > 0 ? short(values.length === 1 ? values[0] : values, 160) : "",
    body.text ? short(body.text, 160) : "",
  ];
  return { event, kind: kind.replaceAll("_", " "), node, text: parts.filter(Boolean).join(" · ") };
}

export function EventLog() {
  const model = useModel();
  const buffer = useRef<Entry[]>([]);
  const [entries, setEntries] = useState<Entry[]>([]);
  const [state, setState] = useState<StreamState>("connecting");
  const [filter, setFilter] = useState("");
  const [below, setBelow] = useState(false);
  const [open, setOpen] = useState<Entry | undefined>();
  const want = useDeferredValue(filter.trim().toLowerCase());

  useEffect(() => {
    const stop = new AbortController();
    buffer.current = [];
    let frame = 0;
    follow({
      path: `/v1/runs/${model.id}/events${below ? "?includeDescendants=true" : ""}`,
      onEvents: (events) => {
        for (const e of events) buffer.current.push(entry(JSON.parse(e.data), e.event));
        if (buffer.current.length > most) buffer.current.splice(0, buffer.current.length - most);
        frame ||= requestAnimationFrame(() => {
          frame = 0;
          setEntries([...buffer.current]);
        });
      },
      onState: setState,
      signal: stop.signal,
    });
    return () => {
      stop.abort();
      cancelAnimationFrame(frame);
    };
  }, [model, below]);

  const shown = useMemo(
    () => (want ? entries.filter((e) => e.kind.includes(want) || e.node.toLowerCase().includes(want) || e.text.toLowerCase().includes(want)) : entries),
    [entries, want],
  );
  return (
    <div className="log">
      <div className="fields">
        <label>
          Filter
          <input type="search" value={filter} onChange={(e) => setFilter(e.target.value)} placeholder="kind, node or text" />
        </label>
        <label className="check">
          <input type="checkbox" checked={below} onChange={(e) => setBelow(e.target.checked)} /> with runs below
        </label>
        <Status>
          {shown.length === entries.length ? `${entries.length} events` : `${shown.length} of ${entries.length} events`}
          {state === "live" ? ", live" : state === "ended" ? ", the run has ended" : `, ${state}`}
        </Status>
      </div>
      <Rows
        label="Events"
        count={shown.length}
        follow={!want}
        row={(i) => {
          const e = shown[i];
          if (!e) return null;
          const foreign = e.event.runId && e.event.runId !== model.id;
          return (
            <button type="button" className="event-row quiet" onClick={() => setOpen(e)}>
              <span className="number muted">{e.event.seq && e.event.seq !== "0" ? e.event.seq : "·"}</span>
              <span className="muted">{clockTime(e.event.time)}</span>
              <span>{e.kind}</span>
              <strong>
                {foreign ? `${e.event.runId?.slice(-6)} ` : ""}
                {e.node}
              </strong>
              <span className="muted">{e.text}</span>
            </button>
          );
        }}
      />
      <Dialog title={open ? open.kind : "Event"} open={Boolean(open)} onClose={() => setOpen(undefined)}>
        <Json value={open?.event} label="Event" />
      </Dialog>
    </div>
  );
}
