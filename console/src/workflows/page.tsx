// One workflow of the catalog.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { get, post, remove, requestId } from "../api/client";
import type { ResolveWorkflow, Workflow, WorkflowVersion } from "../api/types";
import { Link, navigate, useAddress } from "../router";
import { Act, FormDialog, Text } from "../ui/act";
import { useFeed } from "../ui/feed";
import { Tabs } from "../ui/filters";
import { count } from "../ui/format";
import { Fault, Json, State, usePageTitle, When } from "../ui/parts";
import { type Item, Picture, type Way } from "../ui/picture";
import { WorkflowEditor } from "./editor";
import { ForecastOf } from "./forecast";
import { Start } from "./start";
import { Triggers } from "./triggers";
import { Versions } from "./versions";

const tabs = [
  { name: "about", title: "Graph and forecast" },
  { name: "start", title: "Test runs" },
  { name: "versions", title: "Versions" },
  { name: "edit", title: "Edit" },
  { name: "triggers", title: "Triggers" },
];

function About({ workflow, source }: { workflow: Workflow; source: WorkflowVersion | undefined }) {
  const resolved = useQuery({
    queryKey: ["workflow", workflow.slug, "graph", workflow.latestVersion],
    queryFn: ({ signal }) => get<ResolveWorkflow>("/v1/workflows:resolve", { ref: `${workflow.slug}@${workflow.latestVersion}` }, signal),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const graph = resolved.data?.graph;
  const [chosen, setChosen] = useState("");
  const items = useMemo<Item[]>(() => (graph?.nodes ?? []).map((n) => ({ id: n.id ?? "", title: n.name || n.id || "", about: n.actor ?? "", kind: n.id === chosen ? "chosen" : "" })), [graph, chosen]);
  const ways = useMemo<Way[]>(() => (graph?.edges ?? []).map((e) => ({ from: e.from ?? "", to: e.to ?? "", back: e.kind === "EDGE_KIND_BACK", about: e.when })), [graph]);
  const node = graph?.nodes?.find((n) => n.id === chosen);
  return (
    <>
      <Fault error={resolved.error} />
      <div className="plan-box" tabIndex={0} role="region" aria-label="Graph of the newest version">
        {graph ? <Picture label={`${items.length} nodes`} items={items} ways={ways} onChoose={setChosen} /> : null}
      </div>
      {node ? <Json value={node} label={`Node ${chosen}`} /> : null}
      <div className="columns">
        <ForecastOf body={{ ref: `${workflow.slug}@${workflow.latestVersion}` }} />
        <section>
          <h2>Definition</h2>
          <Json value={source?.source} label="Definition" />
        </section>
      </div>
    </>
  );
}

function Actions({ workflow }: { workflow: Workflow }) {
  const queries = useQueryClient();
  const [form, setForm] = useState<"expose" | "deprecate" | undefined>();
  const slug = workflow.slug;
  const again = () => queries.invalidateQueries({ queryKey: ["workflow", slug] });
  const call = async (verb: string, body: Record<string, unknown>) => {
    await post<Workflow>(`/v1/workflows/${slug}:${verb}`, { ...body, requestId: requestId() });
    await again();
  };
  return (
    <div className="buttons">
      {workflow.exposed ? (
        <Act label="Expose no more" run={() => call("expose", { undo: true })} />
      ) : (
        <button type="button" onClick={() => setForm("expose")}>
          Expose…
        </button>
      )}
      {workflow.state === "WORKFLOW_STATE_DEPRECATED" ? (
        <Act label="Take the deprecation back" run={() => call("deprecate", { undo: true })} />
      ) : (
        <button type="button" onClick={() => setForm("deprecate")}>
          Deprecate…
        </button>
      )}
      <Act
        label="Delete…"
        danger
        ask={<p>It starts no runs any more; those that have begun go on. Its name is free after 30 days.</p>}
        run={async () => {
          await remove(`/v1/workflows/${slug}?etag=${encodeURIComponent(workflow.etag ?? "")}`);
          navigate("/workflows");
        }}
      />
      {form === "expose" ? (
        <FormDialog title="Expose the workflow" submit="Expose it" onClose={() => setForm(undefined)} send={(f) => call("expose", { version: f.version })}>
          <p className="small">It is listed among the models of chat completions.</p>
          <Text name="version" label="Version" value="latest" about="latest, an alias, or a number." autoFocus />
        </FormDialog>
      ) : null}
      {form === "deprecate" ? (
        <FormDialog title="Deprecate the workflow" submit="Deprecate it" onClose={() => setForm(undefined)} send={(f) => call("deprecate", { message: f.message })}>
          <p className="small">It runs, and is not discovered.</p>
          <Text name="message" label="Why, and what is to be used instead" required autoFocus rows={2} />
        </FormDialog>
      ) : null}
    </div>
  );
}

function NewWorkflow() {
  usePageTitle("New workflow");
  return (
    <>
      <div className="heading">
        <h1>New workflow</h1>
      </div>
      <WorkflowEditor slug="" source="" />
    </>
  );
}

export default function WorkflowPage({ id }: { id: string }) {
  return id === "new" ? <NewWorkflow /> : <Known slug={id} />;
}

function Known({ slug }: { slug: string }) {
  const { query } = useAddress();
  const feed = useFeed({ workflowSlug: slug, kinds: ["workflow_published", "run_ended"] }, [["workflow", slug], ["forecast"]]);
  const found = useQuery({ queryKey: ["workflow", slug, "itself"], queryFn: ({ signal }) => get<Workflow>(`/v1/workflows/${slug}`, {}, signal) });
  const workflow = found.data;
  const source = useQuery({
    queryKey: ["workflow", slug, "version", workflow?.latestVersion],
    queryFn: ({ signal }) => get<WorkflowVersion>(`/v1/workflows/${slug}/versions/${workflow?.latestVersion}`, {}, signal),
    enabled: Boolean(workflow?.latestVersion),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const tab = tabs.find((t) => t.name === query.get("tab"))?.name ?? "about";
  usePageTitle(slug);
  if (!workflow) return found.error ? <Fault error={found.error} /> : <p className="muted">Loading…</p>;
  return (
    <>
      <div className="heading">
        <h1>{workflow.name || slug}</h1>
        <State of={workflow.state} />
        {feed === "broken" ? <span className="small muted">not live, connecting again</span> : null}
        <Actions workflow={workflow} />
      </div>
      <p className="small run-facts">
        <code>{slug}</code>
        <span>version {workflow.latestVersion}</span>
        {workflow.exposed ? <span className="tag">exposed: {workflow.exposed}</span> : null}
        {workflow.forkedFrom ? (
          <span>
            fork of <Link href={`/workflows/${workflow.forkedFrom.split("@")[0]}`}>{workflow.forkedFrom}</Link>
          </span>
        ) : null}
        {workflow.tags?.map((t) => (
          <span key={t} className="tag">
            {t}
          </span>
        ))}
        <span>
          {count(workflow.size?.nodes)} nodes, changed <When time={workflow.updateTime} />
        </span>
      </p>
      <p>{workflow.description}</p>
      {workflow.deprecation ? <p className="explain">Deprecated: {workflow.deprecation}</p> : null}
      <Tabs label="Views of the workflow" tabs={tabs} at={tab} />
      {tab === "about" ? <About workflow={workflow} source={source.data} /> : null}
      {tab === "start" ? <Start workflow={workflow} /> : null}
      {tab === "versions" ? <Versions workflow={workflow} /> : null}
      {tab === "edit" && source.data ? <WorkflowEditor key={workflow.latestVersion} slug={slug} source={source.data.source ?? ""} form={source.data.form} /> : null}
      {tab === "triggers" ? <Triggers slug={slug} /> : null}
    </>
  );
}
