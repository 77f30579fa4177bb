// Filters that live in the address.
import type { ReactNode } from "react";
import { setQuery } from "../router";

/** Committed is a field whose text becomes part of the address when it is left or Enter is pressed. */
export function Committed({ label, name, value, id, placeholder }: { label: string; name: string; value: string; id?: string; placeholder?: string }) {
  const commit = (text: string) => {
    if (text.trim() !== value) setQuery({ [name]: text.trim() });
  };
  return (
    <label>
      {label}
      <input
        key={value}
        id={id}
        defaultValue={value}
        placeholder={placeholder}
        spellCheck={false}
        autoComplete="off"
        onBlur={(e) => commit(e.target.value)}
        onKeyDown={(e) => e.key === "Enter" && commit(e.currentTarget.value)}
      />
    </label>
  );
}

/** Chips chooses any of a few values, which are kept under one name. */
export function Chips({ legend, name, all, chosen }: { legend: string; name: string; all: readonly string[]; chosen: string[] }) {
  return (
    <fieldset className="chips">
      <legend className="hidden">{legend}</legend>
      {all.map((s) => (
        <label key={s} className="chip">
          <input type="checkbox" checked={chosen.includes(s)} onChange={() => setQuery({ [name]: chosen.includes(s) ? chosen.filter((o) => o !== s) : [...chosen, s] })} />
          <span>{s}</span>
        </label>
      ))}
    </fieldset>
  );
}

/** Pick chooses one of a few values. */
export function Pick({ label, name, value, options }: { label: string; name: string; value: string; options: [string, string][] }) {
  return (
    <label>
      {label}
      <select value={value} onChange={(e) => setQuery({ [name]: e.target.value })}>
        {options.map(([v, text]) => (
          <option key={v} value={v}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

interface TabsProps {
  label: string;
  tabs: { name: string; title: string }[];
  at: string;
}

/** Tabs are the views of a page; the chosen one is part of the address. */
export function Tabs({ label, tabs, at }: TabsProps) {
  return (
    <nav className="tabs" aria-label={label}>
      {tabs.map((t) => (
        <button key={t.name} type="button" aria-current={t.name === at ? "page" : undefined} onClick={() => setQuery({ tab: t.name })}>
          {t.title}
        </button>
      ))}
    </nav>
  );
}

export function Table({ label, head, children }: { label: string; head: string[]; children: ReactNode }) {
  return (
    <div className="wide-table" tabIndex={0} role="region" aria-label={label}>
      <table className="list" aria-label={label}>
        <thead>
          <tr>
            {head.map((h) => (
              <th key={h}>{h}</th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
