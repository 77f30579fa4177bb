// The form above the list of runs. The filter lives in the address, so that it can be kept and sent.
import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { get } from "../api/client";
import type { ListEpics, ListTasks } from "../api/types";
import { navigate, setQuery } from "../router";
import { type Filter, isEmpty, labelParts, spanNames, states } from "./filter";

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
            <option value="">choose a task</option>
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

/** Committed is a field whose text becomes part of the filter when it is left or Enter is pressed. */
function Committed({ label, name, value }: { label: string; name: string; value: string }) {
  const commit = (text: string) => {
    if (text.trim() !== value) setQuery({ [name]: text.trim() });
  };
  return (
    <label>
      {label}
      <input
        key={value}
        defaultValue={value}
        spellCheck={false}
        autoComplete="off"
        onBlur={(e) => commit(e.target.value)}
        onKeyDown={(e) => e.key === "Enter" && commit(e.currentTarget.value)}
      />
    </label>
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
  const [more, setMore] = useState(filter.user !== "" || filter.key !== "" || filter.parent !== "");
  const toggle = (state: string) =>
    setQuery({ state: filter.states.includes(state) ? filter.states.filter((s) => s !== state) : [...filter.states, state] });
  return (
    <section className="filters" aria-label="Filters">
      <fieldset className="chips">
        <legend className="hidden">States</legend>
        {states.map((s) => (
          <label key={s} className="chip">
            <input type="checkbox" checked={filter.states.includes(s)} onChange={() => toggle(s)} />
            <span>{s}</span>
          </label>
        ))}
      </fieldset>
      <div className="fields">
        <Labels filter={filter} />
        <Time filter={filter} />
        <EpicAndTask filter={filter} />
        {more ? (
          <>
            <Committed label="User" name="user" value={filter.user} />
            <Committed label="Business key" name="key" value={filter.key} />
            <Committed label="Parent run" name="parent" value={filter.parent} />
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
