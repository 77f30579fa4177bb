// What waits for people in the whole namespace, and what was answered.
import { useQueryClient } from "@tanstack/react-query";
import { may, useMe } from "../access/me";
import type { Interrupt, ListInterrupts } from "../api/types";
import { Link, useAddress } from "../router";
import { Table, Tabs } from "../ui/filters";
import { count, short, word } from "../ui/format";
import { More, usePages } from "../ui/pages";
import { Command, Empty, State, Status, usePageTitle, When } from "../ui/parts";
import { Question } from "../ui/question";
import { step, useShortcuts } from "../ui/shortcuts";

const tabs = [
  { name: "open", title: "Waiting" },
  { name: "closed", title: "Answered and expired" },
];
const closed = ["INTERRUPT_STATE_ANSWERED", "INTERRUPT_STATE_EXPIRED", "INTERRUPT_STATE_CANCELED"];
/** No stream tells of the questions of a namespace, and an approver may read no feed: they are read again. */
const every = 3_000;

function Waiting() {
  const queries = useQueryClient();
  const me = useMe();
  const list = usePages<ListInterrupts>(["questions", "open"], "/v1/interrupts", { states: ["INTERRUPT_STATE_OPEN"] }, true, every);
  const open = list.data?.pages.flatMap((p) => p.interrupts ?? []) ?? [];
  const answers = may(me.data, "approve");
  const answered = () => queries.invalidateQueries({ queryKey: ["questions"] });
  return (
    <>
      <Status>
        {list.isSuccess
          ? `${count(open.length)}${list.hasNextPage ? "+" : ""} waiting${list.isError ? ", not live, asking again" : ""}`
          : list.isPending
            ? "loading"
            : ""}
      </Status>
      {me.data && !answers && open.length > 0 ? (
        <p className="explain">
          You may read these and not answer them: that needs the scope <code>approve</code>, which the roles approver and admin have.
        </p>
      ) : null}
      {open.length > 0 ? (
        <section className="questions" aria-label="Questions">
          {open.map((i) => (
            <Question key={i.id} of={i} here="" onAnswered={answered} readOnly={!answers} />
          ))}
        </section>
      ) : list.isSuccess ? (
        <Empty title="Nothing waits for a person">
          <p>
            A node that calls <code>human</code> asks somebody, and its run waits for the answer. So does a step of the type <code>human</code> in{" "}
            <Link href="/workflows">a workflow</Link>. Start one that asks:
          </p>
          <Command>{`printf 'A -> B\\n' | epigraph run --actor human --with prompt='May {{ node }} go on?' --detach`}</Command>
        </Empty>
      ) : null}
      <More of={list} />
    </>
  );
}

function outcome(i: Interrupt): string {
  if (i.decision && i.decision !== "DECISION_UNSPECIFIED") return word(i.decision.replace("DECISION_", ""));
  return i.answer === undefined ? "" : short(i.answer, 120);
}

function Closed() {
  const list = usePages<ListInterrupts>(["questions", "closed"], "/v1/interrupts", { states: closed }, true, every);
  const all = list.data?.pages.flatMap((p) => p.interrupts ?? []) ?? [];
  return (
    <>
      {all.length > 0 ? (
        <Table label="Closed questions" head={["State", "Question", "Answer", "By", "Closed", "Run"]}>
          {all.map((i) => (
            <tr key={i.id}>
              <td data-name="State">
                <State of={i.state} />
              </td>
              <td data-name="Question" className="name">
                {short(i.prompt ?? "", 120)}
              </td>
              <td data-name="Answer">{outcome(i)}</td>
              <td data-name="By">
                {i.by} <span className="muted small">{i.principal}</span>
              </td>
              <td data-name="Closed">
                <When time={i.closeTime} />
              </td>
              <td data-name="Run">
                <Link href={`/runs/${i.runId}?node=${encodeURIComponent(i.visit?.nodeId ?? "")}`} data-row>
                  {i.visit?.nodeId}
                </Link>
              </td>
            </tr>
          ))}
        </Table>
      ) : list.isSuccess ? (
        <p className="muted">No question was answered, expired or canceled yet.</p>
      ) : null}
      <More of={list} />
    </>
  );
}

export default function QuestionsPage() {
  usePageTitle("Questions");
  const { query } = useAddress();
  const tab = query.get("tab") === "closed" ? "closed" : "open";
  useShortcuts([
    { keys: "j", does: "Next question", run: () => step(1) },
    { keys: "k", does: "Previous question", run: () => step(-1) },
  ]);
  return (
    <>
      <div className="heading">
        <h1>Questions</h1>
      </div>
      <Tabs label="Questions by state" tabs={tabs} at={tab} />
      {tab === "open" ? <Waiting /> : <Closed />}
    </>
  );
}
