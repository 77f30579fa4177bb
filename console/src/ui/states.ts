// The states of runs, by what the pages do with them.
import { word } from "./format";

/** openStates are those of runs that have not ended. */
export const openStates = ["pending", "running", "waiting", "paused", "quarantined"] as const;

export const endedStates = ["completed", "failed", "canceled"] as const;

export const runStates = [...openStates, ...endedStates];

/** closedVisits are the states of visits that have ended. */
const closedVisits = [...endedStates, "skipped", "abstained"];

export type Verb = "pause" | "resume" | "retry" | "cancel";

/** verbs is what can be asked of a run in each state. */
export const verbs: Record<string, Verb[]> = {
  pending: ["cancel"],
  running: ["pause", "cancel"],
  waiting: ["pause", "cancel"],
  paused: ["resume", "cancel"],
  quarantined: ["resume", "cancel"],
  failed: ["retry"],
  canceled: ["retry"],
};

function isOneOf(states: readonly string[], state: string | undefined): boolean {
  return states.includes(word(state));
}

export function isOpen(run: { state?: string }): boolean {
  return isOneOf(openStates, run.state);
}

export function hasEnded(run: { state?: string } | undefined): boolean {
  return isOneOf(endedStates, run?.state);
}

export function isClosedVisit(state: string | undefined): boolean {
  return isOneOf(closedVisits, state);
}
