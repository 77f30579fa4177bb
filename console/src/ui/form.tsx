// A form made from the JSON Schema of an answer. What a form cannot express is written as JSON.
import { type FormEvent, type ReactNode, useId, useState } from "react";
import { pretty } from "./format";

export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  format?: string;
}

type Value = unknown;

function typeOf(s: Schema): string {
  if (s.enum) return "enum";
  const t = Array.isArray(s.type) ? s.type.find((x) => x !== "null") : s.type;
  return t ?? (s.properties ? "object" : "any");
}

/** initial is what a field holds before anybody has touched it. */
export function initial(s: Schema): Value {
  if (s.default !== undefined) return s.default;
  if (s.const !== undefined) return s.const;
  if (typeOf(s) !== "object" || !s.properties) return undefined;
  const out: Record<string, Value> = {};
  for (const [name, of] of Object.entries(s.properties)) {
    const v = initial(of);
    if (v !== undefined) out[name] = v;
  }
  return out;
}

interface FieldProps {
  schema: Schema;
  name: string;
  required: boolean;
  value: Value;
  onChange: (v: Value) => void;
  onFault: (path: string, fault: string) => void;
  path: string;
}

function Labeled({ schema, name, required, id, children }: { schema: Schema; name: string; required: boolean; id: string; children: ReactNode }) {
  return (
    <div className="field">
      <label htmlFor={id}>
        {schema.title || name}
        {required ? <span aria-hidden="true"> *</span> : null}
      </label>
      {children}
      {schema.description ? (
        <span className="small muted" id={`${id}-about`}>
          {schema.description}
        </span>
      ) : null}
    </div>
  );
}

const inputTypes: Record<string, string> = { date: "date", email: "email", uri: "url", time: "time" };

function Field(props: FieldProps) {
  const { schema, name, required, value, onChange, path, onFault } = props;
  const id = useId();
  const about = schema.description ? `${id}-about` : undefined;
  switch (typeOf(schema)) {
    case "object":
      if (!schema.properties) return <JsonField {...props} />;
      return (
        <fieldset className="form">
          {name ? <legend>{schema.title || name}</legend> : null}
          {Object.entries(schema.properties).map(([key, of]) => (
            <Field
              key={key}
              schema={of}
              name={key}
              path={`${path}.${key}`}
              required={schema.required?.includes(key) ?? false}
              value={(value as Record<string, Value> | undefined)?.[key]}
              onFault={onFault}
              onChange={(v) => {
                const next = { ...(value as Record<string, Value> | undefined) };
                if (v === undefined) delete next[key];
                else next[key] = v;
                onChange(next);
              }}
            />
          ))}
        </fieldset>
      );
    case "enum": {
      const all = schema.enum ?? [];
      return (
        <Labeled schema={schema} name={name} required={required} id={id}>
          <select
            id={id}
            aria-describedby={about}
            required={required}
            value={all.findIndex((o) => JSON.stringify(o) === JSON.stringify(value))}
            onChange={(e) => onChange(all[Number(e.target.value)])}
          >
            <option value={-1} disabled={required}>
              choose
            </option>
            {all.map((o, i) => (
              <option key={String(o)} value={i}>
                {typeof o === "string" ? o : JSON.stringify(o)}
              </option>
            ))}
          </select>
        </Labeled>
      );
    }
    case "boolean":
      return (
        <fieldset className="choice" aria-describedby={about}>
          <legend>
            {schema.title || name}
            {required ? <span aria-hidden="true"> *</span> : null}
          </legend>
          {[true, false].map((v) => (
            <label key={String(v)}>
              <input type="radio" name={id} required={required} checked={value === v} onChange={() => onChange(v)} /> {v ? "yes" : "no"}
            </label>
          ))}
          {schema.description ? (
            <span className="small muted" id={about}>
              {schema.description}
            </span>
          ) : null}
        </fieldset>
      );
    case "number":
    case "integer":
      return (
        <Labeled schema={schema} name={name} required={required} id={id}>
          <input
            id={id}
            aria-describedby={about}
            type="number"
            step={typeOf(schema) === "integer" ? 1 : "any"}
            min={schema.minimum}
            max={schema.maximum}
            required={required}
            value={value === undefined ? "" : String(value)}
            onChange={(e) => onChange(e.target.value === "" ? undefined : Number(e.target.value))}
          />
        </Labeled>
      );
    case "string": {
      const common = { id, "aria-describedby": about, required, minLength: schema.minLength, maxLength: schema.maxLength, value: String(value ?? "") };
      const change = (text: string) => onChange(text === "" && !required ? undefined : text);
      return (
        <Labeled schema={schema} name={name} required={required} id={id}>
          {schema.format || schema.pattern || (schema.maxLength ?? 1000) <= 80 ? (
            <input {...common} type={inputTypes[schema.format ?? ""] ?? "text"} pattern={schema.pattern} onChange={(e) => change(e.target.value)} />
          ) : (
            <textarea {...common} rows={2} onChange={(e) => change(e.target.value)} />
          )}
        </Labeled>
      );
    }
    case "array":
      if (typeOf(schema.items ?? {}) !== "string") return <JsonField {...props} />;
      return (
        <Labeled schema={schema} name={`${name} (one a line)`} required={required} id={id}>
          <textarea
            id={id}
            aria-describedby={about}
            rows={3}
            required={required}
            value={Array.isArray(value) ? value.join("\n") : ""}
            onChange={(e) => onChange(e.target.value === "" ? undefined : e.target.value.split("\n"))}
          />
        </Labeled>
      );
    default:
      return <JsonField {...props} />;
  }
}

function JsonField({ schema, name, required, value, onChange, onFault, path }: FieldProps) {
  const id = useId();
  const [text, setText] = useState(value === undefined ? "" : pretty(value));
  return (
    <Labeled schema={schema} name={`${name || "Answer"} (JSON)`} required={required} id={id}>
      <textarea
        id={id}
        className="code"
        rows={4}
        required={required}
        spellCheck={false}
        value={text}
        onChange={(e) => {
          setText(e.target.value);
          try {
            onChange(e.target.value.trim() === "" ? undefined : JSON.parse(e.target.value));
            onFault(path, "");
            e.target.setCustomValidity("");
          } catch (err) {
            const fault = err instanceof Error ? err.message : String(err);
            onFault(path, fault);
            e.target.setCustomValidity(`This is no JSON: ${fault}`);
          }
        }}
      />
    </Labeled>
  );
}

export function SchemaForm({ schema, busy, submit, onSubmit }: { schema: Schema | undefined; busy: boolean; submit: string; onSubmit: (v: Value) => void }) {
  const of = schema && Object.keys(schema).length > 0 ? schema : { type: "string", title: "Answer" };
  const [value, setValue] = useState<Value>(() => initial(of));
  const [faults, setFaults] = useState<Record<string, string>>({});
  const bad = Object.values(faults).some(Boolean);
  const send = (e: FormEvent) => {
    e.preventDefault();
    if (!bad) onSubmit(value ?? (typeOf(of) === "object" ? {} : null));
  };
  return (
    <form className="form" onSubmit={send}>
      <Field schema={of} name={typeOf(of) === "object" ? "" : "Answer"} path="" required={typeOf(of) !== "object"} value={value} onChange={setValue} onFault={(p, f) => setFaults((all) => ({ ...all, [p]: f }))} />
      <p className="buttons">
        <button type="submit" className="primary" disabled={busy || bad}>
          {submit}
        </button>
      </p>
    </form>
  );
}
