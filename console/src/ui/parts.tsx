// Small pieces that all pages share.
import { type ReactNode, useEffect, useRef, useState, useSyncExternalStore } from "react";
import { ApiError } from "../api/client";
import { ago, fullTime, pretty, word } from "./format";

export function State({ of, reason }: { of: string | undefined; reason?: string }) {
  const name = word(of);
  return (
    <span className={`state state-${name.replaceAll(" ", "-")}`}>
      <span className="dot" aria-hidden="true" />
      {name || "unknown"}
      {reason ? <span className="muted"> {reason}</span> : null}
    </span>
  );
}

export function Fault({ error, retry }: { error: unknown; retry?: () => void }) {
  if (!error) return null;
  const api = error instanceof ApiError ? error : undefined;
  const text = error instanceof Error ? error.message : String(error);
  return (
    <div className="fault" role="alert">
      <p>
        <strong>{text}</strong> {api?.reason ? <code>{api.reason}</code> : null}
      </p>
      {api?.hint ? <p>{api.hint}</p> : null}
      {api && api.violations.length > 0 ? (
        <ul>
          {api.violations.slice(0, 20).map((v, i) => (
            <li key={`${v.field}-${i}`}>
              {v.field ? <code>{v.field}</code> : null} {v.description}
            </li>
          ))}
        </ul>
      ) : null}
      {api?.requestId ? <p className="muted small">request {api.requestId}</p> : null}
      {retry ? (
        <button type="button" onClick={retry}>
          Try again
        </button>
      ) : null}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className="empty">
      <h2>{title}</h2>
      {children}
    </section>
  );
}

/** Command is a line for a shell, with a button that copies it. */
export function Command({ children }: { children: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(children);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <div className="command">
      <code>{children}</code>
      <button type="button" className="quiet" onClick={copy} aria-label={`Copy: ${children}`}>
        {copied ? "copied" : "copy"}
      </button>
    </div>
  );
}

export function Json({ value, label }: { value: unknown; label: string }) {
  if (value === undefined) return null;
  return (
    <pre className="json" tabIndex={0} role="region" aria-label={label}>
      {pretty(value)}
    </pre>
  );
}

let now = Date.now();
const ticking = new Set<() => void>();

/** useNow is the time, to the second, for all that shows how long ago something was. */
export function useNow(): number {
  return useSyncExternalStore(
    (told) => {
      ticking.add(told);
      return () => ticking.delete(told);
    },
    () => now,
  );
}

setInterval(() => {
  if (document.hidden) return;
  now = Date.now();
  for (const told of ticking) told();
}, 1000);

export function When({ time }: { time: string | undefined }) {
  const at = useNow();
  return time ? (
    <time dateTime={time} title={fullTime(time)}>
      {ago(time, at)}
    </time>
  ) : null;
}

export function Dialog({ title, open, onClose, children }: { title: string; open: boolean; onClose: () => void; children: ReactNode }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = ref.current;
    if (!dialog) return;
    if (open && !dialog.open) dialog.showModal();
    if (!open && dialog.open) dialog.close();
  }, [open]);
  return (
    <dialog ref={ref} onClose={onClose} aria-label={title}>
      {open ? (
        <>
          <header>
            <h2>{title}</h2>
            <button type="button" className="quiet" onClick={onClose} aria-label="Close">
              ✕
            </button>
          </header>
          {children}
        </>
      ) : null}
    </dialog>
  );
}

/** Status tells screen readers what has changed, without taking the focus. */
export function Status({ children }: { children: ReactNode }) {
  return (
    <p className="small muted" role="status" aria-live="polite">
      {children}
    </p>
  );
}

export function usePageTitle(title: string) {
  useEffect(() => {
    document.title = title ? `${title} · Epigraph` : "Epigraph";
  }, [title]);
}
