// What a model was asked for one answer: the prompt, or the messages that were sent, and what it wrote.
import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";
import type { ListStates, ThreadItem } from "../api/types";
import { Link } from "../router";
import { count, pretty } from "../ui/format";
import { Fault, Json } from "../ui/parts";

interface State {
  reasoner_input?: unknown;
  raw_response?: unknown;
  response?: unknown;
  action_results?: unknown;
  sent?: { about?: number; summary?: number; input?: number[]; first?: number; last?: number; cut?: number; messages?: number; tokens?: number };
}

export interface Message {
  role?: string;
  content?: unknown;
  tool_calls?: unknown;
}

export function messageOf(item: ThreadItem): Message {
  return (item.body ?? {}) as Message;
}

/** sentOf are the messages that a state refers to, in the order in which they were sent. */
function sentOf(state: State, items: ThreadItem[]): ThreadItem[] {
  const sent = state.sent;
  if (!sent) return [];
  const early = new Set(sent.input ?? []);
  return items.filter((i) => {
    const n = Number(i.sequence);
    return early.has(n) || (sent.first !== undefined && n >= sent.first && n <= (sent.last ?? n));
  });
}

function Asked({ state, items, states }: { state: State; items: ThreadItem[]; states: ThreadItem[] }) {
  const sent = sentOf(state, items);
  const about = states.find((s) => Number(s.sequence) === state.sent?.about)?.body as State | undefined;
  const first = state.reasoner_input ?? about?.reasoner_input;
  return (
    <>
      {first !== undefined && first !== null ? (
        <>
          <h3>{state.sent ? "First message" : "Prompt"}</h3>
          <Json value={first} label="Prompt" />
        </>
      ) : null}
      {sent.length > 0 ? (
        <>
          <h3>{sent.length === 1 ? "A message" : `${count(sent.length)} messages`} of the thread</h3>
          <ol className="plain scroll sent" tabIndex={0} aria-label="Messages that were sent">
            {sent.map((i) => {
              const m = messageOf(i);
              return (
                <li key={i.sequence}>
                  <span className="tag">{m.role}</span> {pretty(m.content ?? m.tool_calls ?? "")}
                </li>
              );
            })}
          </ol>
        </>
      ) : null}
      {state.sent?.summary ? <p className="small muted">The summary at {state.sent.summary} stood for what came before.</p> : null}
    </>
  );
}

/** Prompt shows the rounds of the run that wrote an answer, up to the answer. The system message is part of the agent's definition. */
export function Prompt({ thread, of, items, onClose }: { thread: string; of: ThreadItem; items: ThreadItem[]; onClose: () => void }) {
  const read = useQuery({
    queryKey: ["thread", thread, "states"],
    queryFn: ({ signal }) => get<ListStates>(`/v1/threads/${thread}/states`, { full: true, pageSize: 200 }, signal),
  });
  const states = [...(read.data?.states ?? [])].reverse();
  const mine = states.filter((s) => s.runId === of.runId && s.nodeId === of.nodeId && s.visit === of.visit);
  // A state is appended behind what its round has said.
  const behind = mine.find((s) => Number(s.sequence) >= Number(of.sequence)) ?? mine[mine.length - 1];
  const state = behind?.body as State | undefined;
  return (
    <aside className="panel" aria-label="The prompt of an answer">
      <header>
        <h2>Behind the answer</h2>
        <button type="button" className="quiet" onClick={onClose} aria-label="Close the prompt">
          ✕
        </button>
      </header>
      <p className="small muted">
        State {behind?.sequence ?? "–"} of <Link href={`/runs/${of.runId}?node=${encodeURIComponent(of.nodeId ?? "")}`}>{of.nodeId}</Link>
      </p>
      <Fault error={read.error} />
      {read.isSuccess && !state ? <p className="muted">No state of this answer is kept.</p> : null}
      {state ? (
        <>
          <Asked state={state} items={items} states={states} />
          <h3>What came back</h3>
          <Json value={state.raw_response ?? state.response} label="Response of the model" />
          {state.action_results !== undefined ? (
            <details>
              <summary>Results of its actions</summary>
              <Json value={state.action_results} label="Results of actions" />
            </details>
          ) : null}
          <details>
            <summary>The whole state</summary>
            <Json value={state} label="State" />
          </details>
        </>
      ) : null}
    </aside>
  );
}
