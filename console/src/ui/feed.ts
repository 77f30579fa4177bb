// Follows the feed of the namespace, and has what is shown read again when it tells of a change.
import { type QueryKey, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { address, type Query } from "../api/client";
import { follow, type StreamState } from "../api/stream";

const pause = 400;

/**
 * useFeed tells whether the feed is live. After each change, and after each time that it was not live, the
 * queries whose keys begin with one of keys are read again.
 */
export function useFeed(filter: Query, keys: QueryKey[]): StreamState {
  const queries = useQueryClient();
  const [state, setState] = useState<StreamState>("connecting");
  const which = JSON.stringify([filter, keys]);
  useEffect(() => {
    const [query, all] = JSON.parse(which) as [Query, QueryKey[]];
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const refresh = () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        for (const queryKey of all) queries.invalidateQueries({ queryKey });
      }, pause);
    };
    follow({
      path: address("/v1/events:watch", query),
      onEvents: refresh,
      onState: (next) => {
        // What happened between the read of the page and the first event of the stream is read again.
        if (next === "live") refresh();
        setState(next);
      },
      signal: stop.signal,
    });
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [queries, which]);
  return state;
}
