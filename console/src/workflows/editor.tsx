// The editor of a definition: validated as one types, with the faults at their places and the meaning of keys.
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo, useRef, useState } from "react";
import { post, requestId } from "../api/client";
import type { ValidateWorkflow, Workflow, WorkflowVersion } from "../api/types";
import { Editor } from "../playground/editor";
import { type Mark, place } from "../playground/marks";
import { navigate } from "../router";
import { count } from "../ui/format";
import { useLater } from "../ui/later";
import { Fault, Status } from "../ui/parts";
import { keysOf, partsOf, useSchema, wordAt } from "./schema";
import { ForecastOf } from "./forecast";

const example = `name: Greeting
description: Greets somebody.
inputs:
  name: {type: string, description: Who is greeted}
steps:
  - {id: text, type: transform, template: "Hello {{ inputs.name }}"}
`;

function Keys({ at, onInsert }: { at: string; onInsert: (text: string) => void }) {
  const schema = useSchema();
  const [part, setPart] = useState("");
  if (!schema.data) return <Fault error={schema.error} />;
  const keys = keysOf(schema.data, part);
  const parts = partsOf(schema.data);
  const meant = at ? ["", ...parts].flatMap((p) => keysOf(schema.data, p).filter((k) => k.name === at && k.about).map((k) => ({ ...k, part: p || "workflow" }))) : [];
  return (
    <section aria-label="Keys" className="keys">
      <h2>Keys</h2>
      <div role="status" className="small">
        {meant.slice(0, 4).map((k) => (
          <p key={`${k.part}-${k.about}`}>
            <code>{k.name}</code> of {k.part}: {k.about}
          </p>
        ))}
      </div>
      <label className="small">
        Of{" "}
        <select value={part} onChange={(e) => setPart(e.target.value)}>
          <option value="">the workflow</option>
          {parts.map((p) => (
            <option key={p} value={p}>
              {p}
            </option>
          ))}
        </select>
      </label>
      <ul className="plain scroll" tabIndex={0} aria-label="Keys that may stand there">
        {keys.map((k) => (
          <li key={k.name}>
            <button type="button" className="quiet inline" onClick={() => onInsert(`${k.name}: `)}>
              <code>{k.name}</code>
            </button>{" "}
            <span className="small muted">{k.about}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

interface Props {
  /** slug is that of the workflow whose next version is written; empty for a new workflow. */
  slug: string;
  source: string;
  form?: WorkflowVersion["form"];
}

export function WorkflowEditor({ slug, source, form = "WORKFLOW_FORM_DEFINITION" }: Props) {
  const queries = useQueryClient();
  const [text, setText] = useState(source);
  const [caret, setCaret] = useState(0);
  const later = useLater(text);
  const field = useRef<HTMLTextAreaElement>(null);
  const checked = useQuery({
    queryKey: ["workflow validate", form, later],
    queryFn: ({ signal }) => post<ValidateWorkflow>("/v1/workflows:validate", { source: later, form }, signal),
    enabled: later.trim() !== "",
    placeholderData: keepPreviousData,
    staleTime: 60_000,
    retry: false,
  });
  const faults = later.trim() === "" ? [] : (checked.data?.faults ?? []);
  const found = useMemo(() => faults.map((f) => ({ ...f, at: f.line ? place(text, f.line, f.column ?? 1, "") : undefined })), [faults, text]);
  const marks = useMemo<Mark[]>(() => found.flatMap((f) => (f.at ? [{ ...f.at, level: "error" as const }] : [])), [found]);
  const publish = useMutation({
    mutationFn: async () => {
      const body = { source: text, form, requestId: requestId() };
      if (!slug) return (await post<Workflow>("/v1/workflows", body)).slug;
      await post<WorkflowVersion>(`/v1/workflows/${slug}/versions`, body);
      return slug;
    },
    onSuccess: async (name) => {
      await queries.invalidateQueries({ queryKey: ["workflow", name] });
      navigate(`/workflows/${name}`);
    },
  });
  const select = (start: number, end: number) => {
    field.current?.focus();
    field.current?.setSelectionRange(start, end);
  };
  const insert = (piece: string) => {
    const at = field.current?.selectionStart ?? text.length;
    setText(text.slice(0, at) + piece + text.slice(at));
    field.current?.focus();
  };
  const ready = checked.data?.valid && later === text && !checked.isPlaceholderData && text !== source;
  return (
    <div className="playground">
      <section className="side" aria-label="Definition">
        <Editor text={text} marks={marks} field={field} onChange={setText} label="Definition" placeholder="name: …" onCaret={setCaret} />
        {text === "" ? (
          <p className="buttons">
            <span className="muted">Or begin with an example:</span>
            <button type="button" onClick={() => setText(example)}>
              A greeting
            </button>
          </p>
        ) : null}
        <div className="buttons">
          <button type="button" className="primary" disabled={!ready || publish.isPending} onClick={() => publish.mutate()}>
            {slug ? "Publish a new version" : "Create the workflow"}
          </button>
          <Status>
            {later.trim() === ""
              ? "nothing is read yet"
              : checked.isFetching
                ? "checking"
                : checked.data?.valid
                  ? `valid: ${count(checked.data.size?.nodes)} nodes, ${count(checked.data.size?.edges)} edges`
                  : `${faults.length === 1 ? "1 fault" : `${faults.length} faults`}`}
          </Status>
        </div>
        <div id="findings">
          <Fault error={publish.error ?? checked.error} />
          <ul className="plain findings">
            {found.map((f, i) => (
              <li key={`${f.code}-${i}`} className="error">
                <button type="button" className="quiet" disabled={!f.at} onClick={() => f.at && select(f.at.start, f.at.end)}>
                  {f.line ? `${f.line}:${f.column} ` : ""}
                  {f.message} <code>{f.code}</code>
                </button>
                {f.hint ? <p className="small">{f.hint}</p> : null}
              </li>
            ))}
          </ul>
        </div>
      </section>
      <section className="side" aria-label="Help">
        {checked.data?.valid && later === text ? <ForecastOf body={{ source: later, form }} /> : null}
        <Keys at={wordAt(text, caret)} onInsert={insert} />
      </section>
    </div>
  );
}
