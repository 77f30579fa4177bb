// Addresses of pages, over the History API.
import { type AnchorHTMLAttributes, type MouseEvent, useMemo, useSyncExternalStore } from "react";

const listeners = new Set<() => void>();

function tell() {
  for (const told of listeners) told();
}

window.addEventListener("popstate", tell);

export function navigate(to: string, how: "push" | "replace" = "push") {
  if (to === location.pathname + location.search) return;
  if (how === "push") history.pushState(null, "", to);
  else history.replaceState(null, "", to);
  tell();
}

export function useAddress(): { path: string; query: URLSearchParams } {
  const href = useSyncExternalStore(
    (told) => {
      listeners.add(told);
      return () => listeners.delete(told);
    },
    () => location.pathname + location.search,
  );
  return useMemo(() => {
    const [path = "/", search = ""] = href.split("?");
    return { path, query: new URLSearchParams(search) };
  }, [href]);
}

/** setQuery changes parameters of the address at hand; an empty value removes one. */
export function setQuery(changes: Record<string, string | string[]>, how: "push" | "replace" = "replace") {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const one of Array.isArray(value) ? value : [value]) if (one) query.append(name, one);
  }
  const text = query.toString();
  navigate(location.pathname + (text ? `?${text}` : ""), how);
}

export function Link({ href, onClick, ...rest }: AnchorHTMLAttributes<HTMLAnchorElement> & { href: string }) {
  const follow = (e: MouseEvent<HTMLAnchorElement>) => {
    onClick?.(e);
    if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
    e.preventDefault();
    navigate(href);
  };
  return <a href={href} onClick={follow} {...rest} />;
}
