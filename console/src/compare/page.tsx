// Two runs side by side: graph, results, times, cost, and the first visit that differs.
import { type ReactNode, useMemo } from "react";
import type { CompareRuns, Run, Visit, VisitComparison } from "../api/types";
import { Link, setQuery, useAddress } from "../router";
import { useFeed } from "../ui/feed";
import { Committed, Table } from "../ui/filters";
import { count, dollars, duration, short } from "../ui/format";
import { More, usePages } from "../ui/pages";
import { Command, Empty, Json, State, Status, usePageTitle, When } from "../ui/parts";
import { useShortcuts } from "../ui/shortcuts";
import { Graphs } from "./graphs";

function took(of: { startTime?: string; endTime?: string } | undefined): number | undefined {
  return of?.startTime && of.endTime ? Date.parse(of.endTime) - Date.parse(of.startTime) : undefined;
}

/** more says how much larger a number of the run is than that of the base. */
function more(base: number | undefined, run: number | undefined, write: (n: number) => string): string {
  if (base === undefined || run === undefined || base === run) return "";
  return `${run > base ? "+" : "−"}${write(Math.abs(run - base))}`;
}

function Sides({ base, run }: { base: Run | undefined; run: Run | undefined }) {
  const tokens = (r: Run | undefined) => Number(r?.usage?.inputTokens ?? 0) + Number(r?.usage?.outputTokens ?? 0);
  const cost = (r: Run | undefined) => Number(r?.usage?.costNanoUsd ?? 0);
  const money = (n: number) => dollars(String(Math.round(n))) || "$0";
  const numbers: [string, number | undefined, number | undefined, (n: number) => string][] = [
    ["Time", took(base), took(run), duration],
    ["Calls", Number(base?.usage?.calls ?? 0), Number(run?.usage?.calls ?? 0), count],
    ["Tokens", tokens(base), tokens(run), count],
    ["Cost", cost(base), cost(run), money],
    ["Nodes", base?.nodes?.total ?? 0, run?.nodes?.total ?? 0, count],
    ["Nodes failed", base?.nodes?.failed ?? 0, run?.nodes?.failed ?? 0, count],
  ];
  const words: [string, (r: Run | undefined) => ReactNode][] = [
    ["Run", (r) => <Link href={`/runs/${r?.id}`}>{r?.graphName || r?.id}</Link>],
    ["State", (r) => <State of={r?.state} reason={r?.stateReason} />],
    ["Workflow", (r) => r?.workflow],
    ["Created", (r) => <When time={r?.createTime} />],
  ];
  return (
    <Table label="The two runs" head={["What", "Base", "Run", "Difference"]}>
      {words.map(([name, of]) => (
        <tr key={name}>
          <th scope="row">{name}</th>
          <td data-name="Base">{of(base)}</td>
          <td data-name="Run">{of(run)}</td>
          <td />
        </tr>
      ))}
      {numbers.map(([name, a, b, write]) => (
        <tr key={name}>
          <th scope="row">{name}</th>
          <td data-name="Base">{a === undefined ? "" : write(a)}</td>
          <td data-name="Run">{b === undefined ? "" : write(b)}</td>
          <td data-name="Difference">{more(a, b, write)}</td>
        </tr>
      ))}
    </Table>
  );
}

function Outcome({ of, bytes, name }: { of: Visit | undefined; bytes: string | undefined; name: string }) {
  if (!of) return <p className="muted">The {name} has no such visit.</p>;
  const values = of.values ?? [];
  return (
    <>
      <p>
        <State of={of.state} /> {took(of) === undefined ? "" : duration(took(of) ?? 0)}
      </p>
      {of.error?.message ? (
        <p className="error-text">
          {of.error.message} <code>{of.error.reason}</code>
        </p>
      ) : null}
      {values.length > 0 ? (
        <Json value={values.length === 1 ? values[0] : values} label={`Result in the ${name}`} />
      ) : Number(bytes) > 0 ? (
        <p className="small muted">
          Its result has {count(bytes)} bytes: <Link href={`/runs/${of.runId}?node=${encodeURIComponent(of.nodeId ?? "")}`}>see it in the run</Link>.
        </p>
      ) : null}
    </>
  );
}

function First({ of }: { of: CompareRuns }) {
  const v = of.firstDifference;
  if (!v) return <p className="explain">No visit differs.</p>;
  return (
    <section aria-label="First difference">
      <h2>
        First difference: <code>{v.nodeId}</code> {(v.visit ?? 1) > 1 ? `visit ${v.visit}` : ""} <span className="muted">{v.differences?.join(", ")}</span>
      </h2>
      <div className="beside">
        <div>
          <h3>Base</h3>
          <Outcome of={v.base} bytes={v.baseBytes} name="base" />
        </div>
        <div>
          <h3>Run</h3>
          <Outcome of={v.run} bytes={v.runBytes} name="run" />
        </div>
      </div>
    </section>
  );
}

function Results({ of }: { of: CompareRuns }) {
  const side = (name: string, run: Run | undefined, value: unknown) => (
    <div>
      <h3>{name}</h3>
      {value !== undefined ? (
        <Json value={value} label={`Result of the ${name.toLowerCase()}`} />
      ) : (
        <p className="muted">
          None, or too large to be shown here: <Link href={`/runs/${run?.id}?tab=result`}>see the run</Link>.
        </p>
      )}
    </div>
  );
  return (
    <section aria-label="Results">
      <h2>{of.resultDiffers ? "The results differ" : "The results are the same"}</h2>
      {of.inputFields && of.inputFields.length > 0 ? (
        <p>
          Of the input these differ: <code>{of.inputFields.join(", ")}</code>
        </p>
      ) : (
        <p className="muted">Both had the same input.</p>
      )}
      <div className="beside">
        {side("Base", of.base, of.baseResult)}
        {side("Run", of.run, of.runResult)}
      </div>
    </section>
  );
}

function VisitRow({ of: v }: { of: VisitComparison }) {
  const a = took(v.base);
  const b = took(v.run);
  const cell = (of: Visit | undefined) =>
    of ? (
      <>
        <State of={of.state} /> {took(of) === undefined ? "" : duration(took(of) ?? 0)} {dollars(of.usage?.costNanoUsd)}
        <div className="small muted value">{short(of.error?.message ?? (of.values?.length === 1 ? of.values[0] : (of.values ?? "")), 60)}</div>
      </>
    ) : (
      <span className="muted">not there</span>
    );
  return (
    <tr>
      <th scope="row">
        {v.nodeId}
        {(v.visit ?? 1) > 1 ? ` ×${v.visit}` : ""}
      </th>
      <td data-name="Differs">{v.differences?.join(", ") || "same"}</td>
      <td data-name="Base">{cell(v.base)}</td>
      <td data-name="Run">{cell(v.run)}</td>
      <td data-name="Time">{more(a, b, duration)}</td>
    </tr>
  );
}

function Comparison({ run, base, all }: { run: string; base: string; all: boolean }) {
  const list = usePages<CompareRuns>(["compare", run], `/v1/runs/${encodeURIComponent(run)}:compare`, { baseRunId: base, allVisits: all });
  useFeed({ runId: run, kinds: ["run_ended", "run_paused", "run_resumed"] }, [["compare", run]]);
  const first = list.data?.pages[0];
  const visits = useMemo(() => list.data?.pages.flatMap((p) => p.visits ?? []) ?? [], [list.data]);
  if (!first) return <More of={list} />;
  return (
    <>
      <Status>
        {count(first.differentVisits)} visits differ, {count(first.sameVisits)} are the same
        {first.truncated ? "; of more than 20,000 visits only the first are compared" : ""}
      </Status>
      <Sides base={first.base} run={first.run} />
      <First of={first} />
      <Results of={first} />
      <Graphs of={first} visits={visits} />
      <section aria-label="Visits">
        <h2>Visits</h2>
        <label className="small">
          <input type="checkbox" checked={all} onChange={(e) => setQuery({ all: e.target.checked ? "1" : "" })} /> with those that do not differ
        </label>
        {visits.length > 0 ? (
          <Table label="Visits side by side" head={["Node", "Differs", "Base", "Run", "Time"]}>
            {visits.map((v) => (
              <VisitRow key={`${v.nodeId} ${v.visit}`} of={v} />
            ))}
          </Table>
        ) : null}
      </section>
      <More of={list} />
    </>
  );
}

export default function ComparePage() {
  usePageTitle("Compare");
  const { query } = useAddress();
  const run = query.get("run") ?? "";
  const base = query.get("base") ?? "";
  useShortcuts([
    { keys: "s", does: "Change the sides", run: () => base && setQuery({ run: base, base: run }) },
    { keys: "/", does: "Choose the base", run: () => document.getElementById("compare-base")?.focus() },
  ]);
  return (
    <>
      <div className="heading">
        <h1>Compare</h1>
        <div className="buttons">
          <button type="button" disabled={!run || !base} onClick={() => setQuery({ run: base, base: run })}>
            Change the sides
          </button>
        </div>
      </div>
      <section className="filters" aria-label="Runs">
        <div className="fields">
          <Committed label="Base" name="base" id="compare-base" value={base} placeholder="the origin of a fork" />
          <Committed label="Run" name="run" value={run} placeholder="run_…" />
        </div>
      </section>
      {run ? (
        <Comparison key={`${run} ${base}`} run={run} base={base} all={query.has("all")} />
      ) : (
        <Empty title="No run to compare">
          <p>
            Choose two runs in <Link href="/runs">the list</Link> and press Compare, or follow “compare” on the page of a run. A fork is compared with the run of which it is one. In a
            shell:
          </p>
          <Command>epigraph runs compare run_01… run_02…</Command>
        </Empty>
      )}
    </>
  );
}
