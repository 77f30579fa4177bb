// The questions of a run that nobody has answered yet, its descendants' included.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { get, post } from "../api/client";
import type { Interrupt, ListInterrupts } from "../api/types";
import { Link } from "../router";
import { pretty } from "../ui/format";
import { Fault, Json, When } from "../ui/parts";
import { type Schema, SchemaForm } from "./form";
import { useModel, useTopic } from "./use";

function Question({ of }: { of: Interrupt }) {
  const model = useModel();
  const queries = useQueryClient();
  const answer = useMutation({
    mutationFn: (body: Record<string, unknown>) => post<Interrupt>(`/v1/interrupts/${of.id}:answer`, body),
    onSettled: () => {
      queries.invalidateQueries({ queryKey: ["interrupts", model.id] });
      model.refreshRun();
    },
  });
  const approval = Boolean(of.approveHash);
  const elsewhere = of.runId !== model.id;
  return (
    <article className="question">
      <h2>
        {approval ? "To approve" : "A question"} <span className="muted">of {of.visit?.nodeId}</span>{" "}
        {elsewhere ? <Link href={`/runs/${of.runId}`}>in {of.runId}</Link> : null}
      </h2>
      <p className="prompt">{pretty(of.prompt ?? "")}</p>
      <p className="small muted">
        asked <When time={of.createTime} />
        {of.expireTime ? (
          <>
            , expires <When time={of.expireTime} />
          </>
        ) : null}
      </p>
      {approval ? (
        <>
          <Json value={of.approve ?? null} label="What is approved" />
          <p className="small muted">
            The approval covers exactly this: <code>{of.approveHash?.slice(0, 16)}…</code>
          </p>
          <p className="buttons">
            <button type="button" className="primary" disabled={answer.isPending} onClick={() => answer.mutate({ decision: "DECISION_APPROVED", approveHash: of.approveHash })}>
              Approve
            </button>
            <button type="button" className="danger" disabled={answer.isPending} onClick={() => answer.mutate({ decision: "DECISION_REJECTED", approveHash: of.approveHash })}>
              Reject
            </button>
          </p>
        </>
      ) : (
        <SchemaForm schema={of.schema as Schema | undefined} busy={answer.isPending} submit="Answer" onSubmit={(v) => answer.mutate({ answer: v })} />
      )}
      <Fault error={answer.error} />
    </article>
  );
}

export function Interrupts() {
  const model = useModel();
  const version = useTopic(model, "interrupts");
  useTopic(model, "run");
  const list = useQuery({
    queryKey: ["interrupts", model.id, version, model.run?.openInterrupts, model.run?.state],
    queryFn: ({ signal }) => get<ListInterrupts>(`/v1/runs/${model.id}/interrupts`, { states: ["INTERRUPT_STATE_OPEN"], pageSize: 50 }, signal),
    placeholderData: (old) => old,
    enabled: Boolean(model.run) && !model.ended,
  });
  const open = model.ended ? [] : (list.data?.interrupts ?? []);
  if (list.error) return <Fault error={list.error} />;
  if (open.length === 0) return null;
  return (
    <section aria-label="Questions" className="questions">
      {open.map((i) => (
        <Question key={i.id} of={i} />
      ))}
    </section>
  );
}
