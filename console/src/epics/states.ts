// The states of epics and tasks.
import type { Epic } from "../api/types";
import { endedStates, hasEnded } from "../ui/states";

export const epicStates = ["planning", "active", "paused", ...endedStates] as const;

/** taskStates are the columns of a board. */
export const taskStates = ["blocked", "pending", "running", ...endedStates] as const;

/** isDone says whether an epic has ended. */
export function isDone(epic: Epic): boolean {
  return hasEnded(epic);
}
