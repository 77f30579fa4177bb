// Buttons that change something, and forms in dialogs.
import { useMutation } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useState } from "react";
import { Dialog, Fault } from "./parts";

interface ActProps {
  /** label is on the button, and names the dialog if there is one. */
  label: string;
  run: () => Promise<unknown>;
  /** ask is what is told before it is done; without it the button does it at once. */
  ask?: ReactNode;
  danger?: boolean;
  disabled?: boolean;
}

/** Act does one thing, after a question where that cannot be taken back. */
export function Act({ label, run, ask, danger, disabled }: ActProps) {
  const [open, setOpen] = useState(false);
  const act = useMutation({ mutationFn: run, onSuccess: () => setOpen(false) });
  const kind = danger ? "danger" : "";
  return (
    <>
      <button type="button" className={kind} disabled={disabled || act.isPending} onClick={() => (ask ? (act.reset(), setOpen(true)) : act.mutate())}>
        {label}
      </button>
      {!open ? <Fault error={act.error} /> : null}
      {ask ? (
        <Dialog title={label.replace("…", "")} open={open} onClose={() => setOpen(false)}>
          <div>{ask}</div>
          <Fault error={act.error} />
          <p className="buttons">
            <button type="button" className={kind || "primary"} autoFocus disabled={act.isPending} onClick={() => act.mutate()}>
              {label.replace("…", "")}
            </button>
            <button type="button" onClick={() => setOpen(false)}>
              Leave it
            </button>
          </p>
        </Dialog>
      ) : null}
    </>
  );
}

interface FormDialogProps {
  title: string;
  submit: string;
  onClose: () => void;
  /** send is given the fields of the form by their names. */
  send: (fields: Record<string, string>) => Promise<unknown>;
  children: ReactNode;
}

/** FormDialog is a form of plain fields; it closes itself once they were taken. */
export function FormDialog({ title, submit, onClose, send, children }: FormDialogProps) {
  const act = useMutation({ mutationFn: send, onSuccess: onClose });
  const take = (e: FormEvent<HTMLFormElement>) => {
    e.preventDefault();
    const fields: Record<string, string> = {};
    for (const [name, value] of new FormData(e.currentTarget)) if (typeof value === "string") fields[name] = value.trim();
    act.mutate(fields);
  };
  return (
    <Dialog title={title} open onClose={onClose}>
      <form className="form" onSubmit={take}>
        {children}
        <Fault error={act.error} />
        <p className="buttons">
          <button type="submit" className="primary" disabled={act.isPending}>
            {submit}
          </button>
          <button type="button" onClick={onClose}>
            Leave it
          </button>
        </p>
      </form>
    </Dialog>
  );
}

interface TextProps {
  name: string;
  label: string;
  about?: string;
  value?: string;
  required?: boolean;
  rows?: number;
  type?: string;
  step?: string;
  min?: string;
  placeholder?: string;
  autoFocus?: boolean;
}

/** Text is a labeled field of a FormDialog. */
export function Text({ name, label, about, value, rows, ...rest }: TextProps) {
  return (
    <label>
      {label}
      {rows ? <textarea name={name} defaultValue={value} rows={rows} {...rest} /> : <input name={name} defaultValue={value} autoComplete="off" {...rest} />}
      {about ? <span className="small">{about}</span> : null}
    </label>
  );
}

interface ChoiceProps {
  name: string;
  label: string;
  value?: string;
  options: [value: string, text: string][];
}

/** Choice is a labeled list of a FormDialog. */
export function Choice({ name, label, value, options }: ChoiceProps) {
  return (
    <label>
      {label}
      <select name={name} defaultValue={value}>
        {options.map(([v, text]) => (
          <option key={v} value={v}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

/** listOf reads texts that are separated by commas. */
export function listOf(text: string | undefined): string[] {
  return (text ?? "")
    .split(",")
    .map((t) => t.trim())
    .filter(Boolean);
}

/** nanoOf reads dollars as nano-USD; an empty text is nothing. */
export function nanoOf(text: string | undefined): string | undefined {
  return text ? String(Math.round(Number(text) * 1e9)) : undefined;
}
