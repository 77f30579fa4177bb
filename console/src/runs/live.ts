// What keeps the list of runs up to date. Ends and pauses of runs of workflows are told by the feed; of
// other runs nothing tells but the list itself, which is read anew while it shows open runs.
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { address } from "../api/client";
import { follow, type StreamState } from "../api/stream";
import type { Run } from "../api/types";
import { openStates } from "./filter";
import { word } from "../ui/format";

const kinds = ["run_ended", "run_paused", "run_resumed"];

export function useRunFeed(): StreamState {
  const queries = useQueryClient();
  const [state, setState] = useState<StreamState>("connecting");
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const refresh = () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        queries.invalidateQueries({ queryKey: ["runs"] });
      }, 500);
    };
    follow({ path: address("/v1/events:watch", { kinds }), onEvents: refresh, onState: setState, signal: stop.signal });
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [queries]);
  return state;
}

export function isOpen(run: Run): boolean {
  return openStates.includes(word(run.state));
}

/** refreshAfter is how long a list may be shown before it is read again. */
export function refreshAfter(runs: Run[]): number {
  return runs.some((r) => word(r.state) === "running" || word(r.state) === "pending") ? 3_000 : 5_000;
}
