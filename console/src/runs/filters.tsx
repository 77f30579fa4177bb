// The form above the list of runs. The filter lives in the address, so that it can be kept and sent.
import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { get } from "../api/client";
import type { ListEpics, ListTasks } from "../api/types";
import { navigate, setQuery } from "../router";
import { type Filter, isEmpty, labelParts, spanNames } from "./filter";
import { Chips, Committed } from "../ui/filters";
import { runStates } from "../ui/states";

function EpicAndTask({ filter }: { filter: Filter }) {
  const [asked, setAsked] = useState(filter.epic !== "");
  const epics = useQuery({
    queryKey: ["epics", "names"],
    queryFn: ({ signal }) => get<ListEpics>("/v1/epics", { pageSize: 200 }, signal),
    enabled: asked,
  });
  const tasks = useQuery({
    queryKey: ["tasks", "of", filter.epic],
    queryFn: ({ signal }) => get<ListTasks>("/v1/tasks", { epicId: filter.epic, pageSize: 500 }, signal),
    enabled: filter.epic !== "",
  });
  return (
    <>
      <label>
        Epic
        <select value={filter.epic} onFocus={() => setAsked(true)} onChange={(e) => setQuery({ epic: e.target.value, task: "" })}>
          <option value="">any</option>
          {filter.epic && !epics.data ? <option value={filter.epic}>{filter.epic}</option> : null}
          {epics.data?.epics?.map((e) => (
            <option key={e.id} value={e.id}>
              {e.title}
            </option>
          ))}
        </select>
      </label>
      {filter.epic ? (
        <label>
          Task
          <select value={filter.task} onChange={(e) => setQuery({ task: e.target.value })}>
            <option value="">any</option>
            {filter.task && !tasks.data ? <option value={filter.task}>{filter.task}</option> : null}
            {tasks.data?.tasks?.map((t) => (
              <option key={t.id} value={t.id}>
                {t.title}
              </option>
            ))}
          </select>
        </label>
      ) : null}
    </>
  );
}

function Labels({ filter }: { filter: Filter }) {
  const [text, setText] = useState("");
  const fits = labelParts(text) !== undefined;
  const add = (e: FormEvent) => {
    e.preventDefault();
    if (!fits) return;
    setQuery({ label: [...filter.labels.filter((l) => l !== text), text.trim()] });
    setText("");
  };
  return (
    <form onSubmit={add} className="labels">
      <label>
        Label
        <input id="label-filter" placeholder="team=red" value={text} onChange={(e) => setText(e.target.value)} spellCheck={false} autoComplete="off" />
      </label>
      {text ? (
        <button type="submit" disabled={!fits}>
          Add
        </button>
      ) : null}
    </form>
  );
}

function Time({ filter }: { filter: Filter }) {
  const [own, setOwn] = useState(filter.after !== "" || filter.before !== "");
  return (
    <>
      <label>
        Created
        <select
          value={own ? "own" : filter.span}
          onChange={(e) => {
            setOwn(e.target.value === "own");
            setQuery({ span: e.target.value === "own" ? "" : e.target.value, after: "", before: "" });
          }}
        >
          <option value="">any time</option>
          {spanNames.map((s) => (
            <option key={s} value={s}>
              last {s}
            </option>
          ))}
          <option value="own">between…</option>
        </select>
      </label>
      {own ? (
        <>
          <label>
            From
            <input type="datetime-local" value={filter.after} onChange={(e) => setQuery({ after: e.target.value })} />
          </label>
          <label>
            Until
            <input type="datetime-local" value={filter.before} onChange={(e) => setQuery({ before: e.target.value })} />
          </label>
        </>
      ) : null}
    </>
  );
}

export function Filters({ filter }: { filter: Filter }) {
  const [more, setMore] = useState(filter.user !== "" || filter.key !== "" || filter.parent !== "" || filter.schedule !== "");
  return (
    <section className="filters" aria-label="Filters">
      <Chips legend="States" name="state" all={runStates} chosen={filter.states} />
      <div className="fields">
        <Labels filter={filter} />
        <Time filter={filter} />
        <EpicAndTask filter={filter} />
        <Committed label="Workflow" name="workflow" value={filter.workflow} placeholder="NAME or NAME@VERSION" />
        {more ? (
          <>
            <Committed label="User" name="user" value={filter.user} />
            <Committed label="Business key" name="key" value={filter.key} />
            <Committed label="Parent run" name="parent" value={filter.parent} />
            <Committed label="Schedule" name="schedule" value={filter.schedule} />
          </>
        ) : (
          <button type="button" className="quiet" onClick={() => setMore(true)}>
            More filters
          </button>
        )}
        {isEmpty(filter) ? null : (
          <button type="button" className="quiet" onClick={() => navigate("/runs", "replace")}>
            Clear
          </button>
        )}
      </div>
      {filter.labels.length > 0 ? (
        <p className="taken">
          {filter.labels.map((l) => (
            <button
              key={l}
              type="button"
              className="tag"
              aria-label={`Remove the label ${l}`}
              onClick={() => setQuery({ label: filter.labels.filter((o) => o !== l) })}
            >
              {l} ✕
            </button>
          ))}
        </p>
      ) : null}
    </section>
  );
}
