// The catalog of workflows: as a list, or as what meets requirements.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { post } from "../api/client";
import type { DiscoverWorkflows, ListWorkflows, Workflow } from "../api/types";
import { Link, navigate, useAddress } from "../router";
import { listOf } from "../ui/act";
import { useFeed } from "../ui/feed";
import { Chips, Committed, Pick, Table } from "../ui/filters";
import { count, dollars, word } from "../ui/format";
import { More, usePages } from "../ui/pages";
import { Command, Empty, Fault, State, Status, usePageTitle, When } from "../ui/parts";
import { step, useShortcuts } from "../ui/shortcuts";

const states = ["active", "deprecated"] as const;

function percent(rate: number | undefined): string {
  return rate === undefined ? "" : `${Math.round(rate * 100)} %`;
}

function Row({ of }: { of: Workflow }) {
  const h = of.history;
  const runs = Number(h?.completed ?? 0) + Number(h?.failed ?? 0) + Number(h?.canceled ?? 0);
  return (
    <tr>
      <td data-name="State">
        <State of={of.state} />
      </td>
      <td data-name="Workflow" className="name">
        <Link href={`/workflows/${of.slug}`} data-row>
          {of.slug}
        </Link>{" "}
        <span className="muted small">{of.description}</span>{" "}
        {of.tags?.map((t) => (
          <Link key={t} className="tag" href={`/workflows?tag=${encodeURIComponent(t)}`}>
            {t}
          </Link>
        ))}
        {of.exposed ? <span className="tag">exposed</span> : null}
      </td>
      <td data-name="Version">{of.latestVersion}</td>
      <td data-name="Runs">{runs > 0 ? `${count(runs)} runs, ${percent(h?.successRate)} well` : ""}</td>
      <td data-name="Changed">
        <When time={of.updateTime} />
      </td>
    </tr>
  );
}

interface Wanted {
  query: string;
  steps: string;
  tools: string;
}

/** Found is what discovery finds, with what it has and misses. */
function Found({ wanted, tags }: { wanted: Wanted; tags: string }) {
  const found = useQuery({
    queryKey: ["workflows", "discover", wanted, tags],
    queryFn: ({ signal }) =>
      post<DiscoverWorkflows>(
        "/v1/workflows:discover",
        { query: wanted.query, requirements: { nodeTypes: listOf(wanted.steps), tools: listOf(wanted.tools), tags: listOf(tags) }, limit: 50 },
        signal,
      ),
    placeholderData: keepPreviousData,
  });
  const matches = found.data?.matches ?? [];
  return (
    <>
      <Fault error={found.error} />
      {matches.length > 0 ? (
        <Table label="Workflows found" head={["Score", "Workflow", "Has", "Misses", "Success", "Cost"]}>
          {matches.map((m) => (
            <tr key={m.workflowId}>
              <td data-name="Score">{percent(m.matchScore)}</td>
              <td data-name="Workflow" className="name">
                <Link href={`/workflows/${m.slug}`} data-row>
                  {m.slug}
                </Link>{" "}
                <span className="muted small">{m.description}</span> <span className="tag">{word(m.recommendation)}</span>
              </td>
              <td data-name="Has">{m.has?.join(", ")}</td>
              <td data-name="Misses">{m.missing?.join(", ")}</td>
              <td data-name="Success">{Number(m.executionCount) > 0 ? percent(m.successRate) : ""}</td>
              <td data-name="Cost">{dollars(m.nanoUsd)}</td>
            </tr>
          ))}
        </Table>
      ) : found.isSuccess ? (
        <Empty title="No workflow matches">
          <p>
            Ask for less, or <Link href="/workflows">see the whole catalog</Link>.
          </p>
        </Empty>
      ) : null}
    </>
  );
}

function NoWorkflows({ filtered }: { filtered: boolean }) {
  if (filtered) {
    return (
      <Empty title="No workflow matches">
        <p>
          Take a filter away, or <Link href="/workflows">see the whole catalog</Link>.
        </p>
      </Empty>
    );
  }
  return (
    <Empty title="No workflow yet">
      <p>A workflow is steps in a file, which the server keeps by name and version.</p>
      <p>
        <Link href="/workflows/new">Write the first one in the editor</Link>, or put a file there:
      </p>
      <Command>epigraph workflows create digest.yaml</Command>
    </Empty>
  );
}

export default function WorkflowsPage() {
  usePageTitle("Workflows");
  const { query } = useAddress();
  const chosen = query.getAll("state").filter((s) => (states as readonly string[]).includes(s));
  const tags = query.get("tag") ?? "";
  const exposed = query.get("exposed") ?? "";
  const wanted: Wanted = { query: query.get("q") ?? "", steps: query.get("steps") ?? "", tools: query.get("tools") ?? "" };
  const discovers = Object.values(wanted).some(Boolean);
  const filter = { states: chosen.map((s) => `WORKFLOW_STATE_${s.toUpperCase()}`), tags: listOf(tags), exposed };
  const list = usePages<ListWorkflows>(["workflows"], "/v1/workflows", filter, !discovers);
  const feed = useFeed({ kinds: ["workflow_published", "run_ended"] }, [["workflows"]]);
  const all = list.data?.pages.flatMap((p) => p.workflows ?? []) ?? [];
  useShortcuts([
    { keys: "j", does: "Next workflow", run: () => step(1) },
    { keys: "k", does: "Previous workflow", run: () => step(-1) },
    { keys: "/", does: "Search", run: () => document.getElementById("workflow-search")?.focus() },
    { keys: "n", does: "New workflow", run: () => navigate("/workflows/new") },
  ]);
  return (
    <>
      <div className="heading">
        <h1>Workflows</h1>
        <Status>
          {discovers ? "found by what they can do" : list.isLoading ? "loading" : `${count(all.length)}${list.hasNextPage ? "+" : ""} shown`}
          {feed === "broken" ? " · not live, connecting again" : ""}
        </Status>
        <div className="buttons">
          <Link href="/workflows/new" className="button primary">
            New workflow
          </Link>
        </div>
      </div>
      <section className="filters" aria-label="Filters">
        <Chips legend="States" name="state" all={states} chosen={chosen} />
        <div className="fields">
          <Committed label="Search by words" name="q" value={wanted.query} id="workflow-search" placeholder="refund letter" />
          <Committed label="Types of steps" name="steps" value={wanted.steps} placeholder="agent, http" />
          <Committed label="Tools" name="tools" value={wanted.tools} placeholder="http, mail" />
          <Committed label="Tags" name="tag" value={tags} />
          <Pick label="Exposed" name="exposed" value={exposed} options={[["", "any"], ["true", "exposed"]]} />
        </div>
      </section>
      {discovers ? (
        <Found wanted={wanted} tags={tags} />
      ) : all.length > 0 ? (
        <Table label="Workflows" head={["State", "Workflow", "Version", "Runs", "Changed"]}>
          {all.map((w) => (
            <Row key={w.id} of={w} />
          ))}
        </Table>
      ) : list.isSuccess && !list.isPlaceholderData ? (
        <NoWorkflows filtered={chosen.length > 0 || tags !== "" || exposed !== ""} />
      ) : null}
      {discovers ? null : <More of={list} />}
    </>
  );
}
