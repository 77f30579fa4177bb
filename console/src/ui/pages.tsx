// Lists that the API gives in pages.
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { get, type Query } from "../api/client";
import { Fault } from "./parts";

interface Page {
  nextPageToken?: string;
}

/** usePages reads a list, page after page as they are asked for; every is how often what no stream tells is read again. */
export function usePages<P extends Page>(key: readonly unknown[], path: string, query: Query, enabled = true, every: number | false = false) {
  return useInfiniteQuery({
    queryKey: [...key, query],
    queryFn: ({ pageParam, signal }) => get<P>(path, { pageSize: 50, ...query, pageToken: pageParam }, signal),
    initialPageParam: "",
    getNextPageParam: (last) => last.nextPageToken || undefined,
    placeholderData: keepPreviousData,
    enabled,
    refetchInterval: every,
  });
}

interface MoreProps {
  of: { hasNextPage: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown; error: unknown; refetch: () => unknown };
}

/** More tells what went wrong with a list, and reads its next page. */
export function More({ of }: MoreProps) {
  return (
    <>
      <Fault error={of.error} retry={() => of.refetch()} />
      {of.hasNextPage ? (
        <p className="buttons">
          <button type="button" onClick={() => of.fetchNextPage()} disabled={of.isFetchingNextPage}>
            {of.isFetchingNextPage ? "Loading…" : "Show more"}
          </button>
        </p>
      ) : null}
    </>
  );
}

/** readAll reads a whole list, up to most pages of 1000. */
export async function readAll<T>(path: string, query: Query, pick: (page: never) => T[] | undefined, signal: AbortSignal, most = 5): Promise<T[]> {
  const out: T[] = [];
  let pageToken = "";
  for (let i = 0; i < most; i++) {
    const page = await get<Page>(path, { ...query, pageSize: 1000, pageToken }, signal);
    out.push(...(pick(page as never) ?? []));
    pageToken = page.nextPageToken ?? "";
    if (!pageToken) break;
  }
  return out;
}
