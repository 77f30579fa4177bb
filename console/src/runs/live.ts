// What keeps the list of runs up to date. The feed tells of starts, pauses and ends. How far a run has come
// is told by the list alone, which is read anew while it shows open runs.
import type { StreamState } from "../api/stream";
import type { Run } from "../api/types";
import { useFeed } from "../ui/feed";
import { word } from "../ui/format";

export function useRunFeed(): StreamState {
  return useFeed({ kinds: ["run_started", "run_ended", "run_paused", "run_resumed"] }, [["runs"]]);
}

/** refreshAfter is how long a list may be shown before it is read again; false is for ever. */
export function refreshAfter(runs: Run[], feed: StreamState): number | false {
  if (runs.some((r) => word(r.state) === "running" || word(r.state) === "pending")) return 3_000;
  return feed === "live" ? false : 5_000;
}
