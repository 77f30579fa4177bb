// The questions of a run that nobody has answered yet, its descendants' included.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { get } from "../api/client";
import type { ListInterrupts } from "../api/types";
import { Fault } from "../ui/parts";
import { Question } from "../ui/question";
import { useModel, useTopic } from "./use";

export function Interrupts() {
  const model = useModel();
  const queries = useQueryClient();
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
  const answered = () => {
    queries.invalidateQueries({ queryKey: ["interrupts", model.id] });
    model.refreshRun();
  };
  return (
    <section aria-label="Questions" className="questions">
      {open.map((i) => (
        <Question key={i.id} of={i} here={model.id} onAnswered={answered} />
      ))}
    </section>
  );
}
