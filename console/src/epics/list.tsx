// The list of epics: by state and tag, or found by words.
import { useState } from "react";
import type { Epic, ListEpics, SearchEpics } from "../api/types";
import { Link, useAddress } from "../router";
import { Chips, Committed, Table } from "../ui/filters";
import { useFeed } from "../ui/feed";
import { count, dollars } from "../ui/format";
import { More, usePages } from "../ui/pages";
import { Command, Empty, State, Status, usePageTitle, When } from "../ui/parts";
import { step, useShortcuts } from "../ui/shortcuts";
import { listOf } from "../ui/act";
import { EpicForm } from "./forms";
import { epicStates } from "./states";

function Row({ epic, why }: { epic: Epic; why?: string[] }) {
  return (
    <tr>
      <td data-name="State">
        <State of={epic.state} reason={epic.pauseReason} />
      </td>
      <td data-name="Epic" className="name">
        <Link href={`/epics/${epic.id}`} data-row>
          {epic.title || epic.id}
        </Link>{" "}
        {epic.tags?.map((t) => (
          <Link key={t} className="tag" href={`/epics?tag=${encodeURIComponent(t)}`}>
            {t}
          </Link>
        ))}
        {why && why.length > 0 ? <span className="small muted">has {why.join(", ")}</span> : null}
      </td>
      <td data-name="Tasks">
        {count(epic.completedTasks)} of {count(epic.totalTasks)}
        {epic.failedTasks ? `, ${count(epic.failedTasks)} failed` : ""}
      </td>
      <td data-name="Created">
        <When time={epic.createTime} />
      </td>
      <td data-name="Used" className="number">
        {Number(epic.spentTokens) > 0 ? `${count(epic.spentTokens)} tokens` : ""} {dollars(epic.spentNanoUsd)}
      </td>
    </tr>
  );
}

function NoEpics({ filtered, onCreate }: { filtered: boolean; onCreate: () => void }) {
  if (filtered) {
    return (
      <Empty title="No epic matches">
        <p>
          Take a filter away, or <Link href="/epics">see all epics</Link>.
        </p>
      </Empty>
    );
  }
  return (
    <Empty title="No epic yet">
      <p>An epic is a goal with tasks and a budget. Runs work on its tasks, and what they use is booked on it.</p>
      <p className="buttons">
        <button type="button" className="primary" onClick={onCreate}>
          Create the first epic
        </button>
      </p>
      <p>Or with the command line:</p>
      <Command>{"epigraph epics create 'Launch the new release' --budget-usd 5"}</Command>
    </Empty>
  );
}

export default function EpicsPage() {
  usePageTitle("Epics");
  const { query } = useAddress();
  const [creating, setCreating] = useState(false);
  const text = query.get("q") ?? "";
  const chosen = query.getAll("state").filter((s) => (epicStates as readonly string[]).includes(s));
  const tags = query.get("tag") ?? "";
  const filter = { states: chosen.map((s) => `EPIC_STATE_${s.toUpperCase()}`), tags: listOf(tags) };
  const list = usePages<ListEpics>(["epics"], "/v1/epics", filter, text === "");
  const search = usePages<SearchEpics>(["epics", "search"], "/v1/epics:search", { ...filter, query: text }, text !== "");
  const feed = useFeed({ kinds: ["epic_created", "epic_updated", "epic_deleted", "task_updated", "usage_booked"] }, [["epics"]]);
  const shown = text ? search : list;
  const rows = text
    ? (search.data?.pages.flatMap((p) => p.matches ?? []) ?? []).map((m) => ({ epic: m.epic ?? {}, why: m.words }))
    : (list.data?.pages.flatMap((p) => p.epics ?? []) ?? []).map((epic) => ({ epic, why: undefined }));
  useShortcuts([
    { keys: "j", does: "Next epic", run: () => step(1) },
    { keys: "k", does: "Previous epic", run: () => step(-1) },
    { keys: "/", does: "Search", run: () => document.getElementById("epic-search")?.focus() },
    { keys: "n", does: "New epic", run: () => setCreating(true) },
  ]);
  return (
    <>
      <div className="heading">
        <h1>Epics</h1>
        <Status>
          {shown.isLoading ? "loading" : `${count(rows.length)}${shown.hasNextPage ? "+" : ""} shown`}
          {feed === "broken" ? " · not live, connecting again" : ""}
        </Status>
        <div className="buttons">
          <button type="button" className="primary" onClick={() => setCreating(true)}>
            New epic
          </button>
        </div>
      </div>
      <section className="filters" aria-label="Filters">
        <Chips legend="States" name="state" all={epicStates} chosen={chosen} />
        <div className="fields">
          <Committed label="Search by words" name="q" value={text} id="epic-search" placeholder="refund letters" />
          <Committed label="Tags (any of)" name="tag" value={tags} placeholder="sales, 2026" />
        </div>
      </section>
      {rows.length > 0 ? (
        <Table label="Epics" head={["State", "Epic", "Tasks", "Created", "Used"]}>
          {rows.map((r) => (
            <Row key={r.epic.id} epic={r.epic} why={r.why} />
          ))}
        </Table>
      ) : shown.isSuccess && !shown.isPlaceholderData ? (
        <NoEpics filtered={text !== "" || tags !== "" || chosen.length > 0} onCreate={() => setCreating(true)} />
      ) : null}
      <More of={shown} />
      {creating ? <EpicForm onClose={() => setCreating(false)} /> : null}
    </>
  );
}
