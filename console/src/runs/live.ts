// What keeps the list of runs up to date. Starts, pauses and ends of runs are told by the feed; of most
// runs below others nothing tells but the list itself, which is read anew while it shows open runs.
import type { StreamState } from "../api/stream";
import type { Run } from "../api/types";
import { useFeed } from "../ui/feed";
import { word } from "../ui/format";

export function useRunFeed(): StreamState {
  return useFeed({ kinds: ["run_started", "run_ended", "run_paused", "run_resumed"] }, [["runs"]]);
}

/** refreshAfter is how long a list may be shown before it is read again. */
export function refreshAfter(runs: Run[]): number {
  return runs.some((r) => word(r.state) === "running" || word(r.state) === "pending") ? 3_000 : 5_000;
}
