// What can be done with a run.
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { post, requestId } from "../api/client";
import type { Run } from "../api/types";
import { navigate } from "../router";
import { word } from "../ui/format";
import { Dialog, Fault } from "../ui/parts";
import { useShortcuts } from "../ui/shortcuts";
import { type Verb, verbs } from "../ui/states";
import { useModel, useTopic } from "./use";

export function Actions() {
  const model = useModel();
  useTopic(model, "run");
  const [asked, setAsked] = useState<Verb | undefined>();
  const [reason, setReason] = useState("");
  const act = useMutation({
    mutationFn: (verb: Verb) => {
      const body = verb === "retry" ? { requestId: requestId() } : { requestId: requestId(), reason: reason || `${verb} in the console` };
      return post<Run>(`/v1/runs/${model.id}:${verb}`, body);
    },
    onSuccess: (run, verb) => {
      setAsked(undefined);
      if (verb === "retry") navigate(`/runs/${run.id}`);
      else model.keep(run);
    },
  });
  const offered = verbs[word(model.run?.state)] ?? [];
  const pending = model.run?.pendingCommands ?? [];
  const go = (verb: Verb) => {
    act.reset();
    if (verb === "cancel") setAsked(verb);
    else act.mutate(verb);
  };
  useShortcuts([
    ...offered.map((v) => ({ keys: v === "retry" ? "R" : v === "cancel" ? "C" : "P", does: `${v[0]?.toUpperCase()}${v.slice(1)} the run`, run: () => go(v) })),
  ]);
  return (
    <>
      <div className="buttons">
        {pending.length > 0 ? <span className="small muted">recorded, not yet applied: {pending.map(word).join(", ")}</span> : null}
        {offered.map((v) => (
          <button key={v} type="button" className={v === "cancel" ? "danger" : ""} disabled={act.isPending} onClick={() => go(v)}>
            {v}
          </button>
        ))}
      </div>
      {!asked && act.error ? <Fault error={act.error} /> : null}
      <Dialog title="Cancel the run" open={asked === "cancel"} onClose={() => setAsked(undefined)}>
        <p>Work under way is told to end, that of runs below included. What has ended stays as it is.</p>
        <form
          className="form"
          onSubmit={(e) => {
            e.preventDefault();
            act.mutate("cancel");
          }}
        >
          <label>
            Reason
            <input value={reason} onChange={(e) => setReason(e.target.value)} autoFocus />
          </label>
          <p className="buttons">
            <button type="submit" className="danger" disabled={act.isPending}>
              Cancel the run
            </button>
            <button type="button" onClick={() => setAsked(undefined)}>
              Let it go on
            </button>
          </p>
          <Fault error={act.error} />
        </form>
      </Dialog>
    </>
  );
}
