// Changes of many runs: of all that the filter finds, after a dry run, or of those that are chosen.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError, post, requestId } from "../api/client";
import type { BulkFailure, Run, RunFilter } from "../api/types";
import { count, word } from "../ui/format";
import { Dialog, Fault } from "../ui/parts";
import { verbs } from "../ui/states";

export type BulkVerb = "pause" | "resume" | "cancel" | "retry";

/** words are what each does to which runs. */
const words: Record<BulkVerb, { path: string; which: string; would: string; done: string }> = {
  pause: { path: "bulkPause", which: "open runs", would: "paused", done: "were asked to pause" },
  resume: { path: "bulkResume", which: "paused runs", would: "resumed", done: "go on" },
  cancel: { path: "bulkCancel", which: "open runs", would: "canceled", done: "were asked to end" },
  retry: { path: "bulkRetry", which: "failed runs", would: "retried", done: "were started again" },
};

function capital(verb: string): string {
  return `${verb[0]?.toUpperCase()}${verb.slice(1)}`;
}

interface Outcome {
  matched: number;
  done: number;
  more: boolean;
  failures: BulkFailure[];
}

async function bulk(verb: BulkVerb, filter: RunFilter, dryRun: boolean): Promise<Outcome> {
  const body = { filter, dryRun, ...(verb === "retry" ? {} : { reason: `${words[verb].would} in the console` }) };
  const res = await post<{ matched?: number; done?: number; runIds?: string[]; more?: boolean; failures?: BulkFailure[] }>(`/v1/runs:${words[verb].path}`, body);
  return { matched: res.matched ?? 0, done: res.done ?? res.runIds?.length ?? 0, more: res.more ?? false, failures: res.failures ?? [] };
}

function Failures({ of }: { of: BulkFailure[] }) {
  return of.length > 0 ? (
    <ul className="fault">
      {of.map((f) => (
        <li key={f.runId}>
          <code>{f.runId}</code> {f.message}
        </li>
      ))}
    </ul>
  ) : null;
}

export function BulkDialog({ verb, filter, onClose }: { verb: BulkVerb; filter: RunFilter; onClose: () => void }) {
  const queries = useQueryClient();
  const dry = useMutation({ mutationFn: () => bulk(verb, filter, true) });
  const real = useMutation({
    mutationFn: () => bulk(verb, filter, false),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["runs"] }),
  });
  const found = dry.data;
  const { which, would, done } = words[verb];
  return (
    <Dialog title={`${capital(verb)} all that match`} open onClose={onClose}>
      <p>The filter of the list says which. A dry run counts them and changes nothing.</p>
      <p className="buttons">
        <button type="button" className="primary" autoFocus onClick={() => dry.mutate()} disabled={dry.isPending || real.isSuccess}>
          Dry run
        </button>
      </p>
      <div role="status">
        {found ? (
          <p>
            <strong>
              {count(found.matched)} {found.matched === 1 ? which.slice(0, -1) : which}
              {found.more ? " and more" : ""}
            </strong>{" "}
            would be {would}.{found.more ? " One request changes as many; repeat it for the rest." : ""}
          </p>
        ) : null}
        {real.data ? (
          <p>
            {count(real.data.done)} {done}
            {real.data.more ? "; there are more" : ""}.
          </p>
        ) : null}
      </div>
      <Failures of={real.data?.failures ?? found?.failures ?? []} />
      <Fault error={dry.error ?? real.error} />
      {found && found.matched > 0 && (!real.data || real.data.more) ? (
        <p className="buttons">
          <button type="button" className={verb === "cancel" ? "danger" : "primary"} onClick={() => real.mutate()} disabled={real.isPending}>
            {capital(verb)} {count(found.matched)} {found.matched === 1 ? "run" : "runs"}
          </button>
        </p>
      ) : null}
    </Dialog>
  );
}

export type ChosenVerb = "pause" | "resume" | "cancel";

/** ChosenDialog changes runs one by one, with their etags: what changed meanwhile is left alone. */
export function ChosenDialog({ verb, runs, onClose }: { verb: ChosenVerb; runs: Run[]; onClose: () => void }) {
  const queries = useQueryClient();
  const [failures, setFailures] = useState<BulkFailure[]>([]);
  const [done, setDone] = useState(0);
  // Whatever the list shows later, this is about what was chosen.
  const [chosen] = useState(runs);
  const will = chosen.filter((r) => verbs[word(r.state)]?.includes(verb));
  const wont = chosen.filter((r) => !will.includes(r));
  const act = useMutation({
    mutationFn: async () => {
      for (const run of will) {
        try {
          await post(`/v1/runs/${run.id}:${verb}`, { reason: `${verb} in the console`, requestId: requestId() });
          setDone((n) => n + 1);
        } catch (err) {
          const e = err instanceof ApiError ? err : new ApiError(0, { message: String(err) });
          setFailures((all) => [...all, { runId: run.id, reason: e.reason, message: e.message }]);
          if (e.status === 0 || e.status === 401) return;
        }
      }
    },
    onSettled: () => queries.invalidateQueries({ queryKey: ["runs"] }),
  });
  const past = words[verb].would;
  return (
    <Dialog title={`${capital(verb)} the chosen runs`} open onClose={onClose}>
      <p>
        <strong>
          {will.length} of {chosen.length}
        </strong>{" "}
        will be {past}:
      </p>
      <ul className="plain scroll" tabIndex={0} aria-label="Runs">
        {will.map((r) => (
          <li key={r.id}>
            {r.graphName || r.id} <span className="muted">{word(r.state)}</span>
          </li>
        ))}
      </ul>
      {wont.length > 0 ? (
        <p className="muted">
          {wont.length} will not, because of {wont.length === 1 ? "its state" : "their states"}: {[...new Set(wont.map((r) => word(r.state)))].join(", ")}.
        </p>
      ) : null}
      <div role="status">{act.isPending || act.isSuccess ? <p>{`${done} of ${will.length} were ${past}.`}</p> : null}</div>
      <Failures of={failures} />
      <p className="buttons">
        <button
          type="button"
          className={verb === "cancel" ? "danger" : "primary"}
          autoFocus
          disabled={will.length === 0 || act.isPending || act.isSuccess}
          onClick={() => act.mutate()}
        >
          {verb} {will.length} {will.length === 1 ? "run" : "runs"}
        </button>
        <button type="button" onClick={onClose}>
          Close
        </button>
      </p>
    </Dialog>
  );
}
