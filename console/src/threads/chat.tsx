// What was said on a thread, and what is being written.
import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";
import type { ListInterrupts, ThreadItem, Turn } from "../api/types";
import { Link } from "../router";
import { pretty, word } from "../ui/format";
import { Fault, Json, State, When } from "../ui/parts";
import { Question } from "../ui/question";
import { messageOf } from "./prompt";

function Said({ item, chosen, onPrompt }: { item: ThreadItem; chosen: boolean; onPrompt: () => void }) {
  const m = messageOf(item);
  const role = m.role ?? "message";
  const tool = role === "tool" || (m.content === undefined && m.tool_calls !== undefined);
  const text = pretty(m.content ?? "");
  return (
    <li className={`said said-${role}`}>
      <p className="small muted">
        {role} · <When time={item.time} /> · {item.sequence}
        {role === "assistant" ? (
          <button type="button" className="quiet inline" aria-pressed={chosen} onClick={onPrompt} aria-label={`Prompt of message ${item.sequence}`}>
            prompt
          </button>
        ) : null}
        {item.runId ? <Link href={`/runs/${item.runId}`}>run</Link> : null}
      </p>
      {tool ? (
        <details>
          <summary>{role === "tool" ? "result of a call" : "calls"}</summary>
          <Json value={m.tool_calls ?? m.content} label={role} />
        </details>
      ) : (
        <p className="prompt">{text}</p>
      )}
    </li>
  );
}

/** Waiting are turns of which the messages of the thread do not tell yet. */
function Waiting({ turn }: { turn: Turn }) {
  return (
    <li className="said said-user">
      <p className="small muted">
        <State of={turn.state} /> <When time={turn.createTime} /> {turn.runId ? <Link href={`/runs/${turn.runId}`}>run</Link> : null}
      </p>
      <p className="prompt">{pretty(turn.content)}</p>
      {turn.error ? <p className="error-text small">{turn.error}</p> : null}
    </li>
  );
}

interface Props {
  items: ThreadItem[];
  turns: Turn[];
  open: string;
  writing: string;
  chosen: string;
  onPrompt: (sequence: string) => void;
}

export function Chat({ items, turns, open, writing, chosen, onPrompt }: Props) {
  // A run below that of the turn appends the message, so that the ids of runs tell nothing.
  const appended = (t: Turn) => items.some((i) => Date.parse(i.time ?? "") >= Date.parse(t.createTime ?? "") && messageOf(i).role === "user" && messageOf(i).content === t.content);
  const waiting = turns.filter((t) => word(t.state) !== "answered" && !appended(t));
  return (
    <ol className="chat plain" aria-label="Conversation">
      {items.map((i) => (
        <Said key={i.sequence} item={i} chosen={i.sequence === chosen} onPrompt={() => onPrompt(i.sequence ?? "")} />
      ))}
      {waiting.map((t) => (
        <Waiting key={t.number} turn={t} />
      ))}
      {open ? (
        <li className="said said-assistant" aria-live="polite">
          <p className="small muted">
            <State of="RUN_STATE_RUNNING" /> <Link href={`/runs/${open}`}>run</Link>
          </p>
          {writing ? <p className="prompt">{writing}</p> : null}
        </li>
      ) : null}
    </ol>
  );
}

/** Questions of the run that is at work on the thread. */
export function Questions({ run, onAnswered }: { run: string; onAnswered: () => void }) {
  const list = useQuery({
    queryKey: ["interrupts", run, "of thread"],
    queryFn: ({ signal }) => get<ListInterrupts>(`/v1/runs/${run}/interrupts`, { states: ["INTERRUPT_STATE_OPEN"], pageSize: 20 }, signal),
    enabled: run !== "",
  });
  const open = list.data?.interrupts ?? [];
  if (open.length === 0) return <Fault error={list.error} />;
  return (
    <section aria-label="Questions" className="questions">
      {open.map((i) => (
        <Question key={i.id} of={i} here={run} onAnswered={onAnswered} />
      ))}
    </section>
  );
}
