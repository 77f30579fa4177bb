// A thread as a chat with its agent.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useCallback, useEffect, useRef, useState } from "react";
import { get, post, remove, requestId } from "../api/client";
import type { ListMessages, ListTurns, Run, Thread, ThreadItem, Turn } from "../api/types";
import { Link, navigate, setQuery, useAddress } from "../router";
import { Act } from "../ui/act";
import { word } from "../ui/format";
import { readAll } from "../ui/pages";
import { Fault, usePageTitle, When } from "../ui/parts";
import { useShortcuts } from "../ui/shortcuts";
import { hasEnded } from "../ui/states";
import { useAnswer } from "./answer";
import { Chat, Questions } from "./chat";
import { Prompt } from "./prompt";

function Composer({ thread, onSent }: { thread: Thread; onSent: () => void }) {
  const [text, setText] = useState("");
  const send = useMutation({
    mutationFn: (content: string) => post<Turn>(`/v1/threads/${thread.id}/messages`, { content, requestId: requestId() }),
    onSuccess: () => {
      setText("");
      onSent();
    },
  });
  const submit = (e: FormEvent) => {
    e.preventDefault();
    if (text.trim() && !send.isPending) send.mutate(text.trim());
  };
  return (
    <form className="composer" onSubmit={submit}>
      <label>
        Message to {thread.agent}
        <textarea
          id="message"
          rows={2}
          value={text}
          onChange={(e) => setText(e.target.value)}
          onKeyDown={(e) => {
            if (e.key === "Enter" && !e.shiftKey) submit(e);
          }}
        />
      </label>
      <button type="submit" className="primary" disabled={send.isPending || text.trim() === ""}>
        Send
      </button>
      <Fault error={send.error} />
    </form>
  );
}

function Facts({ thread }: { thread: Thread }) {
  return (
    <p className="small run-facts">
      <code>{thread.id}</code>
      <span>{thread.agent}</span>
      <span>{word(thread.lifetime)}</span>
      {thread.userId ? <span>user {thread.userId}</span> : null}
      {thread.parentId ? (
        <span>
          fork of <Link href={`/threads/${thread.parentId}`}>{thread.parentId}</Link>
        </span>
      ) : null}
      <Link href={`/threads?parent=${thread.id}`}>forks</Link>
      <span>
        begun <When time={thread.createTime} />
      </span>
    </p>
  );
}

export default function ThreadPage({ id }: { id: string }) {
  const queries = useQueryClient();
  const { query } = useAddress();
  const chosen = query.get("prompt") ?? "";
  const found = useQuery({ queryKey: ["thread", id, "itself"], queryFn: ({ signal }) => get<Thread>(`/v1/threads/${id}`, {}, signal) });
  const messages = useQuery({
    queryKey: ["thread", id, "messages"],
    queryFn: async ({ signal }) => (await readAll<ThreadItem>(`/v1/threads/${id}/messages`, {}, (p: ListMessages) => p.messages, signal, 2)).reverse(),
    placeholderData: (old) => old,
  });
  const turns = useQuery({
    queryKey: ["thread", id, "turns"],
    queryFn: ({ signal }) => readAll<Turn>(`/v1/threads/${id}/turns`, {}, (p: ListTurns) => p.turns, signal, 2),
    placeholderData: (old) => old,
    // Nothing tells when a queued turn has started.
    refetchInterval: (q) => (q.state.data?.some((t) => t.state === "TURN_STATE_QUEUED") ? 1_500 : false),
  });
  const last = [...(turns.data ?? [])].reverse().find((t) => t.runId)?.runId ?? found.data?.runId ?? "";
  const run = useQuery({
    queryKey: ["thread", id, "run", last],
    queryFn: ({ signal }) => get<Run>(`/v1/runs/${last}`, {}, signal),
    enabled: last !== "",
    retry: false,
  });
  const open = run.data && !hasEnded(run.data) ? last : "";
  const refresh = useCallback(() => {
    queries.invalidateQueries({ queryKey: ["thread", id] });
    queries.invalidateQueries({ queryKey: ["interrupts"] });
  }, [queries, id]);
  const answer = useAnswer(open, refresh);
  // A run may end before anybody follows it: what it said is read then.
  const ended = run.data && hasEnded(run.data) ? last : "";
  useEffect(() => {
    if (ended) queries.invalidateQueries({ queryKey: ["thread", id, "messages"] });
  }, [queries, id, ended]);
  const items = messages.data ?? [];
  const end = useRef<HTMLDivElement>(null);
  useEffect(() => {
    end.current?.scrollIntoView({ block: "nearest" });
  }, [items.length, answer.writing]);
  const prompt = (sequence: string) => setQuery({ prompt: sequence === chosen ? "" : sequence });
  useShortcuts([
    { keys: "m", does: "Write a message", run: () => document.getElementById("message")?.focus() },
    { keys: "Escape", does: "Close the prompt", run: () => prompt(chosen) },
  ]);
  usePageTitle(found.data?.title || found.data?.key || "Thread");
  const thread = found.data;
  if (!thread) return found.error ? <Fault error={found.error} /> : <p className="muted">Loading…</p>;
  const of = items.find((i) => i.sequence === chosen);
  return (
    <>
      <div className="heading">
        <h1>{thread.title || thread.key || "Thread"}</h1>
        <div className="buttons">
          <Act
            label="Fork"
            run={async () => {
              const made = await post<Thread>(`/v1/threads/${id}:fork`, { sequence: thread.lastSequence, requestId: requestId() });
              navigate(`/threads/${made.id}`);
            }}
          />
          <Act
            label="Delete…"
            danger
            ask={<p>The thread is removed with its parts. Its forks keep what they share with it.</p>}
            run={async () => {
              await remove(`/v1/threads/${id}`);
              navigate("/threads");
            }}
          />
        </div>
      </div>
      <Facts thread={thread} />
      <Fault error={messages.error ?? turns.error ?? answer.error} />
      <div className="split">
        <div className="view">
          {items.length === 0 && (turns.data?.length ?? 0) === 0 ? <p className="muted">Nothing was said yet. Write to the agent below.</p> : null}
          <Chat items={items} turns={turns.data ?? []} open={open} writing={answer.writing} chosen={chosen} onPrompt={prompt} />
          <Questions run={open} onAnswered={refresh} />
          {thread.agent ? <Composer thread={thread} onSent={refresh} /> : <p className="muted">The thread has no agent that takes messages.</p>}
          <div ref={end} />
        </div>
        {of ? <Prompt thread={id} of={of} items={items} onClose={() => prompt(chosen)} /> : null}
      </div>
    </>
  );
}
