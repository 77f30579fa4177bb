// An open question of a run.
import { useMutation } from "@tanstack/react-query";
import { post } from "../api/client";
import type { Interrupt } from "../api/types";
import { Link } from "../router";
import { type Schema, SchemaForm } from "./form";
import { pretty } from "./format";
import { Fault, Json, When } from "./parts";

interface Props {
  of: Interrupt;
  /** here is the run whose page shows the question. */
  here: string;
  onAnswered: () => void;
  /** readOnly is for those who may not answer. */
  readOnly?: boolean;
}

/** Question is an open question: an approval with all that it covers, or a form made from its JSON Schema. */
export function Question({ of, here, onAnswered, readOnly }: Props) {
  const answer = useMutation({
    mutationFn: (body: Record<string, unknown>) => post<Interrupt>(`/v1/interrupts/${of.id}:answer`, body),
    onSettled: onAnswered,
  });
  const approval = Boolean(of.approveHash);
  const elsewhere = of.runId !== here;
  return (
    <article className="question">
      <h2>
        {approval ? "To approve" : "A question"} <span className="muted">of {of.visit?.nodeId}</span>{" "}
        {elsewhere ? (
          <Link href={`/runs/${of.runId}`} data-row>
            in {of.runId}
          </Link>
        ) : null}
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
          {readOnly ? null : (
            <p className="buttons">
              <button type="button" className="primary" disabled={answer.isPending} onClick={() => answer.mutate({ decision: "DECISION_APPROVED", approveHash: of.approveHash })}>
                Approve
              </button>
              <button type="button" className="danger" disabled={answer.isPending} onClick={() => answer.mutate({ decision: "DECISION_REJECTED", approveHash: of.approveHash })}>
                Reject
              </button>
            </p>
          )}
        </>
      ) : readOnly ? null : (
        <SchemaForm schema={of.schema as Schema | undefined} busy={answer.isPending} submit="Answer" onSubmit={(v) => answer.mutate({ answer: v })} />
      )}
      <Fault error={answer.error} />
    </article>
  );
}
