// One run: its graph, timeline, events, questions, and why it stands.
import { Link, navigate, setQuery, useAddress } from "../router";
import { Tabs } from "../ui/filters";
import { count, dollars, duration, word } from "../ui/format";
import { Fault, Json, State, usePageTitle, useNow, When } from "../ui/parts";
import { useShortcuts } from "../ui/shortcuts";
import { Actions } from "./actions";
import { Amend } from "./amend";
import { Elsewhere } from "./elsewhere";
import { Explanation } from "./explain";
import { GraphView } from "./graph";
import { Interrupts } from "./interrupts";
import { EventLog } from "./log";
import { Timeline } from "./timeline";
import { ModelContext, useModel, useRunModel, useTopic } from "./use";
import { NodePanel } from "./visit";

const tabs = [
  { name: "graph", title: "Graph" },
  { name: "timeline", title: "Timeline" },
  { name: "events", title: "Events" },
  { name: "result", title: "Input and result" },
  { name: "amend", title: "Amend" },
];

function Facts() {
  const model = useModel();
  const now = useNow();
  const run = model.run;
  if (!run) return null;
  const tokens = Number(run.usage?.inputTokens ?? 0) + Number(run.usage?.outputTokens ?? 0);
  const n = run.nodes;
  return (
    <p className="small run-facts">
      <code>{run.id}</code>
      {run.parentRunId ? (
        <span>
          of <Link href={`/runs/${run.parentRunId}?node=${encodeURIComponent(run.parentVisit?.nodeId ?? "")}`}>{run.parentVisit?.nodeId || "a run"}</Link>
        </span>
      ) : null}
      {run.forkedFromRunId ? (
        <span>
          fork of <Link href={`/runs/${run.forkedFromRunId}`}>{run.forkedFromRunId}</Link>
        </span>
      ) : null}
      {run.workflow ? <span className="tag">{run.workflow}</span> : null}
      {Object.entries(run.labels ?? {}).map(([k, v]) => (
        <Link key={k} className="tag" href={`/runs?label=${encodeURIComponent(`${k}=${v}`)}`}>
          {k}={v}
        </Link>
      ))}
      <span>
        created <When time={run.createTime} />
      </span>
      {run.startTime ? <span>took {duration((run.endTime ? Date.parse(run.endTime) : now) - Date.parse(run.startTime))}</span> : null}
      {n?.total ? (
        <span>
          {count(n.completed)} of {count(n.total)} nodes{n.failed ? `, ${count(n.failed)} failed` : ""}
        </span>
      ) : null}
      {tokens > 0 ? (
        <span>
          {count(tokens)} tokens {dollars(run.usage?.costNanoUsd)}
        </span>
      ) : null}
      <Elsewhere run={run} />
      <Link href={`/compare?run=${run.id}`}>{run.forkedFromRunId ? "compare with its origin" : "compare"}</Link>
    </p>
  );
}

function Result() {
  const model = useModel();
  const run = model.run;
  if (!run) return null;
  const input: Record<string, unknown> = {};
  if (run.args && run.args.length > 0) input.args = run.args;
  if (run.named && Object.keys(run.named).length > 0) input.named = run.named;
  if (run.context) input.context = run.context;
  return (
    <div className="columns">
      <section>
        <h2>Input</h2>
        {Object.keys(input).length > 0 ? <Json value={input} label="Input" /> : <p className="muted">The run had no input.</p>}
      </section>
      <section>
        <h2>Result</h2>
        {run.error ? <Fault error={new Error(`${run.error.message} (${run.error.reason})`)} /> : null}
        {run.endTime ? <Json value={run.result ?? null} label="Result" /> : <p className="muted">The run has not ended.</p>}
        {run.outputs && Object.keys(run.outputs).length > 1 ? (
          <>
            <h2>Outputs</h2>
            <Json value={run.outputs} label="Outputs" />
          </>
        ) : null}
      </section>
      {run.webhooks && run.webhooks.length > 0 ? (
        <section>
          <h2>Webhooks</h2>
          <ul>
            {run.webhooks.map((w, i) => (
              <li key={`${w.url}-${i}`}>
                <code>{w.url}</code> <span className="muted">{w.events?.map((e) => word(e.replace("WEBHOOK_EVENT_", ""))).join(", ") || "run ended"}</span>
              </li>
            ))}
          </ul>
          <p className="small muted">Deliveries to them are not listed by the API: the log of the executor names those that failed for good.</p>
        </section>
      ) : null}
    </div>
  );
}

function Body() {
  const model = useModel();
  useTopic(model, "run");
  useTopic(model, "graph");
  useTopic(model, "stream");
  const { query } = useAddress();
  const tab = tabs.find((t) => t.name === query.get("tab"))?.name ?? "graph";
  const chosen = query.get("node") ?? "";
  const choose = (node: string) => setQuery({ node });
  usePageTitle(model.run?.graphName || model.id);
  useShortcuts([
    ...tabs.map((t, i) => ({ keys: String(i + 1), does: t.title, run: () => setQuery({ tab: t.name }) })),
    { keys: "D", does: "Compare with another run", run: () => navigate(`/compare?run=${model.id}`) },
    { keys: "f", does: "Find a node", run: () => document.getElementById("find-node")?.focus() },
    { keys: "Escape", does: "Close the node", run: () => choose("") },
  ]);
  if (!model.run) {
    return model.error ? <Fault error={model.error} /> : <p className="muted">Loading…</p>;
  }
  return (
    <>
      <div className="heading">
        <h1>{model.run.graphName || "Run"}</h1>
        <span role="status">
          <State of={model.run.state} reason={model.run.stateReason} />
        </span>
        {model.stream === "broken" ? <span className="small muted">not live, connecting again</span> : null}
        <Actions />
      </div>
      <Facts />
      <Fault error={model.error} />
      <Explanation onChoose={choose} />
      <Interrupts />
      <Tabs label="Views of the run" tabs={tabs} at={tab} />
      <div className="split">
        <div className="view">
          {tab === "graph" && model.graph ? <GraphView graph={model.graph} chosen={chosen} onChoose={choose} /> : null}
          {tab === "timeline" ? <Timeline chosen={chosen} onChoose={choose} /> : null}
          {tab === "events" ? <EventLog /> : null}
          {tab === "result" ? <Result /> : null}
          {tab === "amend" && model.graph ? <Amend /> : null}
        </div>
        {chosen && (tab === "graph" || tab === "timeline") ? <NodePanel key={chosen} id={chosen} onClose={() => choose("")} /> : null}
      </div>
    </>
  );
}

export default function RunPage({ id }: { id: string }) {
  const model = useRunModel(id);
  return (
    <ModelContext.Provider value={model}>
      <Body />
    </ModelContext.Provider>
  );
}
