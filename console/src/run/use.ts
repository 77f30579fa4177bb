// Parts of a run for components, which draw anew when they change.
import { createContext, useCallback, useContext, useEffect, useState, useSyncExternalStore } from "react";
import type { Visit } from "../api/types";
import { RunModel, type Topic } from "./model";

export const ModelContext = createContext<RunModel | undefined>(undefined);

export function useModel(): RunModel {
  const model = useContext(ModelContext);
  if (!model) throw new Error("there is no run here");
  return model;
}

/** useRunModel reads a run as long as something shows it. */
export function useRunModel(id: string): RunModel {
  const [model, setModel] = useState(() => new RunModel(id));
  useEffect(() => {
    const fresh = new RunModel(id);
    setModel(fresh);
    fresh.start();
    return () => fresh.close();
  }, [id]);
  return model;
}

export function useTopic(model: RunModel, topic: Topic): number {
  const subscribe = useCallback((told: () => void) => model.subscribe(topic, told), [model, topic]);
  return useSyncExternalStore(subscribe, () => model.version(topic));
}

export function useVisits(model: RunModel, node: string): Visit[] {
  const subscribe = useCallback((told: () => void) => model.subscribeNode(node, told), [model, node]);
  return useSyncExternalStore(subscribe, () => model.visitsOf(node));
}

/** useCalm follows a topic that changes often, no more than once in a while. */
export function useCalm(model: RunModel, topic: Topic, every = 250): number {
  const [version, setVersion] = useState(() => model.version(topic));
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    setVersion(model.version(topic));
    const stop = model.subscribe(topic, () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        setVersion(model.version(topic));
      }, every);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [model, topic, every]);
  return version;
}
