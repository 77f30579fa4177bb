// The list of runs.
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { get } from "../api/client";
import type { ListRuns, Run } from "../api/types";
import { Link, navigate, useAddress } from "../router";
import { count, dollars, duration, word } from "../ui/format";
import { Command, Empty, Fault, State, Status, usePageTitle, useNow, When } from "../ui/parts";
import { step, useShortcuts } from "../ui/shortcuts";
import { isOpen } from "../ui/states";
import { BulkDialog, type BulkVerb, ChosenDialog, type ChosenVerb } from "./bulk";
import { bulkFilter, isEmpty, listQuery, readFilter } from "./filter";
import { Filters } from "./filters";
import { refreshAfter, useRunFeed } from "./live";

const pageSize = 50;

function Progress({ run }: { run: Run }) {
  const n = run.nodes;
  if (!n?.total) return null;
  const text = `${n.completed ?? 0} of ${n.total} nodes completed${n.failed ? `, ${n.failed} failed` : ""}${n.running ? `, ${n.running} open` : ""}`;
  return (
    <span className="progress" title={text}>
      <progress max={n.total} value={(n.completed ?? 0) + (n.skipped ?? 0)} aria-label={text} />
      <span className="small">
        {n.completed ?? 0}/{n.total}
      </span>
    </span>
  );
}

function Took({ run }: { run: Run }) {
  const now = useNow();
  if (!run.startTime) return null;
  return <>{duration((run.endTime ? Date.parse(run.endTime) : now) - Date.parse(run.startTime))}</>;
}

function Row({ run, chosen, onChoose }: { run: Run; chosen: boolean; onChoose: () => void }) {
  const tokens = Number(run.usage?.inputTokens ?? 0) + Number(run.usage?.outputTokens ?? 0);
  const name = run.graphName || "run";
  return (
    <tr aria-selected={chosen}>
      <td>
        <input type="checkbox" checked={chosen} onChange={onChoose} aria-label={`Choose ${name} ${run.id}`} />
      </td>
      <td data-name="State">
        <State of={run.state} reason={isOpen(run) || word(run.state) === "completed" ? undefined : run.stateReason} />
      </td>
      <td data-name="Run" className="name">
        <Link href={`/runs/${run.id}`} data-row>
          {name}
        </Link>{" "}
        <span className="muted small id">{run.id}</span>
        {run.workflow ? <span className="tag">{run.workflow}</span> : null}
        {Object.entries(run.labels ?? {}).map(([k, v]) => (
          <Link key={k} className="tag" href={`/runs?label=${encodeURIComponent(`${k}=${v}`)}`}>
            {k}={v}
          </Link>
        ))}
        {run.parentRunId ? (
          <Link className="small" href={`/runs/${run.parentRunId}`}>
            of a run
          </Link>
        ) : null}
      </td>
      <td data-name="Nodes">
        <Progress run={run} />
      </td>
      <td data-name="Created">
        <When time={run.createTime} />
      </td>
      <td data-name="Took">
        <Took run={run} />
      </td>
      <td data-name="Used" className="number">
        {tokens > 0 ? `${count(tokens)} tokens` : ""} {dollars(run.usage?.costNanoUsd)}
      </td>
    </tr>
  );
}

function NoRuns({ filtered }: { filtered: boolean }) {
  return filtered ? (
    <Empty title="No run matches">
      <p>
        Take a filter away, or <Link href="/runs">see all runs</Link>.
      </p>
    </Empty>
  ) : (
    <Empty title="No run yet">
      <p>A run is one execution of a graph. Start the first one from a plan that a model wrote:</p>
      <Command>{"printf 'A -> B, C\\nB, C -> D\\n' | epigraph run --actor template --with text='did {{ node }}'"}</Command>
      <p>
        or <Link href="/playground">paste a plan into the playground</Link> and run it there.
      </p>
    </Empty>
  );
}

/** compare shows two runs side by side: the earlier one is the base. */
function compare(two: Run[]) {
  const [base, run] = [...two].sort((a, b) => Date.parse(a.createTime ?? "") - Date.parse(b.createTime ?? ""));
  navigate(`/compare?run=${run?.id}&base=${base?.id}`);
}

export function RunsPage() {
  usePageTitle("Runs");
  const { query } = useAddress();
  const filter = useMemo(() => readFilter(query), [query]);
  const feed = useRunFeed();
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [bulk, setBulk] = useState<BulkVerb | undefined>();
  const [verb, setVerb] = useState<ChosenVerb | undefined>();
  const list = useInfiniteQuery({
    queryKey: ["runs", filter],
    queryFn: ({ pageParam, signal }) => get<ListRuns>("/v1/runs", { ...listQuery(filter, Date.now()), pageSize, pageToken: pageParam }, signal),
    initialPageParam: "",
    getNextPageParam: (last) => last.nextPageToken || undefined,
    placeholderData: keepPreviousData,
    refetchInterval: (q) => refreshAfter(q.state.data?.pages.flatMap((p) => p.runs ?? []) ?? [], feed),
  });
  const runs = useMemo(() => list.data?.pages.flatMap((p) => p.runs ?? []) ?? [], [list.data]);
  const picked = runs.filter((r) => chosen.has(r.id ?? ""));
  const choose = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    setChosen(next);
  };
  useShortcuts([
    { keys: "j", does: "Next run", run: () => step(1) },
    { keys: "k", does: "Previous run", run: () => step(-1) },
    {
      keys: "x",
      does: "Choose the run, or not",
      run: () => document.activeElement?.closest("tr")?.querySelector<HTMLInputElement>("input[type=checkbox]")?.click(),
    },
    { keys: "D", does: "Compare the two chosen runs", run: () => picked.length === 2 && compare(picked) },
    { keys: "/", does: "Filter by a label", run: () => document.getElementById("label-filter")?.focus() },
  ]);
  const byFilter = bulkFilter(filter, Date.now());

  return (
    <>
      <div className="heading">
        <h1>Runs</h1>
        <Status>
          {list.isFetching && !list.isFetchedAfterMount ? "loading" : `${count(runs.length)}${list.hasNextPage ? "+" : ""} shown`}
          {feed === "broken" ? " · not live, connecting again" : ""}
        </Status>
        <div className="buttons">
          {picked.length > 0 ? (
            <>
              <span className="small">{picked.length} chosen</span>
              {picked.length === 2 ? (
                <button type="button" className="primary" onClick={() => compare(picked)}>
                  Compare
                </button>
              ) : null}
              {(["pause", "resume", "cancel"] as const).map((v) => (
                <button key={v} type="button" onClick={() => setVerb(v)}>
                  {v}
                </button>
              ))}
            </>
          ) : (
            <>
              {(["pause", "resume", "cancel", "retry"] as const).map((v) => (
                <button key={v} type="button" disabled={!byFilter || runs.length === 0} onClick={() => setBulk(v)}>
                  {{ pause: "Pause all…", resume: "Resume paused…", cancel: "Cancel all…", retry: "Retry failed…" }[v]}
                </button>
              ))}
            </>
          )}
        </div>
      </div>
      <Filters filter={filter} />
      <Fault error={list.error} retry={() => list.refetch()} />
      {runs.length > 0 ? (
        <table className="list" aria-label="Runs">
          <thead>
            <tr>
              <th>
                <input
                  type="checkbox"
                  aria-label="Choose all that are shown"
                  checked={picked.length === runs.length}
                  onChange={() => setChosen(new Set(picked.length === runs.length ? [] : runs.map((r) => r.id ?? "")))}
                />
              </th>
              <th>State</th>
              <th>Run</th>
              <th>Nodes</th>
              <th>Created</th>
              <th>Took</th>
              <th className="number">Used</th>
            </tr>
          </thead>
          <tbody>
            {runs.map((r) => (
              <Row key={r.id} run={r} chosen={chosen.has(r.id ?? "")} onChoose={() => choose(r.id ?? "")} />
            ))}
          </tbody>
        </table>
      ) : list.isSuccess && !list.isPlaceholderData ? (
        <NoRuns filtered={!isEmpty(filter)} />
      ) : null}
      {list.hasNextPage ? (
        <p className="buttons">
          <button type="button" onClick={() => list.fetchNextPage()} disabled={list.isFetchingNextPage}>
            {list.isFetchingNextPage ? "Loading…" : "Show more"}
          </button>
        </p>
      ) : null}
      {bulk && byFilter ? <BulkDialog verb={bulk} filter={byFilter} onClose={() => setBulk(undefined)} /> : null}
      {verb ? <ChosenDialog verb={verb} runs={picked} onClose={() => setVerb(undefined)} /> : null}
    </>
  );
}
