// Where the findings about a plan stand in its text.
import type { Diagnostic, Repair } from "../api/types";

export type Level = "error" | "warning" | "info";

export interface Mark {
  start: number;
  end: number;
  level: Level;
}

export interface Finding {
  level: Level;
  code: string;
  message: string;
  hint: string;
  line: number;
  column: number;
  at: Mark | undefined;
}

export function levelOf(severity: string | undefined): Level {
  return severity === "SEVERITY_ERROR" ? "error" : severity === "SEVERITY_WARNING" ? "warning" : "info";
}

/** lineStarts are the places of the lines; the reader counts lines and characters from 1. */
function lineStarts(text: string): number[] {
  const out = [0];
  for (let i = text.indexOf("\n"); i >= 0; i = text.indexOf("\n", i + 1)) out.push(i + 1);
  return out;
}

/** offset is the place of a column, which counts characters and not units of UTF-16. */
function offset(line: string, column: number): number {
  let at = 0;
  for (const c of line) {
    if (column-- <= 1) return at;
    at += c.length;
  }
  return line.length;
}

export function place(text: string, line: number, column: number, element: string): { start: number; end: number } | undefined {
  const starts = lineStarts(text);
  const start = starts[line - 1];
  if (line < 1 || start === undefined) return undefined;
  const whole = text.slice(start, (starts[line] ?? text.length + 1) - 1);
  const from = offset(whole, Math.max(column, 1));
  const rest = whole.slice(from);
  // The element is the name of what is at fault, which is not always what is written there.
  const length = element && rest.startsWith(element) ? element.length : (/^\s*[^\s,;()[\]{}]+/.exec(rest)?.[0].length ?? 0);
  if (length > 0) return { start: start + from, end: start + from + length };
  return whole.length > 0 ? { start, end: start + whole.length } : { start, end: start };
}

export function findings(text: string, diagnostics: Diagnostic[]): Finding[] {
  return diagnostics.map((d) => {
    const level = levelOf(d.severity);
    const at = d.line ? place(text, d.line, d.column ?? 1, d.element ?? "") : undefined;
    return { level, code: d.code ?? "", message: d.message ?? "", hint: d.hint ?? "", line: d.line ?? 0, column: d.column ?? 0, at: at && { ...at, level } };
  });
}

const rank: Record<Level, number> = { error: 3, warning: 2, info: 1 };

export interface Piece {
  text: string;
  level?: Level;
}

/** pieces cuts a text where marks begin and end; of marks that overlap the gravest is shown. */
export function pieces(text: string, marks: Mark[]): Piece[] {
  const cuts = [...new Set([0, text.length, ...marks.flatMap((m) => [m.start, m.end])])].filter((c) => c <= text.length).sort((a, b) => a - b);
  const out: Piece[] = [];
  for (let i = 1; i < cuts.length; i++) {
    const from = cuts[i - 1] ?? 0;
    const to = cuts[i] ?? from;
    const over = marks.filter((m) => m.start <= from && m.end >= to).sort((a, b) => rank[b.level] - rank[a.level])[0];
    out.push({ text: text.slice(from, to), level: over?.level });
  }
  return out;
}

export function repairPlace(text: string, r: Repair) {
  return r.line ? place(text, r.line, r.column ?? 1, "") : undefined;
}
