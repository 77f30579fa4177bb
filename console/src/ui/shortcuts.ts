// Shortcuts of one or two keys. They rest while somebody types, and while a dialog is open.
import { useEffect, useRef } from "react";

export interface Shortcut {
  keys: string;
  does: string;
  run: () => void;
}

const active = new Set<Shortcut[]>();
let before = "";
let timer: ReturnType<typeof setTimeout> | undefined;

export function allShortcuts(): Shortcut[] {
  return [...active].flat();
}

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

window.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || typing(e.target) || document.querySelector("dialog[open]")) return;
  const pressed = `${before}${before ? " " : ""}${e.key}`;
  const all = allShortcuts();
  const found = all.find((s) => s.keys === pressed) ?? all.find((s) => s.keys === e.key);
  clearTimeout(timer);
  before = "";
  if (found) {
    e.preventDefault();
    found.run();
  } else if (all.some((s) => s.keys.startsWith(`${e.key} `))) {
    before = e.key;
    timer = setTimeout(() => {
      before = "";
    }, 1000);
  }
});

export function useShortcuts(shortcuts: Shortcut[]) {
  const latest = useRef(shortcuts);
  latest.current = shortcuts;
  const shape = shortcuts.map((s) => `${s.keys}\t${s.does}`).join("\n");
  useEffect(() => {
    const mine = shape
      ? shape.split("\n").map((line, i) => {
          const [keys = "", does = ""] = line.split("\t");
          return { keys, does, run: () => latest.current[i]?.run() };
        })
      : [];
    active.add(mine);
    return () => {
      active.delete(mine);
    };
  }, [shape]);
}

/** step moves the focus through the rows of a list, which are marked by data-row. */
export function step(by: number) {
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
  const at = rows.findIndex((r) => r === document.activeElement);
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1);
  rows[next]?.focus();
}
