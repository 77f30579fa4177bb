// The playground: a text that a model wrote, and what is read out of it.
import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { ApiError, get, post, requestId } from "../api/client";
import type { CompilePlan, ListActors, ParsePlan, Run, ValidateGraph } from "../api/types";
import { navigate } from "../router";
import { useLater } from "../ui/later";
import { Fault, Status, usePageTitle } from "../ui/parts";
import { useShortcuts } from "../ui/shortcuts";
import { Editor } from "./editor";
import { forecast } from "./forecast";
import { findings, type Mark, place, repairPlace } from "./marks";
import { GraphForecast } from "../workflows/forecast";
import { PlanPicture } from "./picture";

const draftName = "epigraph.draft";

const examples = [
  { name: "Arrows", text: "research -> outline, figures\noutline, figures -> draft\ndraft -> review\n" },
  {
    name: "An answer of a model",
    text: 'Sure! Here is how I would do it:\n\n1. Collect the sales figures of the quarter.\n2. Collect the costs of the quarter.\n3. Compute the margin from steps 1 and 2.\n4. Write a summary of step 3 for the board.\n\nLet me know if you want changes!\n',
  },
  {
    name: "JSON with a fault",
    text: '```json\n[\n  {"id": 1, "task": "search for papers", "deps": []},\n  {"id": 2, "task": "summarize them", "deps": [1]},\n  {"id": 3, "task": "compare the summaries", "deps": [2, 7]},\n]\n```\n',
  },
];

/** argumentsOf reads the field of arguments; a string is what is wrong with it. */
function argumentsOf(text: string): Record<string, unknown> | string {
  if (text.trim() === "") return {};
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
    return "this must be a JSON object";
  } catch (err) {
    return err instanceof Error ? err.message : String(err);
  }
}

export default function PlaygroundPage() {
  usePageTitle("Playground");
  const [text, setText] = useState(() => sessionStorage.getItem(draftName) ?? "");
  const [actor, setActor] = useState("llm");
  const [named, setNamed] = useState("");
  const [name, setName] = useState("");
  const [accepted, setAccepted] = useState<string[]>([]);
  const field = useRef<HTMLTextAreaElement>(null);
  const later = useLater(text);
  const laterNamed = useLater(named);
  const args = useMemo(() => argumentsOf(laterNamed), [laterNamed]);
  useEffect(() => sessionStorage.setItem(draftName, later), [later]);

  const written = later.trim() !== "";
  const parsed = useQuery({
    queryKey: ["plan", later],
    queryFn: ({ signal }) => post<ParsePlan>("/v1/plans:parse", { text: later, complete: true, restate: "RESTATE_POLICY_NEVER" }, signal),
    enabled: written,
    staleTime: 60_000,
    placeholderData: keepPreviousData,
  });
  const plan = written ? parsed.data : undefined;
  const actors = useQuery({ queryKey: ["actors"], queryFn: ({ signal }) => get<ListActors>("/v1/actors", {}, signal), staleTime: 60_000 });
  const faults = plan?.diagnostics?.some((d) => d.severity === "SEVERITY_ERROR") ?? false;
  const readable = Boolean(plan && !plan.noPlan && !faults && typeof args !== "string");
  const compiled = useQuery({
    queryKey: ["compiled", later, actor, laterNamed, name, accepted],
    queryFn: async ({ signal }) => {
      const body = { text: later, complete: true, restate: "RESTATE_POLICY_NEVER", defaultActor: actor, named: args, name, acceptRepairs: accepted };
      const made = await post<CompilePlan>("/v1/plans:compile", body, signal);
      const checked = await post<ValidateGraph>("/v1/graphs:validate", { graph: made.graph }, signal);
      return { made, checked };
    },
    enabled: readable,
    staleTime: 60_000,
    retry: false,
    // The forecast stays in its place while the next one is made. What can be run is that of the text at hand alone.
    placeholderData: keepPreviousData,
  });
  const run = useMutation({
    mutationFn: () => post<Run>("/v1/runs", { graph: compiled.data?.made.graph, requestId: requestId() }),
    onSuccess: (started) => navigate(`/runs/${started.id}`),
  });

  // Findings are about the text that was read, which the field may be ahead of.
  const found = useMemo(() => (plan ? findings(text, plan.diagnostics ?? []) : []), [plan, text]);
  const marks = useMemo(() => found.map((f) => f.at).filter((m): m is Mark => m !== undefined), [found]);
  const faulty = useMemo(
    () => new Set((plan?.diagnostics ?? []).filter((d) => d.severity === "SEVERITY_ERROR").map((d) => d.element ?? "")),
    [plan],
  );
  const select = (start: number, end: number) => {
    const el = field.current;
    if (!el) return;
    el.focus();
    el.setSelectionRange(start, end);
    const line = text.slice(0, start).split("\n").length;
    el.scrollTop = Math.max(0, (line - 4) * Number.parseFloat(getComputedStyle(el).lineHeight));
  };
  useShortcuts([{ keys: "e", does: "Edit the plan", run: () => field.current?.focus() }]);

  const made = readable ? compiled.data : undefined;
  const ready = readable && compiled.isSuccess && !compiled.isPlaceholderData && (compiled.data?.checked.faults?.length ?? 0) === 0 && later === text && laterNamed === named;
  const count = found.filter((f) => f.level === "error").length;
  const look = plan?.graph ? forecast(plan.graph) : undefined;
  const chosenActor = actors.data?.actors?.find((a) => a.name === actor);

  return (
    <>
      <div className="heading">
        <h1>Playground</h1>
        <Status>
          {!written
            ? "nothing is read yet"
            : parsed.isFetching
              ? "reading"
              : plan?.noPlan
                ? "no plan"
                : `${plan?.dialect?.replaceAll("_", " ") ?? ""}, ${plan?.graph?.problems?.length ?? 0} problems, ${count === 1 ? "1 fault" : `${count} faults`}`}
        </Status>
        <div className="buttons">
          <button type="button" className="primary" disabled={!ready || run.isPending} onClick={() => run.mutate()}>
            Run it
          </button>
        </div>
      </div>
      <div className="playground">
        <section aria-label="Text" className="side">
          <Editor
            text={text}
            marks={marks}
            field={field}
            label="Plan"
            placeholder="Paste what a model wrote about how to solve something."
            onChange={(t) => {
              setText(t);
              setAccepted([]);
            }}
          />
          {text === "" ? (
            <p className="buttons">
              <span className="muted">Or begin with an example:</span>
              {examples.map((e) => (
                <button key={e.name} type="button" onClick={() => setText(e.text)}>
                  {e.name}
                </button>
              ))}
            </p>
          ) : null}
          <div className="fields">
            <label>
              Actor of each problem
              <select value={actor} onChange={(e) => setActor(e.target.value)}>
                {actors.data?.actors?.some((a) => a.name === actor) ? null : <option value={actor}>{actor}</option>}
                {actors.data?.actors?.map((a) => (
                  <option key={a.name} value={a.name}>
                    {a.name}
                  </option>
                ))}
              </select>
            </label>
            <label className="wide">
              Arguments of each problem (JSON)
              <input
                className="code"
                placeholder={actor === "template" ? '{"text": "did {{ node }}"}' : '{"model": "…"}'}
                value={named}
                onChange={(e) => setNamed(e.target.value)}
                spellCheck={false}
                aria-invalid={typeof args === "string"}
              />
            </label>
            <label>
              Name of the run
              <input value={name} onChange={(e) => setName(e.target.value)} />
            </label>
          </div>
          {typeof args === "string" ? <p className="small error-text">Arguments: {args}</p> : null}
          {chosenActor?.unavailable ? <p className="small error-text">Calls of {actor} would fail: {chosenActor.unavailable}</p> : null}
          <div id="findings">
            <Fault error={parsed.error} />
            {plan?.noPlan ? (
              <p>
                {plan.noPlanMessage} <code>{plan.noPlanReason}</code>
              </p>
            ) : null}
            {found.length > 0 ? (
              <>
                <h2>Findings</h2>
                <ul className="plain findings">
                  {found.map((f, i) => (
                    <li key={`${f.code}-${i}`} className={f.level}>
                      <button type="button" className="quiet" disabled={!f.at} onClick={() => f.at && select(f.at.start, f.at.end)}>
                        <span className="level">{f.level}</span> {f.line ? `${f.line}:${f.column} ` : ""}
                        {f.message} <code>{f.code}</code>
                      </button>
                      {f.hint ? <p className="small">{f.hint}</p> : null}
                    </li>
                  ))}
                </ul>
              </>
            ) : null}
          </div>
          {plan?.repairs && plan.repairs.length > 0 ? (
            <>
              <h2>Repairs</h2>
              <ul className="plain findings">
                {plan.repairs.map((r, i) => {
                  const at = repairPlace(text, r);
                  const code = r.code ?? "";
                  return (
                    <li key={`${code}-${i}`} className="info">
                      {r.applied ? (
                        <button type="button" className="quiet" disabled={!at} onClick={() => at && select(at.start, at.end)}>
                          <span className="level">done</span> {r.line ? `${r.line}:${r.column} ` : ""}
                          {r.message} <code>{code}</code>
                        </button>
                      ) : (
                        <label>
                          <input
                            type="checkbox"
                            checked={accepted.includes(code)}
                            onChange={(e) => setAccepted(e.target.checked ? [...accepted, code] : accepted.filter((c) => c !== code))}
                          />{" "}
                          accept: {r.message} <code>{code}</code>
                        </label>
                      )}
                    </li>
                  );
                })}
              </ul>
            </>
          ) : null}
        </section>
        <section aria-label="Graph" className="side">
          <div className="plan-box" tabIndex={0} role="region" aria-label="Picture of the plan">
            {plan?.graph?.problems?.length ? (
              <PlanPicture
                graph={plan.graph}
                faulty={faulty}
                onChoose={(line, column) => {
                  const at = place(text, line, column, "");
                  if (at) select(at.start, at.end);
                }}
              />
            ) : (
              <p className="muted pad">The graph appears here as you type.</p>
            )}
          </div>
          {look && look.problems > 0 ? (
            <>
              <h2>Calls</h2>
              <p>
                {look.problems} calls of <code>{actor}</code> at least, of which {look.depth} wait for each other and {look.width === 1 ? "one runs" : `up to ${look.width} run`} at once.
              </p>
              {made?.made.graph ? <GraphForecast graph={made.made.graph} old={!ready} /> : null}
            </>
          ) : null}
          {compiled.error instanceof ApiError ? <Fault error={compiled.error} /> : null}
          {made?.checked.faults?.length ? (
            <div className="fault">
              <strong>The graph cannot run:</strong>
              <ul>
                {made.checked.faults.slice(0, 20).map((f, i) => (
                  <li key={i}>
                    {f.message} <code>{f.code}</code>
                    {f.hint ? <div className="small">{f.hint}</div> : null}
                  </li>
                ))}
              </ul>
            </div>
          ) : null}
          {made?.checked.warnings?.length ? (
            <ul className="plain findings">
              {made.checked.warnings.slice(0, 20).map((f, i) => (
                <li key={i} className="warning">
                  <span className="level">warning</span> {f.message} <code>{f.code}</code>
                </li>
              ))}
            </ul>
          ) : null}
          <Fault error={run.error} />
        </section>
      </div>
    </>
  );
}
