// What is known of one run: read once, then kept up to date by its events.
import { ApiError, address, get } from "../api/client";
import { follow, type ServerEvent, type StreamState } from "../api/stream";
import type { Graph, GraphNode, ListVisits, Run, RunEvent, RunGraph, Visit, VisitRef, VisitState } from "../api/types";
import { hasEnded, isClosedVisit } from "../ui/states";

const visitsPage = 1000;

/** What has changed, for those who show it. */
export type Topic = "run" | "graph" | "visits" | "interrupts" | "children" | "stream";

export class RunModel {
  readonly id: string;
  run: Run | undefined;
  graph: Graph | undefined;
  revision = "";
  error: unknown;
  stream: StreamState = "connecting";
  /** complete says that all visits until now are there. */
  complete = false;
  private readonly visits = new Map<string, Visit[]>();
  private readonly nodes = new Map<string, GraphNode>();
  private readonly byTopic = new Map<Topic, Set<() => void>>();
  private readonly byNode = new Map<string, Set<() => void>>();
  private readonly versions = new Map<Topic, number>();
  private readonly timers = new Map<string, ReturnType<typeof setTimeout>>();
  private readonly stop = new AbortController();
  private readonly changedNodes = new Set<string>();

  constructor(id: string) {
    this.id = id;
  }

  async start() {
    const signal = this.stop.signal;
    try {
      const [run, graph] = await Promise.all([this.readRun(), this.readGraph()]);
      if (!run || !graph) return;
      await this.readVisits();
      this.complete = true;
      this.tell("visits");
      follow({
        path: `/v1/runs/${this.id}/events`,
        lastId: run.lastSeq && run.lastSeq !== "0" ? run.lastSeq : "",
        onEvents: (events) => this.take(events),
        onState: (state, error) => {
          this.stream = state;
          // Attempts under way are told to the watchers of the moment alone: what a break has hidden is read.
          if (state === "live" && this.missed) this.refreshVisits();
          this.missed = state === "broken" || this.missed;
          if (error instanceof ApiError && !error.passing) this.error = error;
          this.tell("stream");
        },
        signal,
      });
    } catch (err) {
      if (!signal.aborted) this.fail(err);
    }
  }

  private missed = false;

  close() {
    this.stop.abort();
    for (const t of this.timers.values()) clearTimeout(t);
  }

  node(id: string): GraphNode | undefined {
    return this.nodes.get(id);
  }

  visitsOf(node: string): Visit[] {
    return this.visits.get(node) ?? none;
  }

  allVisits(): Visit[] {
    return [...this.visits.values()].flat();
  }

  get ended(): boolean {
    return hasEnded(this.run);
  }

  subscribe(topic: Topic, told: () => void): () => void {
    return listen(this.byTopic, topic, told);
  }

  subscribeNode(id: string, told: () => void): () => void {
    return listen(this.byNode, id, told);
  }

  /** version counts the changes of a topic. */
  version(topic: Topic): number {
    return this.versions.get(topic) ?? 0;
  }

  /** refreshRun reads the run again, soon and once. */
  refreshRun(after = 300) {
    this.soon("run", after, () => this.readRun());
  }

  /** keep takes a run that a request has answered. */
  keep(run: Run) {
    this.run = run;
    this.error = undefined; // what failed before was a moment of the server
    this.tell("run");
  }

  private async readRun(): Promise<Run | undefined> {
    const run = await get<Run>(`/v1/runs/${this.id}`, {}, this.stop.signal);
    this.keep(run);
    return run;
  }

  private async readGraph(): Promise<RunGraph | undefined> {
    const res = await get<RunGraph>(`/v1/runs/${this.id}/graph`, {}, this.stop.signal);
    this.graph = res.graph;
    this.revision = res.graphRevision ?? "";
    this.nodes.clear();
    for (const n of res.graph?.nodes ?? []) if (n.id) this.nodes.set(n.id, n);
    this.tell("graph");
    return res;
  }

  private async readVisits(node?: string) {
    let pageToken = "";
    do {
      const query = { pageSize: visitsPage, pageToken, nodeId: node };
      const page = await get<ListVisits>(address(`/v1/runs/${this.id}/visits`, query), {}, this.stop.signal);
      for (const v of page.visits ?? []) this.put(v);
      this.flush();
      pageToken = page.nextPageToken ?? "";
    } while (pageToken);
  }

  private refreshVisits() {
    this.missed = false;
    this.soon("visits", 100, () => this.readVisits());
  }

  private put(v: Visit) {
    const id = v.nodeId ?? "";
    const all = this.visits.get(id) ?? [];
    const at = all.findIndex((o) => o.visit === v.visit);
    const next = at < 0 ? [...all, v].sort((a, b) => (a.visit ?? 0) - (b.visit ?? 0)) : all.with(at, v);
    this.visits.set(id, next);
    this.changedNodes.add(id);
  }

  private change(ref: VisitRef | undefined, change: Partial<Visit>) {
    if (!ref?.nodeId) return;
    if (ref.item) {
      // The counts of a map are the server's.
      const node = ref.nodeId;
      this.soon(`visits of ${node}`, 500, () => this.readVisits(node));
      if (this.visitsOf(node).some((v) => v.visit === ref.visit)) return;
    }
    const old = this.visitsOf(ref.nodeId).find((v) => v.visit === ref.visit);
    const state: VisitState | undefined = ref.item ? "VISIT_STATE_RUNNING" : change.state;
    this.put({ runId: this.id, nodeId: ref.nodeId, visit: ref.visit, ...old, ...(ref.item ? {} : change), state: state ?? old?.state } as Visit);
  }

  private take(events: ServerEvent[]) {
    for (const e of events) {
      const ev = JSON.parse(e.data) as RunEvent;
      if (ev.runId && ev.runId !== this.id) continue;
      this.apply(ev);
    }
    this.flush();
  }

  private apply(ev: RunEvent) {
    const time = ev.time;
    if (ev.attemptStarted) {
      const { visit, attempt, actor } = ev.attemptStarted;
      const old = this.visitsOf(visit?.nodeId ?? "").find((v) => v.visit === visit?.visit);
      if (!old?.endTime) this.change(visit, { state: "VISIT_STATE_RUNNING", attempts: attempt, actor, startTime: old?.startTime ?? time });
    } else if (ev.attemptEnded) {
      const a = ev.attemptEnded;
      const over = isClosedVisit(a.state);
      this.change(a.visit, {
        state: a.state,
        attempts: a.attempt,
        actor: a.actor,
        values: a.values,
        error: a.error,
        wait: a.wait,
        cached: a.cached,
        usage: a.usage,
        ...(a.startTime && a.attempt === 1 ? { startTime: a.startTime } : {}),
        ...(over ? { endTime: time, endSeq: ev.seq } : {}),
      });
      if (over) this.refreshRun(1000);
    } else if (ev.attemptProgress) {
      this.change(ev.attemptProgress.visit, { progress: ev.attemptProgress.progress });
    } else if (ev.visitsChanged) {
      for (const c of ev.visitsChanged.visits ?? []) {
        const over = isClosedVisit(c.state);
        this.change(c.visit, { state: c.state, error: c.error, skipReason: c.reason, skipMessage: c.message, ...(over ? { endTime: time } : {}) });
      }
    } else if (ev.graphAmended || ev.graphExpanded) {
      this.soon("graph", 200, () => this.readGraph());
    } else if (ev.interruptOpened || ev.interruptClosed) {
      this.tell("interrupts");
    } else if (ev.childrenSpawned || ev.childEnded) {
      this.tell("children");
    }
    // These say little of the visit that they change: it is read.
    const visit = ev.interruptClosed?.visit ?? ev.childEnded?.visit ?? ev.timerFired?.visit ?? ev.completionReceived?.visit ?? ev.reconciled?.visit ?? ev.childrenSpawned?.visit;
    if (visit?.nodeId) {
      const node = visit.nodeId;
      this.soon(`visits of ${node}`, 300, () => this.readVisits(node));
    }
    if (!ev.attemptStarted && !ev.attemptProgress && !ev.tokenDelta && !ev.attemptEnded && !ev.visitsChanged) this.refreshRun();
    if (ev.runEnded) this.refreshVisits();
  }

  /** soon does something after a while, once for all who ask meanwhile. */
  private soon(name: string, after: number, work: () => Promise<unknown>) {
    if (this.timers.has(name) || this.stop.signal.aborted) return;
    this.timers.set(
      name,
      setTimeout(() => {
        this.timers.delete(name);
        work().catch((err) => {
          if (!this.stop.signal.aborted) this.fail(err);
        });
      }, after),
    );
  }

  private fail(err: unknown) {
    this.error = err;
    this.tell("run");
  }

  private flush() {
    if (this.changedNodes.size === 0) return;
    for (const id of this.changedNodes) for (const told of this.byNode.get(id) ?? []) told();
    this.changedNodes.clear();
    this.tell("visits");
  }

  private tell(topic: Topic) {
    this.versions.set(topic, this.version(topic) + 1);
    for (const told of this.byTopic.get(topic) ?? []) told();
  }
}

const none: Visit[] = [];

function listen<K>(all: Map<K, Set<() => void>>, name: K, told: () => void): () => void {
  const set = all.get(name) ?? new Set();
  all.set(name, set);
  set.add(told);
  return () => {
    set.delete(told);
    if (set.size === 0) all.delete(name);
  };
}
