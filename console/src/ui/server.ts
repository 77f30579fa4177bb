// What the server tells of itself.
import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";
import type { Run } from "../api/types";

interface Info {
  version?: string;
  namespace?: string;
  links?: { trace?: string; logs?: string };
  login?: Door[];
  logout?: string;
}

/** Door is a provider at which a browser may log in. */
export interface Door {
  name?: string;
  url: string;
}

export function useServer() {
  return useQuery({ queryKey: ["server"], queryFn: ({ signal }) => get<Info>("/v1/info", {}, signal), staleTime: 300_000, retry: false });
}

/** linkOf fills the places of a link of the configuration; undefined where there is no link, or it is no web address. */
export function linkOf(template: string | undefined, run: Run, namespace = ""): string | undefined {
  if (!template || !/^https?:\/\//.test(template)) return undefined;
  const time = (at: string | undefined) => String(at ? Date.parse(at) : Date.now());
  const places: Record<string, string> = {
    trace_id: run.traceId ?? "",
    run_id: run.id ?? "",
    namespace,
    from: time(run.createTime),
    to: time(run.endTime),
  };
  return template.replace(/\{(\w+)\}/g, (whole, name: string) => (name in places ? encodeURIComponent(places[name] ?? "") : whole));
}
